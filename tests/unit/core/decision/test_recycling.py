"""Growing memory is a planned recycle: one at a time, in no storm, while those that wait for their turn serve."""

from kintsugi.core.finding import Detector, Verdict
from kintsugi.core.plan import Evict, Release
from kintsugi.runtime.fleet import FleetBook
from tests.unit.core.decision.made import spec
from tests.unit.core.decision.watching import ROOM, sick
from tests.unit.core.decision.world import World, running_world


def grow(world: World, count: int) -> None:
    for pod in world.members()[:count]:
        pod.faults[Detector.GROWING] = world.now


def under_way(world: World) -> int:
    return sum(a.outcome is None for a in world.status.remediations.active)


def removed(world: World) -> set[str]:
    return {action.uid for _, action in world.taken if isinstance(action, Release | Evict)}


def serving(world: World) -> int:
    return sum(world.view().serves(i) for i in world.view().instances)


def test_all_four_at_once_are_recycled_one_after_the_other_and_no_storm_opens() -> None:
    world = running_world(spec(4), ROOM)
    growing = {pod.uid for pod in world.members()}
    grow(world, 4)
    most, lowest = 0, 4
    for _ in range(2000):
        world.step()
        most, lowest = max(most, under_way(world)), min(lowest, serving(world))
        assert not world.status.remediations.storms
        if removed(world) == growing and not under_way(world):
            break
    assert removed(world) == growing
    assert (most, lowest) == (1, 3)


def test_those_that_wait_are_sick_and_count_as_serving() -> None:
    world = running_world(spec(4), ROOM)
    grow(world, 4)
    world.step()
    view = world.view()
    assert all(view.verdict(i.uid) is Verdict.SICK for i in view.members)
    assert serving(world) == 3, "all but the one that was withdrawn"
    assert sorted(world.gates().values()) == ["hold", "inFlight", "inFlight", "inFlight"]


def test_in_a_large_pool_too_it_is_one_at_a_time() -> None:
    world = running_world(spec(20), ROOM)
    grow(world, 5)
    for _ in range(100):
        world.step()
        assert under_way(world) <= 1


def test_the_same_pool_may_heal_another_beside_a_recycle_where_its_budget_allows_two() -> None:
    world = running_world(spec(20), ROOM)
    sick(world, Detector.GROWING, 0)
    world.step()
    sick(world, Detector.FRAGMENTED, 1)
    world.step()
    assert under_way(world) == 2


def test_one_that_is_ill_goes_before_one_that_will_be() -> None:
    world = running_world(spec(4), ROOM)
    planned, ill = world.members()[:2]
    planned.faults[Detector.GROWING] = world.now - 600
    ill.faults[Detector.FRAGMENTED] = world.now
    world.step()
    (active,) = world.status.remediations.active
    assert active.uid == ill.uid


def test_a_growing_one_and_a_sick_one_are_no_storm_and_two_sick_ones_are() -> None:
    world = running_world(spec(4), ROOM)
    sick(world, Detector.GROWING, 0)
    sick(world, Detector.FRAGMENTED, 1)
    world.run(60)
    assert not world.status.remediations.storms
    sick(world, Detector.FRAGMENTED, 2)
    world.run(10)
    assert world.status.remediations.storms


def test_a_storm_stops_a_recycle_that_is_not_released_yet() -> None:
    world = running_world(spec(6), ROOM)
    victim = sick(world, Detector.GROWING, 0)
    world.step()
    for index in (1, 2):
        sick(world, Detector.FRAGMENTED, index)
    world.run(400)
    assert victim.uid not in removed(world)


def test_one_that_grows_and_is_ill_besides_counts_like_any_other() -> None:
    world = running_world(spec(4), ROOM)
    for pod in world.members()[:2]:
        pod.faults[Detector.GROWING] = world.now
        pod.faults[Detector.FRAGMENTED] = world.now
    world.run(10)
    assert world.status.remediations.storms
    assert serving(world) == 2


def test_the_storm_over_all_deployments_does_not_count_it_either() -> None:
    def newly_sick(*detectors: Detector) -> int:
        world = running_world(spec(4), ROOM)
        for detector in detectors:
            world.members()[0].faults[detector] = world.now
        world.step()
        book = FleetBook()
        book.note(world.snapshot(), world.status, world.times)
        return book.fleet().newly_sick

    assert newly_sick(Detector.GROWING) == 0
    assert newly_sick(Detector.FRAGMENTED) == 1
    assert newly_sick(Detector.GROWING, Detector.FRAGMENTED) == 1
