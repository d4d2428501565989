"""First start, scaling and rollouts: one pod at a time, never two, never for ever."""

import pytest

from kintsugi.core.finding import Detector
from kintsugi.core.names import RETIRING_SINCE_ANNOTATION
from kintsugi.core.plan import Create, Delete, Retire, Scale, Unretire
from tests.unit.core.decision.made import MODEL, pools, spec
from tests.unit.core.decision.world import Pod, World, kinds, running_world

ROOM, NO_ROOM = 100, 4


def image(world: World, name: str) -> None:
    """Another engine image: a new revision."""
    world.spec["engine"] = {"image": name}
    world.generation += 1


def scale(world: World, replicas: int) -> None:
    world.spec["pools"] = pools(main=replicas)
    world.generation += 1


def revisions(world: World) -> dict[str, int]:
    """Revision → its pods that are not ending."""
    found: dict[str, int] = {}
    for pod in world.members():
        found[pod.revision] = found.get(pod.revision, 0) + 1
    return found


def wanted(world: World) -> str:
    return world.view().revision


def rolled(world: World) -> bool:
    done = list(revisions(world)) == [wanted(world)] and len(world.sets) == 1
    return done and serving(world) >= world.view().wanted


def serving(world: World) -> int:
    return world.view().serving()


def lowest(world: World, within: float, every: float = 5.0) -> int:
    """Passes until the rollout is over; the fewest that served meanwhile."""
    least, began = serving(world), world.now
    while not rolled(world):
        assert world.now - began < within, world.tell()
        world.step(every)
        least = min(least, serving(world))
    return least


def taken(world: World) -> list[str]:
    return kinds(action for _, action in world.taken)


def test_a_first_start_makes_every_replica_at_once() -> None:
    world = World(spec(3))
    plan = world.step()
    (made,) = [a for a in plan.actions if isinstance(a, Create)]
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


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_a_rollout_with_room_surges_and_never_has_fewer_than_all_serving(replicas: int) -> None:
    world = running_world(spec(replicas), ROOM)
    image(world, "engine:2")
    world.step()
    assert lowest(world, 3000) >= replicas
    assert serving(world) == replicas
    assert world.status.rollouts[0].state == "Done"


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_a_rollout_without_room_deletes_first_and_never_has_two_out(replicas: int) -> None:
    world = running_world(spec(replicas), replicas)
    image(world, "engine:2")
    world.step()
    assert lowest(world, 3000) >= replicas - 1
    assert serving(world) == replicas


def test_a_rollout_of_a_pool_of_one_goes_through_with_and_without_room() -> None:
    for gpus in (1, 2):
        world = running_world(spec(1), gpus)
        image(world, "engine:2")
        world.step()
        least = lowest(world, 3000)
        assert least == gpus - 1


def test_a_rollout_stops_at_the_first_pod_that_does_not_come_up_and_the_old_serve_on() -> None:
    world = running_world(spec(4), ROOM)

    def broken(pod: Pod) -> None:
        pod.never_starts = "CrashLoopBackOff"

    world.on_start = broken
    image(world, "engine:broken")
    world.run(7200, every=60)
    assert revisions(world)[wanted(world)] == 1
    assert serving(world) == 4
    assert world.status.rollouts[0].state == "Stalled"
    progressing = next(c for c in world.status.conditions if c.type == "Progressing")
    assert (progressing.status, progressing.reason) == ("False", "RolloutStalled")


def test_a_rollout_stops_at_a_new_pod_that_is_sick_though_it_is_not_ready() -> None:
    world = running_world(spec(4), ROOM)
    image(world, "engine:2")
    world.until(lambda: len(world.sets) == 2, 60)
    new = next(p for p in world.members() if p.revision == wanted(world))
    world.until(lambda: new.ready_at is not None, 300)
    new.faults[Detector.DEAD], new.ready = world.now, False
    world.run(600, every=30)
    assert world.status.rollouts[0].state == "Stalled"
    assert revisions(world)[wanted(world)] <= 2


