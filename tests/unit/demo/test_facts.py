from typing import Any

import pytest

from tests.demo.facts import Facts


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def pod(uid: str = "u1", rotation: str = "in", ready: bool = True, ending: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "uid": uid,
        "name": f"demo-short-{uid}",
        "labels": {"kintsugi.dev/pool": "short", "kintsugi.dev/rotation": rotation},
    }
    if ending:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}


def deployment(verdict: str, detector: str | None = None, gate: str | None = None) -> dict[str, Any]:
    findings = [{"detector": detector, "message": "high"}] if detector else []
    withheld = [{"instance": "demo-short-u1", "gate": gate, "message": "no"}] if gate else []
    return {
        "status": {
            "instances": [{"uid": "u1", "name": "demo-short-u1", "verdict": verdict, "findings": findings}],
            "remediations": {"inFlight": 0, "withheld": withheld},
        }
    }


def test_times_are_those_at_which_a_thing_was_first_seen() -> None:
    clock = Clock()
    facts = Facts(clock)
    facts.pod("ADDED", pod(ready=False))
    clock.now = 103.0
    facts.pod("MODIFIED", pod())
    clock.now = 110.0
    facts.deployment("MODIFIED", deployment("Sick", "fragmentation"))
    clock.now = 111.0
    facts.pod("MODIFIED", pod(rotation="out"))
    facts.deployment("MODIFIED", deployment("Sick", "fragmentation"))
    clock.now = 120.0
    facts.pod("MODIFIED", pod(rotation="out", ending=True))
    clock.now = 125.0
    facts.pod("DELETED", pod(rotation="out", ending=True))
    fact = facts.pods["u1"]
    assert (fact.created, fact.ready, fact.withdrawn, fact.ending, fact.gone) == (100, 103, 111, 120, 125)
    assert facts.first_sick == {("u1", "fragmentation"): 110.0}
    assert facts.alive() == []
    assert facts.ended(since=119.0, pool="short") == [fact]


def test_a_suspicion_is_not_a_verdict_of_sick() -> None:
    facts = Facts(Clock())
    facts.deployment("MODIFIED", deployment("Suspect", "fragmentation"))
    assert facts.first_sick == {}


def test_a_pod_put_back_in_rotation_is_told_and_keeps_no_withdrawal_of_now() -> None:
    facts, told = Facts(Clock()), list[str]()
    facts.listeners.append(told.append)
    for rotation in ("in", "out", "in"):
        facts.pod("MODIFIED", pod(rotation=rotation))
    assert facts.pods["u1"].in_rotation
    assert told[-2:] == ["demo-short-u1 withdrawn from traffic", "demo-short-u1 back in rotation"]


def test_a_closed_gate_is_told_once_and_forgotten_when_it_opens() -> None:
    facts, told = Facts(Clock()), list[str]()
    facts.listeners.append(told.append)
    facts.deployment("MODIFIED", deployment("Sick", "fragmentation", gate="storm"))
    facts.deployment("MODIFIED", deployment("Sick", "fragmentation", gate="storm"))
    assert sum("left alone: storm" in text for text in told) == 1
    facts.deployment("MODIFIED", deployment("Healthy"))
    assert facts.withheld == {}


def test_waiting_ends_at_the_deadline_with_nothing() -> None:
    clock = Clock()
    facts = Facts(clock)
    assert facts.wait(lambda: None, clock.now) is None
    assert facts.wait(lambda: "seen", clock.now) == "seen"


def test_a_watch_that_failed_ends_all_waiting() -> None:
    facts = Facts(Clock())
    facts.fail(ValueError("no JSON"))
    with pytest.raises(RuntimeError, match="watched"):
        facts.wait(lambda: None, 1e12)


def test_a_remediation_leads_from_the_victim_to_its_replacement() -> None:
    facts = Facts(Clock())
    facts.pod("ADDED", pod("u1"))
    facts.pod("ADDED", pod("u2"))
    facts.mend(
        "MODIFIED",
        {
            "metadata": {"name": "demo-u1-1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"instance": {"uid": "u1"}, "trigger": "stall"},
            "status": {"phase": "Done", "outcome": "Cured", "replacement": {"uid": "u2"}},
        },
    )
    assert facts.outcome_of("u1") == "Cured"
    assert facts.replacement_of("u1") is facts.pods["u2"]
    assert facts.outcome_of("u2") is None
