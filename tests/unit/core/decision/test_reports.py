"""Status, conditions and events: they say what is, change when something did, and are told once."""

from typing import Any

import pytest

from kintsugi.api.condition import find_condition
from kintsugi.core.decide import decide
from kintsugi.core.finding import Detector
from kintsugi.core.judged import Judged
from tests.unit.core.decision.made import pools, spec
from tests.unit.core.decision.world import World, at, running_world


def condition(world: World, kind: str) -> tuple[str, str]:
    found = find_condition(world.status.conditions, kind)
    assert found is not None
    return found.status, found.reason


def reasons(plan: Any) -> list[str]:
    return [happening.reason for happening in plan.happenings]


def test_a_quiet_fleet_is_written_about_once() -> None:
    world = running_world(spec(4))
    writes = world.writes
    for _ in range(50):
        plan = world.step()
        assert plan.actions == ()
        assert plan.happenings == ()
    assert world.writes == writes


def test_deciding_twice_on_the_same_world_gives_an_equal_status_and_an_equal_dump() -> None:
    world = running_world(spec(4))
    snapshot, judged = world.snapshot(), world.judged()
    first, second = (decide(snapshot, judged, world.times) for _ in range(2))
    assert first == second
    assert first.status.dump() == second.status.dump() == snapshot.deployment.status.dump()


def test_an_entry_of_which_nothing_changed_is_taken_over_as_it_is() -> None:
    world = running_world(spec(4))
    before = world.snapshot().deployment.status.instances
    after = decide(world.snapshot(), world.judged(), world.times).status.instances
    assert len(after) == 4
    assert all(now is then for now, then in zip(after, before, strict=True))


def test_figures_alone_change_no_status() -> None:
    world = running_world(spec(4))
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.spec["healing"] = {"mode": "Observe"}
    world.run(30)
    writes = world.writes
    for running in (1.0, 17.0, 3.0):
        victim.running = running
        world.run(60)
    assert world.writes == writes, "the message of a finding counts the seconds"


def test_a_withheld_entry_follows_its_reason_but_not_its_figures() -> None:
    world = running_world(spec(5))
    first, second = world.members()[:2]
    first.faults[Detector.FRAGMENTED] = world.now
    for pod in world.members()[2:]:
        pod.blind = True
    world.run(10)
    before = world.status.remediations.withheld
    second.blind = True
    world.run(10)
    message = next(w.message for w in world.status.remediations.withheld if w.instance == first.name)
    assert message == next(w.message for w in before if w.instance == first.name)
    world.spec["healing"] = {"pauseRequests": ["audit"]}
    world.run(10)
    assert world.gates()[first.name] == "paused"


def test_an_instance_that_is_well_carries_no_findings_and_no_signals() -> None:
    world = running_world(spec(2))
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.run(10)
    entries = {e.uid: e for e in world.status.instances}
    assert entries[victim.uid].findings
    assert entries[victim.uid].remedy == "Recreate"
    assert not next(e for e in world.status.instances if e.uid != victim.uid).findings
    victim.faults.clear()
    world.run(30)
    assert not next(e for e in world.status.instances if e.uid == victim.uid).findings


def test_since_is_when_the_verdict_changed_and_no_later() -> None:
    world = running_world(spec(2, healing={"mode": "Observe"}))
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.step()
    fell = world.now
    world.run(300, every=10)
    victim.faults[Detector.SLOW] = world.now
    world.run(20)
    entry = next(e for e in world.status.instances if e.uid == victim.uid)
    assert entry.since is not None
    assert entry.since.timestamp() == pytest.approx(fell, abs=1)


def test_conditions_of_a_fleet_as_it_should_be() -> None:
    world = running_world(spec(2))
    assert {c.type: (c.status, c.reason) for c in world.status.conditions} == {
        "Available": ("True", "Serving"),
        "Progressing": ("False", "AsWanted"),
        "SpecAccepted": ("True", "Accepted"),
        "DataFresh": ("True", "Fresh"),
        "HealingAllowed": ("True", "Ready"),
        "Degraded": ("False", "Well"),
    }
    assert (world.status.ready, world.status.why, world.status.healing) == ("2/2", "", "Act")


