"""A typing error is named."""

import json

from kintsugi.api.fields import LAST_APPLIED, unknown_field_problems, unknown_fields
from tests.unit.api.manifests import deployment


def test_unknown_fields_are_named_at_any_depth() -> None:
    raw = deployment(
        {
            "model": {"id": "m"},
            "healing": {"budgets": {"maxPerHour": 1}},
            "pools": [{"name": "a"}, {"name": "b", "replica": 2}],
            "wish": None,
        }
    )
    assert unknown_fields(raw) == ["spec.healing.budgets", "spec.pools[1].replica", "spec.wish"]


def test_what_is_passed_through_holds_no_unknown_fields() -> None:
    raw = deployment(
        {
            "model": {"id": "m"},
            "podTemplate": {"spec": {"anything": 1}},
            "engine": {
                "env": [{"name": "A", "valueFrom": {"new": 1}}],
                "resources": {"limits": {"rdma/ib": "4"}},
            },
        }
    )
    assert unknown_fields(raw) == []


def test_fields_that_the_api_server_dropped_are_found_in_what_was_applied() -> None:
    raw = deployment({"model": {"id": "m"}})
    raw["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(deployment({"model": {"ids": "m"}}))}
    assert unknown_fields(raw) == ["spec.model.ids"]


def test_an_annotation_that_is_no_json_says_nothing() -> None:
    raw = deployment({"model": {"id": "m"}})
    raw["metadata"]["annotations"] = {LAST_APPLIED: "{"}
    assert unknown_fields(raw) == []


def test_the_name_that_was_meant_is_proposed() -> None:
    (problem,) = unknown_field_problems(deployment({"model": {"id": "m"}, "healng": {}}))
    assert str(problem) == "spec.healng: is unknown and has no effect; did you mean healing?"


def test_a_field_like_no_other_gets_no_proposal() -> None:
    (problem,) = unknown_field_problems(deployment({"model": {"id": "m"}, "xyzzy": {}}))
    assert str(problem) == "spec.xyzzy: is unknown and has no effect"