@pytest.mark.parametrize("gpus", [ROOM, NO_ROOM])
def test_a_rollout_that_is_reverted_midway_goes_back(gpus: int) -> None:
    world = running_world(spec(4), gpus)
    before = wanted(world)
    image(world, "engine:2")
    world.until(lambda: revisions(world).get(wanted(world), 0) >= 2, 3000)
    world.spec.pop("engine")
    world.step()
    assert wanted(world) == before
    assert lowest(world, 3000) >= 3
    assert serving(world) == 4


@pytest.mark.parametrize("gpus", [ROOM, NO_ROOM])
def test_a_broken_rollout_that_is_reverted_goes_back(gpus: int) -> None:
    world = running_world(spec(4), gpus)

    def broken(pod: Pod) -> None:
        pod.never_starts = "ImagePullBackOff"

    world.on_start = broken
    image(world, "engine:broken")
    world.run(600, every=10)
    world.on_start = lambda pod: None
    world.spec.pop("engine")
    assert lowest(world, 3000) >= 3


@pytest.mark.parametrize("gpus", [ROOM, NO_ROOM])
def test_a_broken_rollout_that_is_corrected_goes_forward(gpus: int) -> None:
    world = running_world(spec(4), gpus)

    def broken(pod: Pod) -> None:
        pod.never_starts = "CrashLoopBackOff"

    world.on_start = broken
    image(world, "engine:broken")
    world.run(600, every=10)
    world.on_start = lambda pod: None
    image(world, "engine:mended")
    assert lowest(world, 3000) >= 3
    assert serving(world) == 4


def test_a_revert_while_an_old_pod_is_withdrawn_puts_that_pod_back() -> None:
    world = running_world(spec(4), NO_ROOM)
    for pod in world.members():
        pod.running = 5.0
    image(world, "engine:2")
    world.until(lambda: "Retire" in taken(world), 60)
    world.until(lambda: revisions(world).get(wanted(world), 0) == 1, 900)
    world.until(lambda: taken(world).count("Retire") == 2, 900)
    world.spec.pop("engine")
    world.run(30)
    assert "Unretire" in taken(world)
    for pod in world.members():
        pod.running = 0.0
    assert lowest(world, 3000) >= 3


def test_a_rollout_replaces_sick_old_pods_even_where_more_are_out_than_it_may_take() -> None:
    """Two of four are sick and a new version is the cure: taking a sick one away makes nothing worse."""
    world = running_world(spec(4, healing={"mode": "Observe"}), NO_ROOM)
    for pod in world.members()[:2]:
        pod.faults[Detector.FRAGMENTED] = world.now
    world.run(10)
    image(world, "engine:2")
    world.until(lambda: rolled(world), 3000)


def test_a_rollout_never_takes_the_pool_below_its_minimum_whatever_max_unavailable_says() -> None:
    world = running_world(spec(4, rollout={"maxUnavailable": 4}), NO_ROOM)
    for pod in world.members()[:2]:
        pod.in_rotation = False
    image(world, "engine:2")
    least = lowest(world, 6000)
    assert least >= 2


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


def test_an_operator_that_crashes_at_any_point_of_a_rollout_never_has_two_out() -> None:
    world = running_world(spec(4), NO_ROOM)
    image(world, "engine:2")
    world.step()
    crashes = ["commit", "act", "half", "record", ""]
    least, passes = 4, 0
    while not rolled(world):
        passes += 1
        assert passes < 3000, world.tell()
        world.step(crash=crashes[passes % 5])
        least = min(least, serving(world))
    assert least >= 3


def test_spent_sets_of_old_revisions_are_deleted() -> None:
    world = running_world(spec(2), ROOM)
    image(world, "engine:2")
    world.step()
    lowest(world, 3000)
    assert any(isinstance(a, Delete) and a.kind == "ReplicaSet" for _, a in world.taken)
    assert len(world.sets) == 1


def test_a_change_that_concerns_no_engine_moves_no_pod() -> None:
    world = running_world(spec(2), ROOM)
    world.spec["healing"] = {"drain": {"timeoutSeconds": 60}}
    world.spec["model"] = MODEL
    world.generation += 1
    plan = world.step()
    assert not [a for a in plan.actions if isinstance(a, Create | Scale | Retire | Unretire)]
