"""Pydantic models as Kubernetes structural schemas: small, strict, and refused where Kubernetes would refuse.

Defaults never reach the schema: the API server would write them back, and a fleet kept in git would differ from
what its owner wrote. What Kubernetes has no word for raises TypeError, naming the path.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

Schema: TypeAlias = dict[str, Any]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"

KNOWN_FORMATS: Final = frozenset({"date-time", "int32", "int64", "double"})
_INT32_MAX: Final = 2**31 - 1

_DROPPED: Final = frozenset({"title", "default", "$defs", "discriminator", "examples", "deprecated"})
_ALLOWED: Final = frozenset(
    {
        "type",
        "format",
        "description",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "enum",
        "pattern",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "anyOf",
        PRESERVE,
        INT_OR_STRING,
        LIST_TYPE,
        LIST_KEYS,
        "x-kubernetes-validations",
    }
)
_TYPES: Final = frozenset({"object", "array", "string", "integer", "number", "boolean"})


class _WithoutDefaults(GenerateJsonSchema):
    """`X | None = None` means that the field may be absent: there is no null, and there are no defaults."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of `model`, without references. Raises TypeError for what has no counterpart."""
    raw = model.model_json_schema(by_alias=True, schema_generator=_WithoutDefaults)
    return _rewritten(raw, raw.get("$defs", {}), (), ())


def _rewritten(
    node: Schema, defs: Mapping[str, Schema], path: tuple[str, ...], seen: tuple[str, ...]
) -> Schema:
    where = ".".join(path) or "the object"
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[-1]
        if name in seen:
            raise TypeError(f"{where}: {name} contains itself, which a structural schema can't say")
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        return _rewritten({**defs[name], **siblings}, defs, path, (*seen, name))
    if len(node.get("allOf", ())) == 1:
        rest = {key: value for key, value in node.items() if key != "allOf"}
        return _rewritten({**node["allOf"][0], **rest}, defs, path, seen)
    if node.get(INT_OR_STRING):
        kept = {key: value for key, value in node.items() if key not in {"type", "anyOf", *_DROPPED}}
        return kept | {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    if unions := node.keys() & {"anyOf", "oneOf", "allOf"}:
        raise TypeError(f"{where}: {min(unions)} has no counterpart; use optional members and a rule")
    if "prefixItems" in node:
        raise TypeError(f"{where}: a list of fixed length has no counterpart; use a model")
    out: Schema = {}
    for key, value in node.items():
        out |= _keyword(key, value, node, defs, path, seen)
    if out.get("type") == "integer":
        out.setdefault("format", _integer_format(out))
    if out.get("type") == "object" and "properties" not in out and "additionalProperties" not in out:
        out[PRESERVE] = True
    return out


def _keyword(
    key: str,
    value: Any,
    node: Schema,
    defs: Mapping[str, Schema],
    path: tuple[str, ...],
    seen: tuple[str, ...],
) -> Schema:
    match key:
        case _ if key in _DROPPED:
            return {}
        case "properties":
            return {key: {name: _rewritten(part, defs, (*path, name), seen) for name, part in value.items()}}
        case "items":
            return {key: _rewritten(value, defs, (*path, "[]"), seen)}
        case "additionalProperties" if isinstance(value, dict) and value:
            return {key: _rewritten(value, defs, (*path, "{}"), seen)}
        case "additionalProperties":
            return {} if value is False else {PRESERVE: True}
        case "const":
            return {"enum": [value]}
        case "exclusiveMinimum" | "exclusiveMaximum":
            return {"minimum" if key == "exclusiveMinimum" else "maximum": value, key: True}
        case "uniqueItems":
            return {LIST_TYPE: "set"} if value and LIST_TYPE not in node else {}
        case "description":
            return {key: " ".join(value.split())}
        case "format" if value not in KNOWN_FORMATS:
            return {}
        case _:
            return {key: value}


def _integer_format(node: Schema) -> str:
    return "int32" if node.get("maximum", _INT32_MAX + 1) <= _INT32_MAX else "int64"


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every node of a structural schema with its path: `a.b`, `list[]`, `map{}`."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from walk(part, f"{path}.{name}".removeprefix("."))
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


def without_nulls(raw: Any, schema: Schema) -> Any:
    """`raw` as the API server stores it: null means absent, except inside what is passed through unread."""
    if isinstance(raw, list):
        return [without_nulls(item, schema.get("items", {})) for item in raw]
    if not isinstance(raw, Mapping) or schema.get(PRESERVE):
        return raw
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    return {
        key: without_nulls(value, known.get(key, others)) for key, value in raw.items() if value is not None
    }


def check(schema: Schema) -> tuple[str, ...]:
    """What Kubernetes, or our own rules for the API, would refuse in `schema`; each with its path.

    Beyond structurality: every list says its type, and everything a rule may have to iterate over is bounded,
    since the API server's cost estimate assumes the worst of what is not.
    """
    return tuple(f"{path or '.'}: {fault}" for path, node in walk(schema) for fault in _faults(node, path))


def _faults(node: Schema, path: str) -> Iterator[str]:
    for key in sorted(node.keys() - _ALLOWED):
        yield f"{key} is not allowed"
    if node.get(INT_OR_STRING):
        if "type" in node:
            yield "int-or-string has no type"
        return
    if "anyOf" in node:
        yield "anyOf is only allowed for int-or-string"
    kind = node.get("type")
    if kind not in _TYPES:
        yield f"type is {kind!r}"
    if node.get("format", "int32") not in KNOWN_FORMATS:
        yield f"format {node['format']} is unknown to Kubernetes"
    for key in ("exclusiveMinimum", "exclusiveMaximum"):
        if not isinstance(node.get(key, True), bool):
            yield f"{key} must be true or false"
    if any(mark in node.get("pattern", "") for mark in ("(?=", "(?!", "(?<")):
        yield "the pattern looks around, which Go can't"
    match kind:
        case "object":
            yield from _object_faults(node)
        case "array":
            yield from _array_faults(node)
        case "string" if path not in {"apiVersion", "kind"} and not node.keys() & {
            "maxLength",
            "enum",
            "format",
        }:
            yield "has no maxLength"


def _object_faults(node: Schema) -> Iterator[str]:
    if "properties" in node and "additionalProperties" in node:
        yield "has properties and additionalProperties"
    if isinstance(node.get("additionalProperties", {}), bool):
        yield "additionalProperties must be a schema"
    if "additionalProperties" in node and "maxProperties" not in node:
        yield "has no maxProperties"
    for name in node.get("required", ()):
        if name not in node.get("properties", {}):
            yield f"requires {name}, which it does not have"


def _array_faults(node: Schema) -> Iterator[str]:
    items = node.get("items")
    if not isinstance(items, dict):
        yield "has no items"
        return
    if "maxItems" not in node:
        yield "has no maxItems"
    match node.get(LIST_TYPE):
        case "map":
            if not node.get(LIST_KEYS):
                yield "is a map without keys"
            for key in node.get(LIST_KEYS, ()):
                part = items.get("properties", {}).get(key)
                if part is None or part.get("type") in {"object", "array"}:
                    yield f"its key {key} is no scalar of the items"
                elif key not in items.get("required", ()):
                    yield f"its key {key} is not required"
        case "set":
            if items.get("type") in {"object", "array"}:
                yield "is a set of what is no scalar"
        case "atomic":
            pass
        case other:
            yield f"has list type {other!r}"
