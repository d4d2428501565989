"""One remediation from verdict to cure, and every way in which it ends earlier."""

from collections.abc import Callable

import pytest

from kintsugi.api.status import ActiveRemediation, RecentRemediation
from kintsugi.core.finding import Detector
from kintsugi.core.plan import Evict, Plan, Release, Restore, Withdraw
from tests.unit.core.decision.made import pools, spec
from tests.unit.core.decision.world import Pod, World, kinds, running_world

ROOM, NO_ROOM = 100, 4


def sick(world: World, detector: Detector = Detector.FRAGMENTED, index: int = 0) -> Pod:
    """The pod at `index` of pool main, which falls sick now."""
    pod = world.members()[index]
    pod.faults[detector] = world.now
    return pod


def only(world: World) -> ActiveRemediation:
    (active,) = world.status.remediations.active
    return active


def phase(world: World) -> str:
    return only(world).phase if world.status.remediations.active else "none"


def last(world: World) -> RecentRemediation:
    return world.status.remediations.recent[-1]


def ended(world: World) -> Callable[[], bool]:
    return lambda: not world.status.remediations.active and bool(world.status.remediations.recent)


def taken(world: World) -> list[str]:
    return kinds(action for _, action in world.taken)


def done_at(world: World, kind: type) -> float:
    return next(when for when, action in world.taken if isinstance(action, kind))


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


def test_a_trigger_that_clears_in_the_hold_gives_the_instance_back_and_uses_no_budget() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.run(120)
    assert not victim.in_rotation
    victim.faults.clear()
    world.until(ended(world), 60)
    assert taken(world) == ["Withdraw", "Restore"]
    assert victim.in_rotation
    assert (last(world).outcome, last(world).counts_towards_budget) == ("Cancelled", False)


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


def test_a_stall_that_steps_again_before_its_removal_is_put_back() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world, Detector.STALLED)
    world.until(lambda: phase(world) == "Quarantined", 200)
    world.run(200)
    victim.faults.clear()
    world.until(ended(world), 60)
    assert victim.in_rotation
    assert last(world).outcome == "Cancelled"
    assert not last(world).counts_towards_budget


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


def test_a_pod_that_failed_as_a_whole_is_deleted_first_since_kubernetes_has_replaced_it() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world, Detector.DEAD)
    victim.phase, victim.started_at = "Failed", None
    world.until(ended(world), 3000)
    assert "Release" not in taken(world)
    assert last(world).outcome == "Cured"
    assert len([p for p in world.members() if not p.phase]) == 4


def test_no_data_in_the_hold_neither_removes_nor_gives_back() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.run(60)
    victim.blind = True
    world.run(3600, every=30)
    assert taken(world) == ["Withdraw"]
    assert world.gates() == {victim.name: "noData"}
    victim.blind = False
    world.until(lambda: "Release" in taken(world), 60)


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


def test_a_release_that_never_happened_is_cancelled_like_any_other_withdrawal() -> None:
    """The operator died, or the last look refused, between the commit and the patch; then the trigger cleared."""
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.allows = lambda action: not isinstance(action, Release)
    world.until(lambda: phase(world) == "Draining", 400)
    victim.faults.clear()
    world.until(ended(world), 100)
    assert "Evict" not in taken(world)
    assert victim.in_rotation
    assert (last(world).outcome, last(world).counts_towards_budget) == ("Cancelled", False)


def test_a_delete_first_drain_is_cancelled_where_the_trigger_clears() -> None:
    world = running_world(spec(4), NO_ROOM)
    victim = sick(world)
    victim.running = 2.0
    world.until(lambda: phase(world) == "Draining", 400)
    victim.faults.clear()
    world.until(ended(world), 60)
    assert victim.in_rotation
    assert taken(world) == ["Withdraw", "Restore"]
    assert (last(world).outcome, last(world).counts_towards_budget) == ("Cancelled", False)


def test_a_storm_that_opens_in_the_hold_puts_the_victim_back() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.run(100)
    assert not victim.in_rotation
    sick(world, Detector.FRAGMENTED, 1)
    world.run(15)
    assert victim.in_rotation
    assert set(world.gates().values()) == {"storm"}


def test_a_storm_leaves_a_stalled_victim_out_until_it_steps() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world, Detector.STALLED)
    world.run(70)
    sick(world, Detector.FRAGMENTED, 1)
    world.run(600, every=10)
    assert not victim.in_rotation
    assert taken(world) == ["Withdraw"]
    victim.faults.clear()
    world.until(lambda: victim.in_rotation, 30)


def test_a_process_that_the_kubelet_restarted_is_another_one() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.run(100)
    victim.started_at = world.now
    world.until(ended(world), 60)
    assert last(world).outcome == "Cancelled"
    assert victim.in_rotation
    assert "Release" not in taken(world)


def test_a_victim_that_goes_by_itself_ends_the_attempt() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.run(60)
    victim.gone_at = world.now + 10
    world.until(ended(world), 60)
    assert (last(world).outcome, last(world).counts_towards_budget) == ("Cancelled", False)
    assert len(world.members()) == 4


