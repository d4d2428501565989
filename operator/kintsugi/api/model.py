"""The base of every API model, and the few field types that Kubernetes needs said its own way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

GROUP: Final = "kintsugi.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"


class Model(BaseModel):
    """An immutable part of an API object, written in camelCase.

    Unknown fields are ignored: after a rollback of the operator an object may hold newer fields, and refusing
    them would fail every fleet (`fields.unknown_fields` names them instead).
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    def dump(self) -> dict[str, Any]:
        """The JSON form: camelCase keys, without absent fields and without containers that are empty by default.

        Reading it back gives an equal model. An empty list is left out, so write a status whole (replace, or
        server-side apply), never as a merge patch: a merge patch would keep the old list.
        """
        return _pruned(self, self.model_dump(mode="json", by_alias=True))


def _pruned(model: Model, dumped: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value, written = getattr(model, name), dumped[field.alias or name]
        if isinstance(value, Model):
            written = _pruned(value, written)
        elif isinstance(value, tuple):
            pairs = zip(value, written, strict=True)
            written = [_pruned(item, raw) if isinstance(item, Model) else raw for item, raw in pairs]
        if value is None or (written in ({}, []) and value == field.get_default(call_default_factory=True)):
            continue
        out[field.alias or name] = written
    return out


def format_timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with `Z`: whole seconds where they say it all, else microseconds."""
    utc = moment.astimezone(UTC)
    return utc.isoformat(timespec="microseconds" if utc.microsecond else "seconds").replace("+00:00", "Z")


Timestamp = Annotated[
    AwareDatetime,
    AfterValidator(lambda moment: moment.astimezone(UTC)),
    PlainSerializer(format_timestamp, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An instant, written in UTC."""


def _quantity(raw: Any) -> Any:
    return str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw


QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"

Quantity = Annotated[
    str,
    Field(pattern=QUANTITY_PATTERN, max_length=32),
    BeforeValidator(_quantity),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN, "maxLength": 32}),
]
"""A Kubernetes quantity that is not negative, such as `16Gi`."""

Opaque = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
"""An object that is passed through as the user wrote it."""

DNS_LABEL_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

ObjectName = Annotated[str, Field(pattern=DNS_SUBDOMAIN_PATTERN, min_length=1, max_length=253)]
"""The name of another Kubernetes object in the same namespace."""


@dataclass(frozen=True, slots=True)
class Clipped:
    """Marks a text of ours that is cut to `size` characters when read and when written, and never refused.

    A report must not fail because an error message was long.
    """

    size: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(self.cut, return_schema=handler(source))
        return core_schema.no_info_after_validator_function(self.cut, handler(source), serialization=written)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "maxLength": self.size}

    def cut(self, text: str) -> str:
        """`text`, or its beginning and an ellipsis."""
        return text if len(text) <= self.size else text[: self.size - 1] + "…"


@dataclass(frozen=True, slots=True)
class Keyed:
    """Marks a list as a Kubernetes list map: at most one item per value of `keys`, kept in order.

    Wire names. Example: `pools: Annotated[tuple[Pool, ...], Keyed("name", max_items=16)] = ()`.
    """

    key: str
    also: str | None = None
    max_items: int | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if self.also is None else (self.key, self.also)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        out = dict(handler(schema))
        out |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(self.keys)}
        return out if self.max_items is None else out | {"maxItems": self.max_items}

    def _checked(self, items: Sequence[Model]) -> Sequence[Model]:
        if self.max_items is not None and len(items) > self.max_items:
            raise ValueError(f"must have at most {self.max_items} items, has {len(items)}")
        seen: set[tuple[Any, ...]] = set()
        for item in items:
            values = {field.alias: getattr(item, name) for name, field in type(item).model_fields.items()}
            identity = tuple(values[key] for key in self.keys)
            if identity in seen:
                raise ValueError(
                    f"has two items whose {'+'.join(self.keys)} is {'+'.join(map(str, identity))}"
                )
            seen.add(identity)
        return items


@dataclass(frozen=True, slots=True)
class ListType:
    """Marks a list as replaced whole (`atomic`) or as a `set` of scalars."""

    kind: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = handler(source)
        if self.kind != "set":
            return inner
        return core_schema.no_info_after_validator_function(_distinct, inner)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(handler(schema)) | {"x-kubernetes-list-type": self.kind}


def _distinct(items: Sequence[Any]) -> Sequence[Any]:
    doubled = sorted({str(item) for item in items if items.count(item) > 1})
    if doubled:
        raise ValueError(f"names {', '.join(doubled)} twice")
    return items


Atomic: Final = ListType("atomic")
UniqueItems: Final = ListType("set")
