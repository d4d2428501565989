"""Conditions change only when something did."""

from datetime import UTC, datetime, timedelta

from kintsugi.api.condition import Condition, find_condition, set_condition

NOON = datetime(2026, 8, 1, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


def available(status: str, reason: str = "Ready", message: str = "") -> Condition:
    return Condition.model_validate(
        {"type": "Available", "status": status, "reason": reason, "message": message, "observedGeneration": 2}
    )


def test_a_first_condition_gets_the_time_in_whole_seconds() -> None:
    (condition,) = set_condition((), available("True"), NOON)
    assert condition.last_transition_time == NOON.replace(microsecond=0)


def test_the_same_statement_again_changes_nothing() -> None:
    once = set_condition((), available("True"), NOON)
    assert set_condition(once, available("True"), LATER) == once


def test_another_reason_or_message_keeps_the_time() -> None:
    once = set_condition((), available("True"), NOON)
    (condition,) = set_condition(once, available("True", "Surplus", "more than enough"), LATER)
    assert condition.reason == "Surplus"
    assert condition.last_transition_time == once[0].last_transition_time


def test_another_status_sets_the_time_anew() -> None:
    once = set_condition((), available("True"), NOON)
    (condition,) = set_condition(once, available("False"), LATER)
    assert condition.last_transition_time == LATER.replace(microsecond=0)


def test_conditions_are_sorted_by_type_and_others_are_kept() -> None:
    conditions: tuple[Condition, ...] = ()
    for kind in ("Progressing", "Available", "DataFresh"):
        conditions = set_condition(conditions, Condition(type=kind, status="True", reason="Fine"), NOON)
    assert [condition.type for condition in conditions] == ["Available", "DataFresh", "Progressing"]
    assert find_condition(conditions, "DataFresh") is conditions[1]
    assert find_condition(conditions, "Degraded") is None