def test_a_stall_takes_over_from_a_weaker_finding_whose_data_it_took_away() -> None:
    """A hung engine exports nothing new: its fragmentation becomes unknown, and it must not wait for ever."""
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.run(60)
    del victim.faults[Detector.FRAGMENTED]
    victim.faults[Detector.STALLED] = world.now
    victim.cleared = frozenset()
    world.until(lambda: victim.uid not in world.pods, 900)
    assert {r.spec.trigger for r in world.remediations.values()} == {"fragmentation", "stall"}


def test_a_trigger_that_only_observes_does_not_hide_another_that_acts() -> None:
    healing = {"triggers": {"fragmentation": {"mode": "Observe"}}}
    world = running_world(spec(4, healing=healing), ROOM)
    victim = sick(world)
    world.run(60)
    assert world.gates() == {victim.name: "mode"}
    victim.faults[Detector.STALLED] = world.now - 60
    world.run(10)
    assert not victim.in_rotation
    assert only(world).trigger == "stall"


@pytest.mark.parametrize(
    ("reason", "says"), [("CrashLoopBackOff", "does not start"), ("ImagePullBackOff", "does not start")]
)
def test_a_replacement_that_does_not_come_up_is_not_cured_and_stops_the_pool(reason: str, says: str) -> None:
    world = running_world(spec(4), ROOM)
    sick(world)

    def broken(pod: Pod) -> None:
        pod.never_starts = reason

    world.on_start = broken
    world.until(ended(world), 1000)
    assert last(world).outcome == "NotCured"
    assert says in world.status.remediations.breakers[0].message
    sick(world, index=0)
    world.run(3600, every=30)
    assert len(world.remediations) == 1
    assert "breaker" in world.gates().values()


def test_a_replacement_that_is_sick_too_is_not_cured() -> None:
    world = running_world(spec(4), ROOM)
    sick(world)
    world.on_start = lambda pod: pod.faults.update({Detector.FRAGMENTED: world.now})
    world.until(ended(world), 2000)
    assert last(world).outcome == "NotCured"
    world.run(7200, every=60)
    assert taken(world).count("Evict") == 1


def test_a_dead_replacement_is_not_removed_in_the_pass_that_closes_the_first_attempt() -> None:
    """Breaker and ledger are written with the outcome: the next decision must have read them."""
    world = running_world(spec(8), ROOM)
    first = sick(world, Detector.DEAD)
    first.ready, first.started_at = False, None
    world.until(lambda: phase(world) == "Warming", 600)
    world.run(400)
    second = next(p for p in world.members() if p.uid == only(world).replacement_uid)
    second.faults[Detector.DEAD] = world.now
    second.ready, second.started_at = False, None
    world.step()
    assert world.gates()[second.name] == "breaker"
    world.run(3600, every=30)
    assert taken(world).count("Evict") == 1
    assert world.status.remediations.breakers[0].reason == "NotCured"


def test_an_attempt_that_is_not_in_the_books_yet_still_uses_its_slot() -> None:
    world = running_world(spec(8), ROOM)
    sick(world)
    world.until(lambda: phase(world) == "Probation", 3000)
    world.until(lambda: not world.active(), 3000)
    assert world.status.remediations.active
    other = sick(world, index=3)
    world.step(crash="record")
    assert not world.active()
    assert world.gates()[other.name] == "inFlight"
    world.run(15)
    assert world.active()[0].uid == other.uid


def test_a_replacement_that_goes_before_it_was_verified_is_ambiguous() -> None:
    world = running_world(spec(4), ROOM)
    sick(world)
    world.until(lambda: phase(world) == "Warming", 1000)
    replacement = world.pods[only(world).replacement_uid or ""]
    replacement.gone_at = world.now + 10
    world.until(ended(world), 100)
    assert last(world).outcome == "Ambiguous"
    assert world.status.remediations.breakers[0].reason == "Ambiguous"


def test_a_replacement_that_goes_before_it_was_ready_is_waited_for_again() -> None:
    world = running_world(spec(4), ROOM)
    sick(world)
    world.until(lambda: only(world).replacement_uid is not None if world.active() else False, 1000)
    world.pods[only(world).replacement_uid or ""].gone_at = world.now + 1
    world.until(ended(world), 3000)
    assert last(world).outcome == "Cured"


def test_a_replacement_that_stays_pending_names_what_it_waits_for_and_blocks_the_next_action() -> None:
    world = running_world(spec(4), NO_ROOM)
    sick(world)
    world.until(lambda: "Evict" in taken(world), 1000)
    world.gpus = 3
    sick(world, Detector.STALLED, 0)
    world.run(7200, every=60)
    assert taken(world).count("Evict") == 1
    assert "not scheduled" in next(a for a in world.active() if a.phase == "Replacing").message


