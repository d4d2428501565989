"""Attempts, lineages, breakers and the record that is left behind."""

import pytest

from kintsugi.api.status import RecentRemediation
from kintsugi.core.finding import Detector
from kintsugi.core.ladder import next_rung
from kintsugi.core.ledger import RESET_BREAKERS_ANNOTATION
from kintsugi.core.moment import moment
from kintsugi.core.plan import Evict
from tests.unit.core.decision.made import finding, spec
from tests.unit.core.decision.world import Pod, World, running_world


def heal(world: World, victim: Pod, detector: Detector = Detector.FRAGMENTED) -> None:
    """`victim` falls sick and its attempt ends."""
    victim.faults[detector] = world.now
    world.until(lambda: bool(world.active()), 600)
    world.until(lambda: not world.status.remediations.active, 4000, every=10)


def stamp(world: World, later: float = 0.0) -> str:
    return moment(world.now + later).isoformat()


def test_attempts_are_numbered_along_the_line_and_every_name_is_new() -> None:
    world = running_world(spec(8))
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.run(60)
    victim.faults.clear()
    world.run(60)
    heal(world, victim)
    numbers = [(r.spec.attempt, r.spec.instance.uid) for r in world.remediations.values()]
    assert numbers == [(1, victim.uid), (2, victim.uid)]
    assert len(world.remediations) == 2
    names = [r.metadata.name for r in world.remediations.values()]
    assert names == [f"chat-{victim.uid[:8]}-1", f"chat-{victim.uid[:8]}-2"]


def test_a_replacement_inherits_the_line_of_its_victim() -> None:
    world = running_world(spec(8))
    victim = world.members()[0]
    heal(world, victim)
    heir = next(e for e in world.status.remediations.lineages if e.uid != victim.uid)
    assert (heir.lineage, heir.attempts) == (victim.uid, 1)
    assert heir.uid in world.pods


def test_a_second_fault_in_the_line_within_the_memory_needs_another_node_and_waits_for_one() -> None:
    world = running_world(spec(8))
    heal(world, world.members()[0])
    heir = world.pods[world.status.remediations.recent[-1].replacement_uid or ""]
    world.run(600, every=60)
    heir.faults[Detector.FRAGMENTED] = world.now
    world.run(1200, every=30)
    assert world.gates() == {heir.name: "elsewhere"}
    assert len(world.remediations) == 1


def test_a_fault_after_the_memory_is_a_new_incident() -> None:
    world = running_world(spec(8))
    heal(world, world.members()[0])
    heir = world.pods[world.status.remediations.recent[-1].replacement_uid or ""]
    world.now += world.times.lineage_memory + 60
    world.step()
    heal(world, heir)
    assert world.status.remediations.recent[-1].outcome == "Cured"
    assert len(world.remediations) == 2


def test_a_cancelled_attempt_uses_no_rung_but_its_number_is_spent() -> None:
    world = running_world(spec(8))
    victim = world.members()[0]
    entry = RecentRemediation(
        id=f"{victim.uid}-1",
        pool="main",
        lineage=victim.uid,
        started_at=moment(world.now),
        finished_at=moment(world.now),
        outcome="Cancelled",
        counts_towards_budget=False,
    )
    book = world.status.remediations.model_copy(update={"recent": (entry,)})
    world.status = world.status.model_copy(update={"remediations": book})
    snapshot = world.snapshot()
    instance = next(i for i in snapshot.instances if i.uid == victim.uid)
    about = finding(Detector.FRAGMENTED, world.now, world.now, world.times)
    assert next_rung(snapshot, instance, about, None, None, world.times).remedy == "Recreate"


def break_pool(world: World) -> None:
    """One removal whose replacement does not start."""
    world.on_start = lambda pod: setattr(pod, "never_starts", "CrashLoopBackOff")
    world.members()[0].faults[Detector.FRAGMENTED] = world.now
    world.until(lambda: bool(world.status.remediations.breakers), 1200)
    world.run(15)
    world.on_start = lambda pod: None
    for pod in world.members():
        pod.never_starts = ""
    world.run(120)


