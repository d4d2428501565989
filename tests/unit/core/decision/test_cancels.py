"""Every way in which an attempt is called off, and the victim given back."""

import pytest

from kintsugi.core.finding import Detector
from kintsugi.core.plan import Evict, Release, Restore
from tests.unit.core.decision.made import spec
from tests.unit.core.decision.watching import NO_ROOM, ROOM, ended, last, only, phase, sick, taken
from tests.unit.core.decision.world import Pod, World, running_world


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


def draining(world: World) -> Pod:
    """A victim of a delete-first removal that still has requests."""
    victim = sick(world)
    victim.running = 2.0
    world.until(lambda: phase(world) == "Draining", 600)
    return victim


def test_a_process_that_was_restarted_while_it_drained_is_given_back() -> None:
    world = running_world(spec(4), NO_ROOM)
    victim = draining(world)
    victim.started_at = world.now
    world.until(ended(world), 60)
    assert victim.in_rotation
    assert "Evict" not in taken(world)


def test_a_storm_that_opens_while_a_member_drains_puts_it_back() -> None:
    world = running_world(spec(4), NO_ROOM)
    victim = draining(world)
    for pod in world.members()[1:3]:
        pod.faults[Detector.FRAGMENTED] = world.now
    world.run(15)
    assert victim.in_rotation
    assert "Evict" not in taken(world)


def test_a_released_victim_goes_whatever_storm_opens() -> None:
    """The release was the decision, and its replacement is there."""
    world = running_world(spec(4), ROOM)
    victim = sick(world)
    victim.running = 2.0
    world.until(lambda: not victim.member, 600)
    for pod in world.members()[:2]:
        pod.faults[Detector.FRAGMENTED] = world.now
    world.run(15)
    victim.running = 0.0
    world.until(lambda: "Evict" in taken(world), 60)


def test_a_refused_eviction_is_called_off_where_the_victim_recovers() -> None:
    world = running_world(spec(4), NO_ROOM)
    victim = draining(world)
    victim.running = 0.0
    world.allows = lambda action: not isinstance(action, Evict)
    world.run(60)
    victim.faults.clear()
    world.allows = lambda action: True
    world.until(ended(world), 60)
    assert victim.in_rotation
    assert "Evict" not in taken(world)


def test_a_short_hold_does_not_shorten_the_removal_time_of_a_stall() -> None:
    world = running_world(spec(4, healing={"storm": {"holdSeconds": 30}}), ROOM)
    victim = sick(world, Detector.STALLED)
    world.run(280)
    assert world.gates() == {victim.name: "removalTime"}
    assert victim.member