def test_an_unanswered_real_request_keeps_a_replacement_from_being_cured() -> None:
    world = running_world(spec(4), ROOM)
    sick(world)
    world.until(lambda: phase(world) == "Probation", 3000)
    world.answers[only(world).replacement_uid or ""] = False
    world.until(ended(world), 3000)
    assert last(world).outcome == "NotCured"


def test_unknown_at_the_end_of_the_probation_extends_it_once_and_is_then_ambiguous() -> None:
    world = running_world(spec(4), ROOM)
    sick(world)
    world.until(lambda: phase(world) == "Probation", 3000)
    world.pods[only(world).replacement_uid or ""].blind = True
    took = world.until(ended(world), 3000)
    assert took == pytest.approx(2 * world.times.probation, abs=20)
    assert last(world).outcome == "Ambiguous"


# a pool of one ---------------------------------------------------------------------------------------------------


def test_in_a_pool_of_one_with_room_the_victim_serves_until_its_replacement_is_ready() -> None:
    world = running_world(spec(1), ROOM)
    victim = sick(world)
    world.until(lambda: "Release" in taken(world), 400)
    assert victim.in_rotation
    world.until(lambda: "Withdraw" in taken(world), 400)
    assert any(p.ready_at for p in world.members())
    world.until(ended(world), 3000)
    assert last(world).outcome == "Cured"


@pytest.mark.parametrize("detector", [Detector.FRAGMENTED, Detector.SLOW])
def test_in_a_pool_of_one_without_room_a_person_is_asked(detector: Detector) -> None:
    world = running_world(spec(1), 1)
    victim = sick(world, detector)
    world.run(3600, every=30)
    assert not world.taken
    assert victim.in_rotation
    assert world.gates() == {victim.name: "poolOfOne"}


@pytest.mark.parametrize("detector", [Detector.DEAD, Detector.STALLED])
def test_in_a_pool_of_one_without_room_what_serves_nothing_is_replaced(detector: Detector) -> None:
    world = running_world(spec(1), 1)
    victim = sick(world, detector)
    if detector is Detector.DEAD:
        victim.ready, victim.started_at = False, None
    world.until(ended(world), 3000)
    assert victim.uid not in world.pods
    assert last(world).outcome == "Cured"


def test_a_stall_in_a_pool_of_one_is_not_withdrawn_before_it_is_removed() -> None:
    world = running_world(spec(1), ROOM)
    victim = sick(world, Detector.STALLED)
    world.run(290)
    assert victim.in_rotation
    assert not world.taken


def test_a_pool_of_one_whose_replacement_never_starts_keeps_its_victim_and_says_so() -> None:
    world = running_world(spec(1), ROOM)
    victim = sick(world)

    def broken(pod: Pod) -> None:
        pod.never_starts = "CrashLoopBackOff"

    world.on_start = broken
    world.run(7200, every=60)
    assert victim.in_rotation
    assert "stays in rotation" in only(world).message


# crashes ---------------------------------------------------------------------------------------------------------


def test_a_withdrawn_victim_is_given_back_though_the_operator_died_right_after_the_cancel() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.run(60)
    victim.faults.clear()
    plan = world.step(crash="act")
    assert Restore in map(type, plan.actions)
    assert not victim.in_rotation
    world.run(30)
    assert victim.in_rotation
    assert not world.status.remediations.active


def test_a_restore_that_the_server_refuses_is_tried_until_it_is_done() -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.run(60)
    victim.faults.clear()
    world.allows = lambda action: not isinstance(action, Restore)
    world.run(120)
    world.allows = lambda action: True
    world.run(30)
    assert victim.in_rotation
    assert not world.status.remediations.active


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


@pytest.mark.parametrize(
    ("change", "gate"),
    [
        ({"pauseRequests": ["audit"]}, "paused"),
        ({"mode": "Observe"}, "mode"),
        ({"mode": "Recommend"}, "approval"),
    ],
)
def test_a_victim_that_serves_is_given_back_where_only_a_person_can_let_it_be_removed(
    change: dict[str, object], gate: str
) -> None:
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    world.run(100)
    world.spec["healing"] = change
    world.run(600, every=10)
    assert victim.in_rotation
    assert taken(world) == ["Withdraw", "Restore"]
    assert world.gates() == {victim.name: gate}


def test_a_victim_that_serves_is_given_back_where_others_fail_and_it_is_needed() -> None:
    world = running_world(spec(3, healing={"storm": {"percent": 100}}), ROOM)
    victim = sick(world)
    world.run(100)
    world.members()[1].ready = False
    world.run(300)
    assert victim.in_rotation
    assert world.gates()[victim.name] == "minHealthy"


def test_pools_are_healed_independently() -> None:
    world = running_world(spec(pools=pools(short=4, long=4)), 100)
    first, second = world.members("short")[0], world.members("long")[0]
    first.faults[Detector.FRAGMENTED] = second.faults[Detector.FRAGMENTED] = world.now - 400
    plan: Plan = world.step()
    assert kinds(plan.actions).count("Withdraw") == 2
