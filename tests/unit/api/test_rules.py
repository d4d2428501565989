"""Each rule says in CEL and in Python the same, on its own examples and on any object."""

from typing import Any

import cel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kintsugi.api.crd import crd_documents
from kintsugi.api.objects import SpecInvalid, parse_deployment
from kintsugi.api.rules import DEPLOYMENT_RULES, REMEDIATION_RULES, Rule, broken, values_at
from kintsugi.api.structural import walk
from tests.unit.api.generated import objects
from tests.unit.api.manifests import deployment

RULES = (*DEPLOYMENT_RULES, *REMEDIATION_RULES)
SCHEMAS = [document["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for document in crd_documents()]


def by_cel(rule: Rule, value: Any) -> bool:
    old, new = value if rule.transition else (value, value)
    answer = cel.evaluate(rule.cel, {"self": new, "oldSelf": old})
    assert isinstance(answer, bool)
    return answer


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.path}: {rule.message[:40]}")
def test_a_rule_holds_on_its_good_examples_and_breaks_on_its_bad_ones(rule: Rule) -> None:
    assert rule.good
    assert rule.bad
    for expected, values in ((True, rule.good), (False, rule.bad)):
        for value in values:
            assert by_cel(rule, value) is expected, f"CEL on {value}"
            assert rule.holds(value) is expected, f"Python on {value}"


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.data())
@pytest.mark.parametrize("rule", DEPLOYMENT_RULES, ids=lambda rule: f"{rule.path}: {rule.message[:40]}")
def test_cel_and_python_agree_on_any_value_that_fits_the_schema(rule: Rule, data: st.DataObject) -> None:
    value = data.draw(objects(schema_at(rule)))
    if not rule.path:
        value |= {"metadata": {"name": data.draw(st.from_regex(r"[-a-z0-9.]{1,50}", fullmatch=True))}}
    assert by_cel(rule, value) is rule.holds(value)


def schema_at(rule: Rule) -> dict[str, Any]:
    """The schema of the values that `rule` is about, without parts that make examples large and that no rule reads."""
    node = dict(walk(SCHEMAS[0]))[rule.path]
    if rule.path in {"", "spec"}:
        pool = {
            "type": "object",
            "properties": {"name": {"type": "string", "pattern": "^[a-z]*$", "maxLength": 9}},
            "required": ["name"],
        }
        pools = {
            "type": "array",
            "items": pool,
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        }
        fields = {
            "pools": pools,
            "replicas": {"type": "integer"},
            "scalePool": {"type": "string", "maxLength": 4},
        }
        spec = {"type": "object", "properties": fields}
        return spec if rule.path else {"type": "object", "properties": {"spec": spec}, "required": ["spec"]}
    return node


def test_the_message_of_a_rule_is_one_line_and_its_field_exists() -> None:
    nodes = [dict(walk(schema)) for schema in SCHEMAS]
    for rules, known in zip((DEPLOYMENT_RULES, REMEDIATION_RULES), nodes, strict=True):
        for rule in rules:
            assert "\n" not in rule.message
            assert rule.field is None or f"{rule.path}.{rule.field}" in known


def test_every_rule_is_placed_in_its_schema() -> None:
    placed = [
        entry["rule"]
        for schema in SCHEMAS
        for _, node in walk(schema)
        for entry in node.get("x-kubernetes-validations", ())
    ]
    assert sorted(placed) == sorted(rule.cel for rule in RULES)


def test_values_are_found_with_their_own_paths() -> None:
    raw = {"spec": {"pools": [{"name": "a"}, {"name": "b", "context": {"maxTokens": 1}}]}}
    assert list(values_at(raw, "spec.pools[].context")) == [("spec.pools[1].context", {"maxTokens": 1})]
    assert list(values_at(raw, "spec.engine.env[]")) == []


def test_a_broken_rule_names_the_field() -> None:
    raw = deployment({"model": {"id": "m"}, "scalePool": "c", "pools": [{"name": "a"}]})
    assert [path for path, _ in broken(DEPLOYMENT_RULES, raw)] == ["spec.scalePool"]
    with pytest.raises(SpecInvalid, match=r"^spec\.scalePool: scalePool must be the name of one of pools$"):
        parse_deployment(raw)