def test_a_transition_time_moves_with_the_status_of_the_condition_alone() -> None:
    world = running_world(spec(4))
    before = find_condition(world.status.conditions, "Degraded")
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.run(10)
    after = find_condition(world.status.conditions, "Degraded")
    assert before is not None
    assert after is not None
    assert after.last_transition_time != before.last_transition_time
    victim.faults[Detector.SLOW] = world.now
    world.run(10)
    again = find_condition(world.status.conditions, "Degraded")
    assert again is not None
    assert again.last_transition_time == after.last_transition_time


def test_degraded_and_why_name_the_sick_one() -> None:
    world = running_world(spec(4, healing={"mode": "Observe"}))
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.run(10)
    assert condition(world, "Degraded") == ("True", "Sick")
    assert condition(world, "HealingAllowed") == ("False", "ModeObserve")
    degraded = find_condition(world.status.conditions, "Degraded")
    assert degraded is not None
    assert victim.name in degraded.message


def test_missing_data_is_a_condition_and_closes_healing() -> None:
    world = running_world(spec(2))
    judged = Judged(world.judged().verdicts, False, "MetricsUnavailable", "no page of 2 instances")
    plan = decide(world.snapshot(), judged, world.times)
    for kind in ("DataFresh", "HealingAllowed"):
        found = find_condition(plan.status.conditions, kind)
        assert found is not None
        assert found.status == "False"
        assert "no page" in found.message


def test_unknown_fields_are_named_and_the_spec_is_accepted() -> None:
    world = running_world(spec(2))
    plan = decide(at(world.snapshot(), unknown_fields=("spec.helaing",)), world.judged(), world.times)
    found = find_condition(plan.status.conditions, "SpecAccepted")
    assert found is not None
    assert (found.status, found.reason) == ("True", "UnknownFields")
    assert "spec.helaing" in found.message


def test_pause_is_told_by_the_condition_and_the_column() -> None:
    world = running_world(spec(2, healing={"pauseRequests": ["audit"]}))
    assert condition(world, "HealingAllowed") == ("False", "Paused")
    assert world.status.healing == "Paused"


def test_available_counts_the_wanted_revision_alone() -> None:
    world = running_world(spec(2), gpus=2)
    world.spec["engine"] = {"image": "engine:2"}
    world.on_start = lambda pod: setattr(pod, "never_starts", "CrashLoopBackOff")
    world.run(300, every=10)
    assert condition(world, "Available") == ("False", "PoolShort")
    assert condition(world, "Progressing") == ("False", "RolloutStalled")


def test_replicas_and_selector_are_those_of_the_scaled_pool() -> None:
    world = running_world(spec(pools=pools(short=2, long=3), scalePool="long"))
    assert world.status.replicas == 3
    assert "kintsugi.dev/pool=long" in world.status.selector
    assert "kintsugi.dev/rotation=in" in world.status.selector


def test_a_rehearsal_is_said_in_status() -> None:
    world = running_world(spec(2, healing={"rehearsal": {"speedUp": 10}}))
    assert world.status.rehearsal is not None
    assert world.status.rehearsal.speed_up == 10


def test_every_step_of_a_remediation_is_told_once() -> None:
    world = running_world(spec(4))
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    told: list[str] = []
    while not (world.status.remediations.recent and not world.status.remediations.active):
        told += reasons(world.step(10))
    expected = ["InstanceSick", "Withdrawn", "Released", "Evicting", "Replaced", "RemediationCured"]
    assert [reason for reason in told if reason in expected] == expected
    assert len(told) == len(set(told))


def test_a_storm_and_a_breaker_are_told_once() -> None:
    world = running_world(spec(4))
    for pod in world.members()[:2]:
        pod.faults[Detector.FRAGMENTED] = world.now
    told: list[str] = []
    for _ in range(60):
        told += reasons(world.step(10))
    assert told.count("HealingWithheld") == 1


def test_a_rollout_is_told_when_it_begins_stalls_and_is_done() -> None:
    world = running_world(spec(2))
    world.spec["engine"] = {"image": "engine:2"}
    told: list[str] = []
    while "RolloutDone" not in told:
        told += reasons(world.step(10))
    assert [r for r in told if r.startswith("Rollout")] == ["RolloutProgressing", "RolloutDone"]


def test_the_event_of_a_stalled_rollout_is_a_warning() -> None:
    world = running_world(spec(2))
    world.spec["engine"] = {"image": "engine:broken"}
    world.on_start = lambda pod: setattr(pod, "never_starts", "ImagePullBackOff")
    told = [h for _ in range(30) for h in world.step(10).happenings if h.reason == "RolloutStalled"]
    assert len(told) == 1
    assert told[0].warning
