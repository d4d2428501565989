"""What `explain` says of a fleet, as JSON and as lines."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kintsugi.api.remediation import RemediationSpec, RemediationStatus
from kintsugi.api.status import DeploymentStatus, SignalValues
from kintsugi.api.structural import structural
from kintsugi.core.explain.case import case_of
from kintsugi.core.explain.fleet import explained
from kintsugi.core.explain.text import age, lines, printable
from kintsugi.core.explain.watched import TRIGGER_WORDS
from tests.unit.api.generated import Maximal, objects
from tests.unit.explain.fleets import (
    NOON,
    active,
    condition,
    deployment,
    event,
    finding,
    healthy,
    instance,
    remediation,
)

LATER = datetime(2026, 11, 29, 12, 10, tzinfo=UTC)


def report(raw: dict[str, Any], only: str | None = None, **records: Any) -> dict[str, Any]:
    found = explained(case_of(raw, **records), only)
    json.dumps(found, allow_nan=False)
    return found


def text(raw: dict[str, Any], only: str | None = None, **records: Any) -> str:
    return "\n".join(lines(report(raw, only, **records), LATER))


def sick(**remediations: Any) -> dict[str, Any]:
    return deployment(
        {
            "observedGeneration": 3,
            "healing": "Act",
            "instances": [
                instance("chat-a", "Healthy", "Progressing"),
                instance(
                    "chat-b",
                    "Sick",
                    "Stalled",
                    findings=[finding("stall", "Stalled", "SICK", "no step for 312 s")],
                    signals={"flatSeconds": 312.0},
                ),
            ],
            "remediations": remediations,
        }
    )


def test_a_healthy_fleet_is_called_well_and_says_what_is_watched() -> None:
    found = report(healthy())
    assert found["summary"] == "nothing is wrong: 2 instances are well"
    by_name = {each["trigger"]: each for each in found["watched"]}
    assert by_name["stall"]["effect"] == "acts"
    assert by_name["cacheHitRate"]["mode"] == "Observe"
    assert "25 %" in by_name["fragmentation"]["figures"]
    assert found["instances"][0]["change"] == ["nothing: it is well, and judged in every pass"]


def test_pools_are_counted() -> None:
    raw = healthy()
    raw["status"]["pools"] = [
        {"name": "main", "replicas": 3, "ready": 2, "verdicts": {"healthy": 2, "starting": 1, "sick": 0}}
    ]
    assert "pool main: 2 of 3 serve (2 healthy, 1 starting)" in text(raw)


def test_a_closed_gate_says_why_what_opens_it_and_when_it_is_asked_again() -> None:
    held = {"instance": "chat-b", "gate": "budget", "message": "2 of 2", "nextCheck": "2026-11-29T12:20:00Z"}
    (found,) = [one for one in report(sick(withheld=[held]))["instances"] if one["withheld"]]
    assert found["withheld"]["who"] == "time"
    assert "spec.healing.budget.maxPerPoolPer30Minutes" in found["withheld"]["opens"]
    assert "2026-11-29T12:20:00Z" in found["withheld"]["askedAgain"]
    assert "each 5 s" in found["withheld"]["askedAgain"]
    said = text(sick(withheld=[held]))
    assert "held back by budget: 2 of 2" in said
    assert "no step for 312 s" in said
    assert "since 2026-11-29T12:00:00Z (10 min)" in said


def test_an_attempt_under_way_says_its_phase_and_what_comes_next() -> None:
    found = report(sick(active=[active("chat-b", "Quarantined")]))
    one = next(one for one in found["instances"] if one["attempt"])
    assert one["attempt"]["phase"] == "Quarantined"
    assert "drains" in one["attempt"]["next"]
    assert one["attempt"]["givenBackIfItClears"] is True
    out = report(sick(active=[active("chat-b", "Draining", evictingSince=NOON)]))
    assert out["attempts"][0]["givenBackIfItClears"] is False


def test_a_sick_instance_of_a_trigger_that_observes_says_which_field_would_make_it_act() -> None:
    raw = sick(withheld=[{"instance": "chat-b", "gate": "mode", "message": "mode Observe for stall"}])
    raw["spec"]["healing"] = {"triggers": {"stall": {"mode": "Observe"}}}
    found = report(raw)
    one = next(one for one in found["instances"] if one["name"] == "chat-b")
    assert any("to Act" in each for each in one["change"])
    stall = next(each for each in found["watched"] if each["trigger"] == "stall")
    assert stall["now"] == {"sick": 1, "suspect": 0, "heldBackByMode": 1}


def test_storms_breakers_and_pauses_are_said_once_for_the_fleet() -> None:
    raw = sick(
        storms=[{"pool": "main", "since": NOON, "lastSickAt": NOON, "sick": ["u1", "u2"]}],
        breakers=[{"pool": "main", "revision": "r1", "reason": "NotCured", "since": NOON, "message": "look"}],
    )
    raw["spec"]["healing"] = {"pauseRequests": ["holiday"]}
    found = report(raw)
    assert [hold["what"] for hold in found["holds"]] == ["paused", "storm", "breaker"]
    assert "healing is held back: paused, storm, breaker" in found["summary"]


def test_why_a_pod_was_replaced_is_told_after_it_has_gone() -> None:
    records = [remediation("chat-old"), remediation("chat-other", "NotCured", "chat-y-1")]
    found = report(healthy(), "chat-old", remediations=records, events=[event("chat-old"), event("chat-z")])
    assert [each["instance"] for each in found["past"]] == ["chat-old"]
    assert found["past"][0]["outcome"] == "Cured"
    assert [each["about"] for each in found["events"]] == ["chat-old"]
    said = text(healthy(), "chat-old", remediations=records)
    assert "why: no step for 300 s" in said
    assert "seconds without a step 312 s from 62 readings" in said
    assert report(healthy(), "chat-new", remediations=records)["past"], "the replacement's own story"


def test_how_attempts_for_a_trigger_ended_is_counted_once_each() -> None:
    record = remediation("chat-old")
    recent = {
        "id": "uid-chat-old-1",
        "pool": "main",
        "lineage": "l",
        "trigger": "stall",
        "startedAt": NOON,
        "outcome": "Cured",
    }
    raw = sick(recent=[recent, {**recent, "id": "u-2", "outcome": "Cancelled"}])
    stall = next(t for t in report(raw, remediations=[record])["watched"] if t["trigger"] == "stall")
    assert stall["record"] == {"attempts": 2, "cured": 1, "notCured": 0, "cancelled": 1, "other": 0}


def test_a_trigger_whose_series_is_not_exported_is_called_blind() -> None:
    raw = healthy()
    missing = "not exported, so not judged: kintsugi_gpu_memory_fragmentation_ratio"
    raw["status"]["conditions"] = [condition("DataFresh", "True", "SeriesMissing", missing)]
    blind = {each["trigger"]: each["blind"] for each in report(raw)["watched"]}
    assert "kintsugi_gpu_memory_fragmentation_ratio" in blind["fragmentation"]
    assert blind["throughput"] == ""
    assert "BLIND: not judged" in text(raw)


def test_every_trigger_is_called_blind_for_a_series_of_the_metric_contract() -> None:
    raw = healthy()
    missing = (
        "not exported, so not judged: kintsugi_container_memory_anonymous_bytes, vllm:request_success_total; "
        "only observed for it: errors, memoryGrowth"
    )
    raw["status"]["conditions"] = [condition("DataFresh", "True", "SeriesMissing", missing)]
    blind = {each["trigger"] for each in report(raw)["watched"] if each["blind"]}
    assert blind == {"errors", "memoryGrowth"}


def test_a_trigger_that_only_observes_says_how_to_come_to_trust_it() -> None:
    raw = healthy()
    raw["spec"]["healing"] = {"mode": "Observe"}
    said = text(raw)
    assert "to trust it before it acts: " in said
    assert (
        'max by (pool) (quantile_over_time(0.99, kintsugi_instance_signal{fleet="llm/chat",signal="lost_percent"}[7d]))'
        in said
    )


def test_every_signal_in_a_query_is_one_that_the_operator_exports() -> None:
    named = {words.signal for words in TRIGGER_WORDS.values()} - {""}
    assert named <= set(SignalValues.model_fields)


def test_a_trigger_that_never_acts_is_not_said_to_act() -> None:
    effects = {each["trigger"]: each["effect"] for each in report(healthy())["watched"]}
    assert "acts" not in {effects["rankDivergence"], effects["preemptions"]}


def test_an_older_spec_is_said_to_be_older() -> None:
    raw = healthy()
    raw["metadata"]["generation"] = 4
    assert "older spec" in report(raw)["summary"]


def test_a_deployment_without_a_status_is_not_called_well() -> None:
    raw = deployment({})
    assert "no operator has written a status" in report(raw)["summary"]


def test_a_mode_that_its_owner_chose_is_nothing_wrong() -> None:
    raw = healthy()
    raw["status"]["conditions"] = [condition("HealingAllowed", "False", "ModeObserve", "mode Observe")]
    assert report(raw)["summary"].startswith("nothing is wrong")


def test_what_a_newer_operator_wrote_is_left_out_by_name_and_the_rest_is_told() -> None:
    raw = sick(withheld=[{"instance": "chat-b", "gate": "moonPhase", "message": "full"}])
    raw["status"]["instances"][0]["verdict"] = "Enlightened"
    raw["status"]["instances"][1]["findings"][0]["reason"] = "NewThing"
    raw["status"]["remediations"]["active"] = [active("chat-b", "Meditating")]
    raw["spec"]["healing"] = {"mode": "Dream"}
    found = report(raw)
    assert [one["name"] for one in found["instances"]] == ["chat-a", "chat-b"]
    assert any("status.instances[0].verdict" in trouble for trouble in found["troubles"])
    assert any("spec.healing.mode" in trouble for trouble in found["troubles"])
    assert "no words for that gate" in text(raw)


def test_a_part_that_lacks_what_it_must_have_takes_no_other_part_with_it() -> None:
    raw = sick()
    first, second = raw["status"]["instances"]
    del first["name"]
    first["verdict"] = "Enlightened"
    found = report(raw)
    assert [(one["name"], one["verdict"]) for one in found["instances"]] == [("chat-b", "Sick")]
    assert second["verdict"] == "Sick"


def test_numbers_that_json_cannot_say_are_no_values() -> None:
    raw = sick()
    raw["status"]["instances"][1]["signals"] = {"flatSeconds": float("nan"), "running": float("inf")}
    assert next(one for one in report(raw)["instances"] if one["name"] == "chat-b")["signals"] == {}


def test_a_message_cannot_move_the_cursor() -> None:
    assert printable("a\x1b[2Jb\nc") == "a [2Jb c"


def test_a_thousand_strange_parts_are_told_in_a_few_lines() -> None:
    raw = healthy()
    raw["status"]["instances"] = [instance(f"chat-{n}", "Enlightened", "New") for n in range(1000)]
    found = report(raw)
    assert len(found["instances"]) == len(found["troubles"]) == 1000
    assert len(text(raw).splitlines()) < 300


def test_a_spec_that_cannot_be_read_says_nothing_about_triggers() -> None:
    raw = healthy()
    raw["spec"] = {"replicas": 2}
    found = report(raw)
    assert found["watched"] == []
    assert any(trouble.startswith("spec: can't be read") for trouble in found["troubles"])


STATUS = objects(structural(DeploymentStatus))
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(STATUS, st.none() | st.just("name1"))
def test_any_status_that_a_cluster_can_hold_is_explained(status: Any, only: str | None) -> None:
    assert text(deployment(status), only)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PARTS = ("conditions", "instances", "pools", "remediations", "rollouts", "rehearsal", "capacity", "ready")


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(PARTS), JUNK, max_size=4), st.lists(JUNK, max_size=2), JUNK)
def test_any_junk_is_explained_or_named(status: dict[str, Any], records: list[Any], spec: Any) -> None:
    raw = deployment(status) | {"spec": spec}
    assert "\n".join(lines(explained(case_of(raw, records, records)), LATER))


def test_every_field_set_is_explained() -> None:
    status, spec, done = (
        Maximal().of(structural(model)) for model in (DeploymentStatus, RemediationSpec, RemediationStatus)
    )
    records = [{"metadata": {"name": "r"}, "spec": spec, "status": done}]
    found = report(deployment(status), remediations=records)
    assert found["troubles"] == []
    assert found["past"]
    assert list(lines(found, None))


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "in the future"), (45, "45 s"), (600, "10 min"), (9e5, "10 d")]
)
def test_ages_are_said_in_one_unit(seconds: float, said: str) -> None:
    assert age(seconds) == said
