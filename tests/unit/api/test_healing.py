"""Which mode is in force, and how fast the clock runs."""

from typing import Any

import pytest

from kintsugi.api.healing import ADVICE_ONLY, HealingSpec, Triggers


@pytest.mark.parametrize(
    ("healing", "trigger", "mode"),
    [
        ({}, "stall", "Act"),
        ({"mode": "Observe"}, "stall", "Observe"),
        ({"mode": "Observe", "triggers": {"stall": {"mode": "Act"}}}, "stall", "Act"),
        ({"mode": "Act", "triggers": {"dead": {"mode": "Recommend"}}}, "dead", "Recommend"),
        ({"mode": "Recommend"}, "memoryGrowth", "Recommend"),
        ({"mode": "Recommend"}, "somethingNew", "Recommend"),
        ({"mode": "Act"}, "cacheHitRate", "Observe"),
        ({"mode": "Act", "triggers": {"cacheHitRate": {"mode": "Recommend"}}}, "cacheHitRate", "Recommend"),
        ({"mode": "Act", "triggers": {"cacheHitRate": {"mode": "Act"}}}, "cacheHitRate", "Observe"),
        ({"triggers": {"preemptions": {"mode": "Recommend"}}}, "preemptions", "Recommend"),
        ({"triggers": {"gpuUtilization": {"mode": "Recommend"}}}, "gpuUtilization", "Observe"),
    ],
)
def test_the_mode_in_force(healing: dict[str, Any], trigger: str, mode: str) -> None:
    assert HealingSpec.model_validate(healing).mode_of(trigger) == mode


def test_every_trigger_has_a_mode_and_advice_never_acts() -> None:
    everywhere = {field.alias: {"mode": "Act"} for field in Triggers.model_fields.values()}
    healing = HealingSpec.model_validate({"triggers": everywhere})
    acting = {trigger for trigger in everywhere if trigger and healing.mode_of(trigger) == "Act"}
    assert acting == set(everywhere) - ADVICE_ONLY


def test_the_clock_is_only_sped_up_by_a_rehearsal() -> None:
    assert HealingSpec().speed_up == 1
    assert HealingSpec.model_validate({"rehearsal": {"speedUp": 60}}).speed_up == 60
