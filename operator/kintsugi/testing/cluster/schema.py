"""What a CRD's structural schema does to an object: unknown fields go, defaults come, the rest is checked."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


class Schemas:
    """Schemas by kind; kinds without one pass unchanged. CEL rules are not run: the real API server does that."""

    def __init__(self, by_kind: Mapping[str, Schema]) -> None:
        self._by_kind = dict(by_kind)

    @staticmethod
    def of_crds(crds: Sequence[Mapping[str, Any]]) -> "Schemas":
        """The schemas of the stored versions of CustomResourceDefinitions."""
        found: dict[str, Schema] = {}
        for crd in crds:
            for version in crd["spec"]["versions"]:
                if version.get("storage"):
                    found[crd["spec"]["names"]["kind"]] = version["schema"]["openAPIV3Schema"]
        return Schemas(found)

    def prune(self, kind: str, value: Any) -> list[str]:
        """Drop the fields that the schema does not know, in place; their paths."""
        schema = self._by_kind.get(kind)
        return [] if schema is None else list(_prune(schema, value, "", root=True))

    def fill_defaults(self, kind: str, value: Any) -> None:
        """Set absent fields to their defaults, outside in, in place."""
        if kind in self._by_kind:
            _fill(self._by_kind[kind], value)

    def faults(self, kind: str, value: Any) -> list[str]:
        """Every violation as `path: what`; empty where the object is valid."""
        return list(_faults(self._by_kind[kind], value, "")) if kind in self._by_kind else []


def _prune(schema: Schema, value: Any, path: str, root: bool = False) -> Iterator[str]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _prune(schema.get("items") or {}, each, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    known: Mapping[str, Any] = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for key in list(value):
        below = f"{path}.{key}" if path else key
        if root and key in ("apiVersion", "kind", "metadata"):
            continue
        if key in known:
            yield from _prune(known[key], value[key], below)
        elif isinstance(extra, Mapping):
            yield from _prune(extra, value[key], below)
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            del value[key]
            yield below


def _fill(schema: Schema, value: Any) -> None:
    if isinstance(value, dict):
        for key, below in (schema.get("properties") or {}).items():
            if key not in value and below.get("default") is not None:
                default = below["default"]
                value[key] = _copy(default)
            if key in value:
                _fill(below, value[key])
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            for each in value.values():
                _fill(extra, each)
    elif isinstance(value, list):
        for each in value:
            _fill(schema.get("items") or {}, each)


def _faults(schema: Schema, value: Any, path: str) -> Iterator[str]:
    wanted = schema.get("type")
    if value is None:
        if not schema.get("nullable"):
            yield f"{path}: Invalid value: null"
        return
    if wanted and (
        not isinstance(value, _TYPES[wanted]) or (wanted in ("integer", "number") and value is True)
    ):
        yield f"{path}: Invalid value: {value!r}: must be of type {wanted}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: Unsupported value: {value!r}: supported values: {schema['enum']}"
    yield from _bounds(schema, value, path)
    if isinstance(value, dict):
        for key in schema.get("required") or ():
            if key not in value:
                yield f"{path}.{key}: Required value".lstrip(".")
        known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, each in value.items():
            below = known.get(key) or (extra if isinstance(extra, Mapping) else None)
            if below:
                yield from _faults(below, each, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _faults(schema.get("items") or {}, each, f"{path}[{index}]")
        yield from _repeated_keys(schema, value, path)


def _bounds(schema: Schema, value: Any, path: str) -> Iterator[str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            yield f"{path}: Invalid value: {value}: must be at least {schema['minimum']}"
        if "maximum" in schema and value > schema["maximum"]:
            yield f"{path}: Invalid value: {value}: must be at most {schema['maximum']}"
    for sized, low, high in ((str, "minLength", "maxLength"), (list, "minItems", "maxItems")):
        if isinstance(value, sized):
            if len(value) < schema.get(low, 0):
                yield f"{path}: Invalid value: fewer than {schema[low]}"
            if high in schema and len(value) > schema[high]:
                yield f"{path}: Too long or too many: may not be more than {schema[high]}"
    if isinstance(value, dict) and len(value) > schema.get("maxProperties", len(value)):
        yield f"{path}: Too many: must have at most {schema['maxProperties']} items"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: Invalid value: {value!r}: should match {schema['pattern']!r}"


def _repeated_keys(schema: Schema, value: list[Any], path: str) -> Iterator[str]:
    if schema.get("x-kubernetes-list-type") == "map":
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        seen: set[tuple[Any, ...]] = set()
        for each in value:
            mark = tuple(each.get(key) for key in keys)
            if mark in seen:
                yield f"{path}: Duplicate value: {mark}"
            seen.add(mark)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list) else value
