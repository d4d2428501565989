"""Each row of what pydantic writes and what Kubernetes wants."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from kintsugi.api.model import Atomic, Keyed, Model, Opaque, Quantity, Timestamp, UniqueItems
from kintsugi.api.structural import check, structural, without_nulls


class Part(Model):
    """A part."""

    name: Annotated[str, Field(max_length=9)]
    """Its name."""
    size: int | None = None
    """Its size."""


def schema_of(annotation: Any, default: Any = ...) -> dict[str, Any]:
    """The schema of one field with that annotation."""
    model = create_model("Sample", __base__=Model, field=(annotation, default))
    schema: dict[str, Any] = structural(model)["properties"]["field"]
    return schema


def test_an_optional_field_has_the_type_of_its_value_and_no_null() -> None:
    assert schema_of(Annotated[str, Field(max_length=3)] | None, None) == {"type": "string", "maxLength": 3}


def test_no_default_ever_reaches_the_schema() -> None:
    assert schema_of(int, 3) == {"type": "integer", "format": "int64"}
    assert "default" not in str(schema_of(Part, Part(name="x")))


def test_a_field_with_a_default_is_not_required() -> None:
    assert structural(Part)["required"] == ["name"]


def test_a_nested_model_is_written_out_and_the_fields_own_description_wins() -> None:
    class Whole(Model):
        part: Part
        """The part that matters."""

    part = structural(Whole)["properties"]["part"]
    assert part["description"] == "The part that matters."
    assert part["properties"]["name"] == {"type": "string", "maxLength": 9, "description": "Its name."}


def test_a_literal_is_an_enum_even_with_one_value() -> None:
    assert schema_of(Literal["A"]) == {"type": "string", "enum": ["A"]}
    assert schema_of(Literal["A", "B"]) == {"type": "string", "enum": ["A", "B"]}


def test_an_exclusive_bound_is_a_bound_and_a_flag() -> None:
    assert schema_of(Annotated[float, Field(gt=0, lt=1)]) == {
        "type": "number",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 1,
        "exclusiveMaximum": True,
    }


def test_an_integer_says_how_large_it_may_be() -> None:
    assert schema_of(Annotated[int, Field(le=10)])["format"] == "int32"
    assert schema_of(Annotated[int, Field(le=2**40)])["format"] == "int64"


def test_forbidding_extra_fields_is_left_to_pruning() -> None:
    class Closed(BaseModel, extra="forbid"):
        flag: bool

    assert structural(Closed) == {
        "type": "object",
        "properties": {"flag": {"type": "boolean"}},
        "required": ["flag"],
    }


def test_what_is_passed_through_keeps_unknown_fields() -> None:
    opaque = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert schema_of(Opaque) == opaque
    assert schema_of(dict[str, Any]) == opaque


def test_a_map_of_values_has_their_schema() -> None:
    assert schema_of(Annotated[dict[str, bool], Field(max_length=4)]) == {
        "type": "object",
        "additionalProperties": {"type": "boolean"},
        "maxProperties": 4,
    }


def test_a_quantity_is_an_integer_or_a_string() -> None:
    schema = schema_of(Quantity)
    assert schema["x-kubernetes-int-or-string"] is True
    assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "type" not in schema


def test_a_timestamp_is_a_date_time() -> None:
    assert schema_of(Timestamp) == {"type": "string", "format": "date-time"}


def test_a_keyed_list_is_a_list_map() -> None:
    schema = schema_of(Annotated[tuple[Part, ...], Keyed("name", max_items=5)], ())
    assert schema["x-kubernetes-list-type"] == "map"
    assert schema["x-kubernetes-list-map-keys"] == ["name"]
    assert schema["maxItems"] == 5


def test_sets_and_atomic_lists_say_so() -> None:
    assert schema_of(Annotated[tuple[bool, ...], UniqueItems])["x-kubernetes-list-type"] == "set"
    assert schema_of(set[bool])["x-kubernetes-list-type"] == "set"
    assert schema_of(Annotated[tuple[bool, ...], Atomic])["x-kubernetes-list-type"] == "atomic"


@pytest.mark.parametrize("union", [int | str, Part | str, Annotated[int | bool, Field()]])
def test_a_union_is_refused_with_its_path(union: Any) -> None:
    with pytest.raises(TypeError, match=r"^field: anyOf"):
        schema_of(union)


def test_a_list_of_fixed_length_is_refused_with_its_path() -> None:
    with pytest.raises(TypeError, match=r"^field: a list of fixed length"):
        schema_of(tuple[int, str])


class Knot(BaseModel):
    """Contains itself."""

    inner: "list[Knot]" = []


def test_a_model_that_contains_itself_is_refused_with_its_path() -> None:
    with pytest.raises(TypeError, match=r"^inner\.\[\]: Knot contains itself"):
        structural(Knot)


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "string"}, ".: has no maxLength"),
        ({}, ".: type is None"),
        ({"type": "string", "maxLength": 1, "nullable": True}, ".: nullable is not allowed"),
        (
            {"type": "string", "maxLength": 1, "pattern": "(?=a)"},
            ".: the pattern looks around, which Go can't",
        ),
        ({"type": "string", "format": "uri"}, ".: format uri is unknown to Kubernetes"),
        ({"type": "integer", "anyOf": []}, ".: anyOf is only allowed for int-or-string"),
        (
            {"type": "integer", "minimum": 0, "exclusiveMinimum": 0},
            ".: exclusiveMinimum must be true or false",
        ),
        ({"type": "string", "x-kubernetes-int-or-string": True}, ".: int-or-string has no type"),
        ({"type": "array", "maxItems": 1, "x-kubernetes-list-type": "atomic"}, ".: has no items"),
        ({"type": "array", "items": {"type": "boolean"}, "maxItems": 1}, ".: has list type None"),
        (
            {"type": "array", "items": {"type": "boolean"}, "x-kubernetes-list-type": "atomic"},
            ".: has no maxItems",
        ),
        (
            {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set", "maxItems": 1},
            ".: is a set of what is no scalar",
        ),
        (
            {
                "type": "array",
                "items": {"type": "object", "properties": {"a": {"type": "boolean"}}},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["a"],
                "maxItems": 1,
            },
            ".: its key a is not required",
        ),
        (
            {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
            ".: has properties and additionalProperties",
        ),
        ({"type": "object", "additionalProperties": True}, ".: additionalProperties must be a schema"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "a: has no maxLength"),
        ({"type": "object", "properties": {}, "required": ["b"]}, ".: requires b, which it does not have"),
    ],
)
def test_what_kubernetes_would_refuse_is_named_with_its_path(schema: dict[str, Any], fault: str) -> None:
    assert fault in check(schema)


def test_null_means_absent_except_in_what_is_passed_through() -> None:
    class Sample(Model):
        part: Part | None = None
        opaque: Opaque | None = None

    raw = {"part": {"name": "a", "size": None}, "opaque": {"a": None}, "gone": None}
    assert without_nulls(raw, structural(Sample)) == {"part": {"name": "a"}, "opaque": {"a": None}}
