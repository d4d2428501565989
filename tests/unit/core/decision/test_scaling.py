"""First start, scaling and removed pools: one pod at a time, never two, never for ever."""

import pytest

from kintsugi.core.finding import Detector
from kintsugi.core.names import RETIRING_SINCE_ANNOTATION
from kintsugi.core.plan import Create, Retire, Scale, Unretire
from tests.unit.core.decision.made import MODEL, pools, spec
from tests.unit.core.decision.rolling import scale, serving
from tests.unit.core.decision.watching import ROOM, taken
from tests.unit.core.decision.world import World, kinds, running_world


def test_a_first_start_makes_every_replica_at_once() -> None:
    world = World(spec(3))
    plan = world.step()
    (made,) = [a for a in plan.actions if isinstance(a, Create) and a.manifest["kind"] == "ReplicaSet"]
    assert made.manifest["spec"]["replicas"] == 3
    world.until(lambda: serving(world) == 3, 300)
    assert kinds(world.step().actions) == []
    assert world.status.ready == "3/3"


def test_a_first_start_of_two_pools_makes_two_sets_with_their_own_names() -> None:
    world = World(spec(pools=pools(short=2, long=1)))
    world.step()
    assert {s.pool: s.wanted for s in world.sets.values()} == {"short": 2, "long": 1}
    assert len(world.sets) == 2


def test_scaling_up_is_one_write() -> None:
    world = running_world(spec(2), ROOM)
    scale(world, 5)
    world.step()
    assert taken(world) == ["Scale"]
    world.until(lambda: serving(world) == 5, 300)


def test_scaling_down_withdraws_one_waits_until_it_is_drained_and_lowers_by_one() -> None:
    world = running_world(spec(4), ROOM)
    for pod in world.members():
        pod.running = 5.0
    scale(world, 3)
    world.run(60)
    (victim,) = [p for p in world.members() if RETIRING_SINCE_ANNOTATION in p.annotations]
    assert not victim.in_rotation
    assert len(world.members()) == 4
    victim.running = 0.0
    world.run(15)
    assert victim.uid not in {p.uid for p in world.members()}
    assert taken(world) == ["Retire", "Scale"]


def test_scaling_down_has_a_deadline_for_its_drain() -> None:
    world = running_world(spec(4), ROOM)
    for pod in world.members():
        pod.running = 5.0
    scale(world, 3)
    took = world.until(lambda: len(world.members()) == 3, 600)
    assert took == pytest.approx(world.times.drain_timeout, abs=15)


def test_a_slow_replica_set_controller_does_not_make_a_scale_down_take_two() -> None:
    """The count is lowered, and the controller has not acted yet: neither another step down nor a put-back."""
    world = running_world(spec(4), ROOM)
    scale(world, 3)
    world.until(lambda: "Scale" in taken(world), 60)
    victim = next(p for p in world.pods.values() if RETIRING_SINCE_ANNOTATION in p.annotations)
    victim.gone_at = None  # as if Kubernetes had not come to it
    world.kubernetes = lambda: None  # type: ignore[method-assign]
    world.run(60)
    assert taken(world) == ["Retire", "Scale"]
    assert not victim.in_rotation


def test_a_slow_replica_set_controller_does_not_make_a_deep_scale_down_take_two_at_once() -> None:
    world = running_world(spec(6), ROOM)
    scale(world, 2)
    world.until(lambda: "Scale" in taken(world), 60)
    victim = next(p for p in world.pods.values() if RETIRING_SINCE_ANNOTATION in p.annotations)
    victim.gone_at = None
    world.kubernetes = lambda: None  # type: ignore[method-assign]
    world.run(120)
    assert taken(world) == ["Retire", "Scale"]


def test_scaling_to_zero_ends_all() -> None:
    world = running_world(spec(3), ROOM)
    scale(world, 0)
    world.until(lambda: not world.members(), 600)
    world.run(30)
    assert not world.step().actions


