"""A pool of one: its victim serves until another does, and a person is asked where none can."""

import pytest

from kintsugi.core.finding import Detector
from tests.unit.core.decision.made import spec
from tests.unit.core.decision.watching import ROOM, ended, last, only, sick, taken
from tests.unit.core.decision.world import Pod, running_world


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