def test_a_person_closes_a_breaker_by_an_annotation_with_the_time() -> None:
    world = running_world(spec(8))
    break_pool(world)
    world.annotations[RESET_BREAKERS_ANNOTATION] = stamp(world)
    world.run(10)
    assert not world.status.remediations.breakers
    world.run(600, every=60)
    assert not world.status.remediations.breakers


@pytest.mark.parametrize("text", ["", "yes", "2030-01-01", "2026-01-01T00:00:00Z"])
def test_what_is_no_time_or_lies_before_the_breaker_closes_none(text: str) -> None:
    world = running_world(spec(8))
    break_pool(world)
    world.annotations[RESET_BREAKERS_ANNOTATION] = text
    world.run(30)
    assert world.status.remediations.breakers


def test_a_reset_in_the_future_is_no_blank_cheque() -> None:
    world = running_world(spec(8))
    break_pool(world)
    world.annotations[RESET_BREAKERS_ANNOTATION] = stamp(world, later=3600)
    world.run(30)
    assert world.status.remediations.breakers


def test_a_new_revision_closes_the_breaker_of_the_old_one() -> None:
    world = running_world(spec(4))
    break_pool(world)
    world.spec["engine"] = {"image": "engine:2"}
    world.until(lambda: {p.revision for p in world.members()} == {world.view().revision}, 3000)
    world.until(lambda: len(world.sets) == 1, 300)
    world.run(30)
    assert not world.status.remediations.breakers


def test_entries_leave_the_books_when_no_window_needs_them() -> None:
    world = running_world(spec(8))
    heal(world, world.members()[0])
    assert len(world.status.remediations.recent) == 1
    world.now += 4 * 3600
    heal(world, world.members()[3])
    assert len(world.status.remediations.recent) == 1


def test_a_lineage_is_forgotten_with_its_pod() -> None:
    world = running_world(spec(8))
    heal(world, world.members()[0])
    world.run(30)
    assert {e.uid for e in world.status.remediations.lineages} <= set(world.pods)


def test_the_record_says_why_what_and_when() -> None:
    world = running_world(spec(4))
    victim = world.members()[0]
    began = world.now
    heal(world, victim)
    (record,) = world.remediations.values()
    status, line = record.status, record.status.timeline
    assert (record.spec.trigger, record.spec.instance.uid, record.spec.lineage) == (
        "fragmentation",
        victim.uid,
        victim.uid,
    )
    assert status.evidence[0].samples > 0
    assert "fragmentation for" in status.evidence[0].message
    assert {g.name for g in status.gates} >= {"storm", "minHealthy", "inFlight"}
    steps = [
        line.detected,
        line.decided,
        line.withdrawn,
        line.released,
        line.drained,
        line.deleted,
        line.ready,
        line.verified,
    ]
    assert all(steps)
    assert steps == sorted(steps)  # type: ignore[type-var]
    assert line.decided is not None
    assert line.decided.timestamp() - began < 10
    assert status.replacement is not None
    assert status.replacement.uid in world.pods
    (owner,) = record.metadata.owner_references
    assert owner["name"] == "chat"


def test_the_evidence_that_convinced_is_kept_though_the_instance_changes() -> None:
    world = running_world(spec(4))
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.step()
    first = next(iter(world.remediations.values())).status.evidence
    world.run(240)
    victim.faults[Detector.SLOW] = world.now
    world.run(120)
    assert next(iter(world.remediations.values())).status.evidence == first


def test_a_reservation_without_its_record_is_completed_and_never_repeated() -> None:
    world = running_world(spec(4))
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.step(crash="record")
    assert world.active()
    assert not world.remediations
    world.step()
    (record,) = world.remediations.values()
    assert record.spec.attempt_id == world.active()[0].id


def test_an_attempt_leaves_the_reservations_only_after_its_record_says_done() -> None:
    world = running_world(spec(4))
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.run(30)
    victim.faults.clear()
    world.step(crash="record")
    for _ in range(3):
        world.step(crash="record")
        assert world.status.remediations.active
    world.run(10)
    assert not world.status.remediations.active


def test_one_eviction_is_asked_for_until_it_is_seen() -> None:
    world = running_world(spec(4))
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.allows = lambda action: not isinstance(action, Evict)
    world.run(600, every=10)
    assert victim.uid in world.pods
    world.allows = lambda action: True
    world.run(10)
    assert victim.gone_at is not None or victim.uid not in world.pods
