"""Objects made from a structural schema: one with every field set, and any that fits it (for Hypothesis)."""

import re
from datetime import UTC, datetime
from itertools import count
from typing import Any

from hypothesis import strategies as st

from kintsugi.api.model import format_timestamp
from kintsugi.api.structural import INT_OR_STRING, LIST_KEYS, LIST_TYPE, PRESERVE, Schema


class Maximal:
    """Builds a value with every field set and every value different as far as its schema allows."""

    def __init__(self) -> None:
        self._number = count(1)

    def of(self, schema: Schema) -> Any:
        """A value with every field set."""
        if schema.get(PRESERVE):
            return {"kept": {"as": ["it", {"is": next(self._number)}]}}
        if schema.get(INT_OR_STRING):
            return f"{next(self._number)}Gi"
        if "enum" in schema:
            return schema["enum"][next(self._number) % len(schema["enum"])]
        match schema["type"]:
            case "object" if "properties" in schema:
                return {name: self.of(part) for name, part in schema["properties"].items()}
            case "object":
                return {f"key-{next(self._number)}": self.of(schema["additionalProperties"])}
            case "array" if schema[LIST_TYPE] == "set" and "enum" in schema["items"]:
                return schema["items"]["enum"]
            case "array":
                return [self.of(schema["items"]) for _ in range(min(2, schema.get("maxItems", 2)))]
            case "boolean":
                return True
            case "string" if schema.get("format") == "date-time":
                return format_timestamp(datetime.fromtimestamp(1_800_000_000.25 + next(self._number), UTC))
            case "string":
                return self._text(schema)
            case kind:
                lowest, highest = schema.get("minimum", 0), schema.get("maximum", 1_000_000)
                value = min(highest, lowest + next(self._number))
                return int(value) if kind == "integer" else value - 0.5 if value - 0.5 > lowest else value

    def _text(self, schema: Schema) -> str:
        number = next(self._number)
        for text in (f"name{number}", f"https://name{number}", f"{number}.0"):
            if re.fullmatch(schema.get("pattern", ".*"), text):
                return text[-schema["maxLength"] :]
        raise AssertionError(f"no example text fits {schema['pattern']}")


_KEYS = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
_OPAQUE = st.dictionaries(
    _KEYS,
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=2),
        max_leaves=4,
    ),
    max_size=2,
)


def objects(schema: Schema) -> st.SearchStrategy[Any]:
    """Any value that fits `schema` and leaves out some of its optional fields."""
    if schema.get(PRESERVE):
        return _OPAQUE
    if schema.get(INT_OR_STRING):
        return st.integers(0, 99) | st.from_regex(
            schema["pattern"].replace("$", r"\Z"), fullmatch=True
        ).filter(lambda text: len(text) <= schema["maxLength"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "object" if "properties" in schema:
            parts = {name: objects(part) for name, part in schema["properties"].items()}
            needed = {name: part for name, part in parts.items() if name in schema.get("required", ())}
            return st.fixed_dictionaries(
                needed, optional={name: part for name, part in parts.items() if name not in needed}
            )
        case "object":
            return st.dictionaries(_KEYS, objects(schema["additionalProperties"]), max_size=2)
        case "array":
            return _lists(schema)
        case "boolean":
            return st.booleans()
        case "string" if schema.get("format") == "date-time":
            moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
            return moments.map(format_timestamp)
        case "string" if "pattern" in schema:
            fitting = st.from_regex(schema["pattern"].replace("$", r"\Z"), fullmatch=True)
            return fitting.filter(
                lambda text: text.isascii() and schema.get("minLength", 0) <= len(text) <= schema["maxLength"]
            )
        case "string":
            plain = st.characters(exclude_categories=["Cs", "Cc"])
            return st.text(plain, min_size=schema.get("minLength", 0), max_size=min(8, schema["maxLength"]))
        case "integer":
            return st.integers(schema.get("minimum", -(2**53)), schema.get("maximum", 2**53))
        case _:
            return st.floats(
                schema.get("minimum", -1e9),
                schema.get("maximum", 1e9),
                exclude_min=schema.get("exclusiveMinimum", False),
            )


def _lists(schema: Schema) -> st.SearchStrategy[Any]:
    keys = schema.get(LIST_KEYS, ())
    unique: Any = None
    if schema[LIST_TYPE] == "set":
        unique = str
    elif keys:
        unique = lambda item: tuple(item[key] for key in keys)
    return st.lists(
        objects(schema["items"]),
        min_size=schema.get("minItems", 0),
        max_size=min(2, schema["maxItems"]),
        unique_by=unique,
    )
