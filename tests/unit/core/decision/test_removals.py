"""One remediation from verdict to cure: withdrawn, held, released or deleted first, drained, evicted."""

import pytest

from kintsugi.core.finding import Detector
from kintsugi.core.plan import Evict, Plan, Release, Withdraw
from tests.unit.core.decision.made import pools, spec
from tests.unit.core.decision.watching import NO_ROOM, ROOM, done_at, ended, last, only, phase, sick, taken
from tests.unit.core.decision.world import kinds, running_world


def test_a_sick_instance_with_room_is_withdrawn_held_released_drained_evicted_and_verified() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.until(ended(world), 3000)
    assert taken(world) == ["Withdraw", "Release", "Evict"]
    assert done_at(world, Release) - done_at(world, Withdraw) >= world.times.hold
    assert last(world).outcome == "Cured"
    assert victim.uid not in world.pods
    assert len(world.members()) == 4
    record = next(iter(world.remediations.values()))
    assert (record.status.phase, record.status.outcome, record.status.path) == ("Done", "Cured", "Surge")


def test_without_room_it_is_deleted_first_and_never_released() -> None:
    world = running_world(spec(4), NO_ROOM)
    sick(world)
    world.until(ended(world), 3000)
    assert taken(world) == ["Withdraw", "Evict"]
    assert last(world).outcome == "Cured"
    assert len(world.members()) == 4


def test_the_hold_counts_from_the_withdrawal_even_where_the_verdict_is_hours_old() -> None:
    """Design §9: in the hold the victim is only withdrawn, so that a storm may still show."""
    world = running_world(spec(4, healing={"pauseRequests": ["audit"]}), ROOM)
    sick(world)
    world.run(3600, every=60)
    assert world.gates()
    assert not world.taken
    world.spec["healing"] = {}
    world.until(lambda: "Release" in taken(world), 600)
    assert done_at(world, Release) - done_at(world, Withdraw) >= world.times.hold


def test_a_stall_is_withdrawn_at_w_and_removed_only_at_k() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world, Detector.STALLED)
    began = world.now
    world.until(lambda: not victim.in_rotation, 200)
    assert world.now - began == pytest.approx(60, abs=5)
    assert not only(world).counts_towards_budget
    world.until(lambda: phase(world) == "Draining", 600)
    assert world.now - began == pytest.approx(300, abs=5)
    assert only(world).counts_towards_budget
    world.until(lambda: "Evict" in taken(world), 20)
    assert [a.grace_seconds for _, a in world.taken if isinstance(a, Evict)][:1] == [10]


def test_a_withdrawn_stall_leaves_the_in_flight_slot_to_another_trigger() -> None:
    world = running_world(spec(8), ROOM)
    sick(world, Detector.STALLED, 0)
    world.run(70)
    other = sick(world, Detector.FRAGMENTED, 1)
    world.run(10)
    assert {a.uid for a in world.active() if a.counts_towards_budget} == {other.uid}


def test_dead_needs_no_hold_and_no_withdrawal() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world, Detector.DEAD)
    victim.ready, victim.started_at = False, None
    world.run(15)
    assert taken(world)[0] == "Release"
    assert "Evict" in taken(world)


def test_a_pod_that_keeps_restarting_and_serves_in_between_is_held_like_any_other() -> None:
    """Its third restart shows a fault, but a poisoned request restarts its siblings too: a storm must have time to show."""
    world = running_world(spec(4), ROOM)
    sick(world, Detector.DEAD)
    world.until(ended(world), 3000)
    assert taken(world) == ["Withdraw", "Release", "Evict"]
    assert done_at(world, Release) - done_at(world, Withdraw) >= world.times.hold
    assert last(world).outcome == "Cured"


def test_a_pod_that_failed_as_a_whole_is_deleted_first_since_kubernetes_has_replaced_it() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world, Detector.DEAD)
    victim.phase, victim.started_at = "Failed", None
    world.until(ended(world), 3000)
    assert "Release" not in taken(world)
    assert last(world).outcome == "Cured"
    assert len([p for p in world.members() if not p.phase]) == 4