def test_a_scale_down_that_is_taken_back_puts_the_pod_back() -> None:
    world = running_world(spec(4), ROOM)
    for pod in world.members():
        pod.running = 5.0
    scale(world, 3)
    world.run(30)
    scale(world, 4)
    world.run(10)
    assert all(p.in_rotation for p in world.members())
    assert "Scale" not in taken(world)
    assert not any(RETIRING_SINCE_ANNOTATION in p.annotations for p in world.members())


def test_an_unreadable_time_of_withdrawal_starts_the_drain_again() -> None:
    world = running_world(spec(4), ROOM)
    for pod in world.members():
        pod.running = 5.0
    scale(world, 3)
    world.run(10)
    victim = next(p for p in world.members() if RETIRING_SINCE_ANNOTATION in p.annotations)
    victim.annotations[RETIRING_SINCE_ANNOTATION] = "yesterday"
    world.run(10)
    assert taken(world) == ["Retire", "Retire"]
    assert len(world.members()) == 4


def test_a_retired_pod_that_somebody_put_back_in_rotation_is_withdrawn_again_before_it_goes() -> None:
    world = running_world(spec(4), ROOM)
    for pod in world.members():
        pod.running = 5.0
    scale(world, 3)
    world.run(60)
    victim = next(p for p in world.members() if RETIRING_SINCE_ANNOTATION in p.annotations)
    victim.in_rotation = True
    plan = world.step()
    assert kinds(plan.actions) == ["Retire"]
    assert not victim.in_rotation


def test_the_sick_one_goes_first_in_a_scale_down() -> None:
    world = running_world(spec(4, healing={"mode": "Observe"}), ROOM)
    victim = world.members()[2]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.run(10)
    scale(world, 3)
    world.until(lambda: len(world.members()) == 3, 100)
    assert victim.uid not in {p.uid for p in world.members()}


def test_a_withdrawn_pod_is_given_back_where_too_many_others_fail_while_it_drains() -> None:
    world = running_world(spec(4), ROOM)
    for pod in world.members():
        pod.running = 5.0
    scale(world, 3)
    world.run(30)
    victim = next(p for p in world.members() if RETIRING_SINCE_ANNOTATION in p.annotations)
    others = [p for p in world.members() if p is not victim]
    for pod in others[:2]:
        pod.ready, pod.faults[Detector.DEAD] = False, world.now
    for pod in world.members():
        pod.running = 0.0
    plan = world.step()
    assert Scale not in map(type, plan.actions) or serving(world) >= 1
    assert victim.in_rotation or victim.uid in {p.uid for p in world.alive()}


def test_a_pool_that_the_spec_names_no_more_is_drained_one_by_one_and_its_children_go() -> None:
    world = running_world(spec(pools=pools(short=2, long=2)), ROOM)
    for pod in world.members("long"):
        pod.running = 3.0
    world.spec["pools"] = pools(short=2)
    world.generation += 1
    world.run(30)
    assert len(world.members("long")) == 2
    for pod in world.members("long"):
        pod.running = 0.0
    world.until(lambda: not world.pods or not world.members("long"), 900)
    world.run(60)
    assert {s.pool for s in world.sets.values()} == {"short"}
    assert {name for _, name in world.children} == {"chat-short"}
    assert len(world.members("short")) == 2


def test_nothing_is_made_removed_or_scaled_while_the_spec_is_not_accepted() -> None:
    world = running_world(spec(4), ROOM)
    world.spec["model"] = {"id": "someone/unknown-model"}
    world.spec.pop("hardware")
    plan = world.step()
    assert not plan.actions
    assert next(c for c in plan.status.conditions if c.type == "SpecAccepted").status == "False"
    world.run(600, every=30)
    assert not world.taken
    assert serving(world) == 4


def test_a_change_that_concerns_no_engine_moves_no_pod() -> None:
    world = running_world(spec(2), ROOM)
    world.spec["healing"] = {"drain": {"timeoutSeconds": 60}}
    world.spec["model"] = MODEL
    world.generation += 1
    plan = world.step()
    assert not [a for a in plan.actions if isinstance(a, Create | Scale | Retire | Unretire)]
