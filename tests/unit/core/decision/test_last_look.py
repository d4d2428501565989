"""Just before a pod is touched: what has changed since the pass began can still stop it."""

from typing import Any

import pytest

from kintsugi.api.status import ActiveRemediation
from kintsugi.core.finding import Detector
from kintsugi.core.live import needs_a_last_look, reason_to_refrain
from kintsugi.core.plan import Action, Ask, Evict, Release, Restore, Retire, Scale, Withdraw
from tests.unit.core.decision.made import spec
from tests.unit.core.decision.world import Pod, World, running_world


def draining(world: World, gpus: int) -> tuple[Pod, ActiveRemediation]:
    """A victim whose removal has been decided: by surge with room, else by deleting first."""
    world.gpus = gpus
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    victim.running = 5.0
    world.until(lambda: any(a.phase == "Draining" for a in world.active()), 600)
    return victim, world.active()[0]


def look(world: World, action: Action, active: ActiveRemediation | None, **more: Any) -> str | None:
    return reason_to_refrain(action, active, world.view(), 50, world.times)


@pytest.mark.parametrize(
    ("action", "looks"),
    [
        (Withdraw("p", "u", "a"), True),
        (Release("p", "u", "a"), True),
        (Evict("p", "u", "a", None), True),
        (Restore("p", "u", "a"), False),
        (Retire("p", "u", "s"), False),
        (Scale("s", 1, "1"), False),
        (Ask("u"), False),
    ],
)
def test_what_takes_something_from_a_pool_is_looked_at_again(action: Action, looks: bool) -> None:
    assert needs_a_last_look(action) is looks


def test_nothing_is_touched_without_a_reservation() -> None:
    world = running_world(spec(4))
    pod = world.members()[0]
    assert look(world, Withdraw(pod.name, pod.uid, "x-1"), None) == "no reservation stands for it"


def test_a_pod_that_is_gone_is_left_alone() -> None:
    world = running_world(spec(4))
    victim, active = draining(world, 100)
    del world.pods[victim.uid]
    assert look(world, Evict(victim.name, victim.uid, active.id, None), active) == "the pod is gone"


def test_a_released_victim_is_evicted_whatever_happens_to_the_others() -> None:
    world = running_world(spec(4))
    victim, active = draining(world, 100)
    for pod in world.members():
        pod.ready = False
    assert not victim.member
    assert look(world, Evict(victim.name, victim.uid, active.id, None), active) is None


def test_a_victim_whose_release_did_not_happen_is_not_evicted_as_if_it_had() -> None:
    world = running_world(spec(4))
    victim, active = draining(world, 100)
    victim.member = True
    assert "still a member" in (look(world, Evict(victim.name, victim.uid, active.id, None), active) or "")


@pytest.mark.parametrize(("down", "refrains"), [(1, False), (2, True), (3, True)])
def test_a_member_is_not_evicted_where_too_few_serve_at_this_moment(down: int, refrains: bool) -> None:
    world = running_world(spec(4), gpus=4)
    victim, active = draining(world, 4)
    for pod in world.members()[1 : down + 1]:
        pod.ready = False
    why = look(world, Evict(victim.name, victim.uid, active.id, None), active)
    assert (why is not None) is refrains
    if why:
        assert "serve without it at this moment" in why