def test_a_member_that_nothing_is_known_of_any_more_is_not_evicted_while_it_drains() -> None:
    """Delete-first: nothing is undone yet when the readings stop, and missing data never counts towards a kill."""
    world = running_world(spec(4), NO_ROOM)
    victim = sick(world)
    victim.running = 3.0
    world.until(lambda: phase(world) == "Draining", 400)
    victim.blind = True
    world.run(1800, every=30)
    assert "Evict" not in taken(world)
    assert only(world).message.startswith("waits")
    victim.blind, victim.running = False, 0.0
    world.until(lambda: "Evict" in taken(world), 60)


def test_unknown_running_requests_are_waited_for_until_the_deadline() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    victim.running = None
    world.until(lambda: "Release" in taken(world), 400)
    waited = world.until(lambda: "Evict" in taken(world), 400)
    assert waited == pytest.approx(world.times.drain_timeout, abs=10)
    assert only(world).streams_cut is None


def test_streams_cut_at_the_deadline_are_counted() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    victim.running = 7.0
    world.until(lambda: "Evict" in taken(world), 1000)
    assert only(world).streams_cut == 7
    record = next(iter(world.remediations.values()))
    assert record.status.streams_cut == 7


def test_a_drain_ends_when_nothing_runs() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    victim.running = 7.0
    world.until(lambda: phase(world) == "Draining", 400)
    world.run(30)
    assert "Evict" not in taken(world)
    victim.running = 0.0
    world.run(10)
    assert "Evict" in taken(world)
    assert only(world).streams_cut == 0


def test_a_release_is_never_undone_so_the_recovered_pod_is_drained_evicted_and_cancelled() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    victim.running = 2.0
    world.until(lambda: not victim.member, 400)
    victim.faults.clear()
    world.until(ended(world), 1000)
    assert taken(world) == ["Withdraw", "Release", "Evict"]
    assert victim.uid not in world.pods
    assert (last(world).outcome, last(world).counts_towards_budget) == ("Cancelled", True)
    assert len(world.members()) == 4


@pytest.mark.parametrize("crash", ["commit", "record", "act", "half"])
@pytest.mark.parametrize("room", [ROOM, NO_ROOM])
def test_a_crash_in_every_single_pass_ends_like_no_crash_with_one_victim(crash: str, room: int) -> None:
    world = running_world(spec(4), room)
    victim = sick(world)
    passes = 0
    while not ended(world)():
        passes += 1
        assert passes < 3000, world.tell()
        world.step(crash=crash if passes % 2 else "")
    assert last(world).outcome == "Cured"
    assert {a.uid for _, a in world.taken if isinstance(a, Evict | Release | Withdraw)} == {victim.uid}
    assert len(world.members()) == 4


def test_pools_are_healed_independently() -> None:
    world = running_world(spec(pools=pools(short=4, long=4)), 100)
    first, second = world.members("short")[0], world.members("long")[0]
    first.faults[Detector.FRAGMENTED] = second.faults[Detector.FRAGMENTED] = world.now - 400
    plan: Plan = world.step()
    assert kinds(plan.actions).count("Withdraw") == 2


def test_a_victim_that_could_not_be_withdrawn_is_not_released_at_the_end_of_its_hold() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.allows = lambda action: not isinstance(action, Withdraw)
    world.run(600, every=10)
    assert victim.member
    assert "Release" not in taken(world)
    world.allows = lambda action: True
    world.until(lambda: "Evict" in taken(world), 100)


def test_a_victim_is_not_evicted_in_the_pass_that_takes_it_out_of_rotation() -> None:
    """A client may have connected a moment before."""
    world = running_world(spec(4), NO_ROOM)
    victim = sick(world)
    world.until(lambda: phase(world) == "Draining", 600)
    victim.in_rotation = True
    plan = world.step()
    assert kinds(plan.actions) == ["Withdraw"]


def test_a_phase_of_another_version_stops_that_attempt_alone() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.run(30)
    active = only(world).model_copy(update={"phase": "Done"})
    book = world.status.remediations.model_copy(update={"active": (active,)})
    world.status = world.status.model_copy(update={"remediations": book})
    world.run(600, every=30)
    assert victim.member
    assert world.gates() == {victim.name: "unknownPhase"}


def test_a_released_pod_whose_reservation_is_lost_is_pointed_out_and_left_to_a_person() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    victim.running = 5.0
    world.until(lambda: not victim.member, 600)
    world.status = world.status.model_copy(update={"remediations": type(world.status.remediations)()})
    world.run(60)
    assert world.gates() == {victim.name: "noReservation"}
    assert "Evict" not in taken(world)
