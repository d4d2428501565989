"""A rollout or a scale-down and a remediation in the same pool: neither waits for the other for ever."""

import pytest

from kintsugi.core.finding import Detector
from tests.unit.core.decision.made import pools, spec
from tests.unit.core.decision.rolling import image, lowest, rolled, scale, serving
from tests.unit.core.decision.watching import NO_ROOM, ROOM, taken
from tests.unit.core.decision.world import Pod, running_world


def test_a_pool_that_is_removed_during_a_remediation_goes_away_with_its_released_victim() -> None:
    world = running_world(spec(pools=pools(short=2, long=4)), ROOM)
    victim = world.members("long")[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    victim.running = 5.0
    world.until(lambda: not victim.member, 600)
    world.spec["pools"] = pools(short=2)
    world.until(lambda: not world.alive("long"), 2000)
    world.run(60)
    assert not world.status.remediations.active


@pytest.mark.parametrize("phase", ["Quarantined", "Draining", "Replacing", "Warming", "Probation"])
@pytest.mark.parametrize("gpus", [ROOM, NO_ROOM])
def test_a_rollout_that_begins_in_any_phase_of_a_remediation_gets_through(phase: str, gpus: int) -> None:
    world = running_world(spec(4), gpus)
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    victim.running = 2.0
    world.until(lambda: any(a.phase == phase for a in world.active()), 3000)
    victim.running = 0.0
    image(world, "engine:2")
    assert lowest(world, 6000) >= 2
    world.until(lambda: not world.status.remediations.active, 3000)
    assert not world.status.remediations.breakers


@pytest.mark.parametrize("gpus", [ROOM, NO_ROOM])
def test_a_new_revision_gets_through_though_a_replacement_of_the_old_one_stays_pending(gpus: int) -> None:
    """The person's way out of a spec that can't be scheduled is to correct the spec."""
    world = running_world(spec(4), gpus)
    world.members()[0].faults[Detector.FRAGMENTED] = world.now
    world.until(lambda: any(a.phase == "Replacing" for a in world.active()), 900)
    world.starts_in = float("inf")
    world.run(600, every=30)
    world.starts_in = 60.0
    image(world, "engine:2")
    world.until(lambda: rolled(world), 6000)


@pytest.mark.parametrize("gpus", [ROOM, NO_ROOM])
def test_scaling_down_gets_through_though_a_replacement_stays_pending(gpus: int) -> None:
    """No GPU is free for the replacement, and a person gives up one instance."""
    world = running_world(spec(4), gpus)
    world.members()[0].faults[Detector.FRAGMENTED] = world.now
    world.until(lambda: any(a.phase == "Replacing" for a in world.active()), 900)
    world.gpus = 3
    for pod in world.members():
        if pod.ready_at is None:
            pod.node, pod.started_at = "", None
    world.run(600, every=30)
    scale(world, 3)
    world.until(lambda: not world.status.remediations.active, 2000)
    assert (len(world.members()), serving(world)) == (3, 3)
    assert not world.status.remediations.breakers


def test_a_pool_of_one_gets_a_new_revision_though_the_replacement_never_starts() -> None:
    world = running_world(spec(1), ROOM)
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now

    def broken(pod: Pod) -> None:
        pod.never_starts = "CrashLoopBackOff"

    world.on_start = broken
    world.until(lambda: not victim.member, 900)
    world.run(600, every=30)
    world.on_start = lambda pod: None
    image(world, "engine:2")
    world.until(lambda: serving(world) >= 1 and victim.uid not in world.pods, 3000)
    world.until(lambda: not world.status.remediations.active, 3000)


def test_a_stall_during_a_rollout_is_withdrawn_and_the_rollout_removes_it() -> None:
    world = running_world(spec(4), NO_ROOM)
    for pod in world.members():
        pod.running = 1.0
    image(world, "engine:2")
    world.until(lambda: "Retire" in taken(world), 60)
    stalled = next(p for p in world.members() if p.in_rotation)
    stalled.faults[Detector.STALLED] = world.now
    world.until(lambda: not stalled.in_rotation, 200)
    for pod in world.members():
        pod.running = 0.0
    world.until(lambda: rolled(world), 6000)
    assert stalled.uid not in world.pods


def test_a_stall_during_a_stopped_rollout_is_withdrawn_and_says_that_it_waits_for_the_rollout() -> None:
    world = running_world(spec(4), ROOM)

    def broken(pod: Pod) -> None:
        pod.never_starts = "CrashLoopBackOff"

    world.on_start = broken
    image(world, "engine:broken")
    world.run(300, every=10)
    stalled = next(p for p in world.members() if p.in_rotation)
    stalled.faults[Detector.STALLED] = world.now
    world.run(900, every=30)
    assert not stalled.in_rotation
    assert world.gates()[stalled.name] == "rollout"
    assert serving(world) == 3


@pytest.mark.parametrize("change", ["image", "scale"])
def test_a_rollout_and_a_scale_down_wait_while_a_victim_drains(change: str) -> None:
    world = running_world(spec(4), NO_ROOM)
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    victim.running = 2.0
    world.until(lambda: any(a.phase == "Draining" for a in world.active()), 900)
    world.taken.clear()
    if change == "image":
        image(world, "engine:2")
    else:
        scale(world, 3)
    world.run(60)
    assert not taken(world)
    progressing = next(c for c in world.status.conditions if c.type == "Progressing")
    assert "waits for a remediation" in progressing.message
    victim.running = 0.0
    world.until(lambda: not world.status.remediations.active, 3000)
    world.until(lambda: serving(world) == (4 if change == "image" else 3), 3000)
