"""Rollouts: one pod at a time, stopped by the first that does not come up, and back again."""

import pytest

from kintsugi.core.finding import Detector
from kintsugi.core.plan import Delete
from tests.unit.core.decision.made import spec
from tests.unit.core.decision.rolling import image, lowest, revisions, rolled, serving, wanted
from tests.unit.core.decision.watching import NO_ROOM, ROOM, taken
from tests.unit.core.decision.world import Pod, running_world


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


def test_a_surge_whose_room_was_taken_goes_on_by_deleting_first() -> None:
    """Absence of a spare GPU alone is never a reason to stand still (design §9)."""
    world = running_world(spec(3), gpus=4)
    image(world, "engine:2")
    world.until(lambda: len(world.sets) == 2, 30)
    for pod in world.members():
        if pod.revision == wanted(world):
            pod.node, pod.started_at = "", None
    world.gpus = 3
    assert lowest(world, 3000) >= 2


def test_a_surge_that_the_user_insists_on_waits_for_room_and_says_so() -> None:
    world = running_world(spec(3, rollout={"strategy": "Surge"}), gpus=3)
    image(world, "engine:2")
    world.run(1200, every=20)
    assert serving(world) == 3
    assert "(not scheduled)" in world.status.rollouts[0].message
    world.gpus = 4
    assert lowest(world, 3000) >= 3


def test_a_new_pod_over_its_start_budget_stops_the_rollout() -> None:
    world = running_world(spec(3, engine={"startBudgetSeconds": 600}), ROOM)
    world.starts_in = float("inf")
    world.spec["engine"] = {"startBudgetSeconds": 600, "image": "engine:2"}
    world.run(900, every=20)
    assert world.status.rollouts[0].state == "Stalled"
    assert "within 600 s" in world.status.rollouts[0].message
    assert serving(world) == 3
