"""Many sick at once: nothing is removed, then one at a time, and in the end every truly hung one is replaced."""

import itertools
import random

import pytest

from kintsugi.core.finding import Detector
from kintsugi.core.plan import Evict, Release
from kintsugi.core.snapshot import Fleet
from tests.unit.core.decision.made import START, pools, spec
from tests.unit.core.decision.world import Pod, World, running_world


def fall(world: World, count: int, detector: Detector = Detector.STALLED, apart: float = 20.0) -> list[Pod]:
    """`count` pods fall sick one after the other, `apart` seconds between them."""
    victims = world.members()[:count]
    for index, pod in enumerate(victims):
        pod.faults[detector] = world.now + index * apart
    return victims


def removals(world: World) -> list[tuple[float, str]]:
    """When each pod was first released or evicted."""
    found: dict[str, float] = {}
    for when, action in world.taken:
        if isinstance(action, Evict | Release):
            found.setdefault(action.uid, when)
    return sorted((when, uid) for uid, when in found.items())


def storm_states(world: World) -> dict[str, str]:
    return {s.pool: s.state for s in world.status.remediations.storms}


def test_two_of_four_within_299_seconds_are_a_storm() -> None:
    world = running_world(spec(4))
    first, second = world.members()[:2]
    first.faults[Detector.FRAGMENTED] = world.now
    world.step()
    world.now += 294
    second.faults[Detector.FRAGMENTED] = world.now
    world.step()
    assert storm_states(world)["main"] == "Open"
    assert not removals(world)


def test_the_second_one_301_seconds_later_is_none() -> None:
    world = running_world(spec(4))
    first, second = world.members()[:2]
    first.faults[Detector.FRAGMENTED] = world.now
    world.step()
    world.now += 296
    world.step()
    second.faults[Detector.FRAGMENTED] = world.now
    world.step()
    assert storm_states(world) == {}


def test_one_of_two_is_no_storm_and_three_of_ten_are_none() -> None:
    for replicas, count in ((2, 1), (10, 3)):
        world = running_world(spec(replicas))
        for pod in world.members()[:count]:
            pod.faults[Detector.FRAGMENTED] = world.now
        world.step()
        assert storm_states(world) == {}


def test_a_removed_one_still_counts_within_the_window() -> None:
    world = running_world(spec(4))
    first, second = world.members()[:2]
    first.faults[Detector.DEAD] = world.now
    first.ready, first.started_at = False, None
    world.run(60)
    assert first.uid not in world.pods
    second.faults[Detector.DEAD] = world.now
    second.ready, second.started_at = False, None
    world.step()
    assert storm_states(world)["main"] == "Open"


def test_a_storm_closes_after_the_cooldown_once_all_are_well() -> None:
    world = running_world(spec(4))
    victims = fall(world, 2, Detector.FRAGMENTED, apart=0)
    world.run(60)
    assert storm_states(world)["main"] == "Open"
    for pod in victims:
        pod.faults.clear()
    world.run(500, every=20)
    assert storm_states(world)["main"] == "Open"
    world.run(120, every=20)
    assert storm_states(world) == {}
    assert not removals(world)


def test_a_storm_does_not_close_while_one_is_unknown() -> None:
    world = running_world(spec(4))
    victims = fall(world, 2, Detector.FRAGMENTED, apart=0)
    world.run(60)
    victims[0].faults.clear()
    victims[1].faults.clear()
    victims[1].blind = True
    world.run(1500, every=30)
    assert storm_states(world)["main"] == "Open"


def test_a_storm_is_half_open_after_the_trial_time_and_then_takes_one() -> None:
    world = running_world(spec(8))
    fall(world, 4, Detector.FRAGMENTED, apart=0)
    began = world.now
    world.run(1790, every=10)
    assert storm_states(world)["main"] == "Open"
    assert not removals(world)
    world.run(60, every=10)
    assert storm_states(world)["main"] == "HalfOpen"
    world.run(600, every=10)
    (trial,) = removals(world)
    assert trial[0] - began >= 1800


def test_a_new_one_during_half_open_opens_it_again() -> None:
    world = running_world(spec(8))
    fall(world, 4, Detector.FRAGMENTED, apart=0)
    world.run(1860, every=30)
    assert storm_states(world)["main"] == "HalfOpen"
    world.members()[6].faults[Detector.FRAGMENTED] = world.now
    world.run(10)
    assert storm_states(world)["main"] == "Open"


def test_the_same_instance_that_falls_again_keeps_a_storm_from_its_trial() -> None:
    world = running_world(spec(4))
    victims = fall(world, 2, Detector.FRAGMENTED, apart=0)
    world.run(60)
    for _ in range(6):
        for pod in victims:
            pod.faults.clear()
        world.run(200, every=20)
        for pod in victims:
            pod.faults[Detector.FRAGMENTED] = world.now
        world.run(200, every=20)
    assert storm_states(world)["main"] == "Open"
    assert not removals(world)


def test_a_storm_over_all_of_the_operators_instances_holds_a_pool_that_has_none() -> None:
    world = running_world(spec(4))
    world.fleet = Fleet(instances=10, newly_sick=4, actions_last_hour=0)
    victim = world.members()[0]
    victim.faults[Detector.FRAGMENTED] = world.now
    world.run(600, every=20)
    assert storm_states(world) == {"": "Open"}
    assert world.gates() == {victim.name: "storm"}
    assert not removals(world)


def test_a_half_open_storm_over_all_pools_tries_one_in_all_of_them() -> None:
    world = running_world(spec(pools=pools(short=4, long=4)))
    world.fleet = Fleet(instances=8, newly_sick=0, actions_last_hour=0)
    for name in ("short", "long"):
        for pod in world.members(name)[:2]:
            pod.faults[Detector.FRAGMENTED] = world.now
    world.run(1860, every=30)
    assert set(storm_states(world).values()) == {"HalfOpen"}
    world.run(900, every=10)
    assert len(removals(world)) == 1


@pytest.mark.parametrize(("hung", "size"), [(2, 2), (2, 3), (2, 4), (3, 4), (3, 8), (5, 8)])
@pytest.mark.parametrize("gpus", [100, 0], ids=["room", "noroom"])
def test_k_of_n_truly_hung_are_all_replaced_one_after_the_other(hung: int, size: int, gpus: int) -> None:
    """`reference/detection-hang-leak-error.md` §5: within 59, 60, 60, 88, 87 and 146 minutes there."""
    world = running_world(spec(size), gpus or size, starts_in=300.0)
    victims = {pod.uid for pod in fall(world, hung)}
    world.until(lambda: not victims & set(world.pods), 5 * 3600, every=20)
    world.until(lambda: not world.status.remediations.active, 5 * 3600, every=20)
    gone = removals(world)
    assert {uid for _, uid in gone} == victims
    for (earlier, _), (later, _) in itertools.pairwise(gone):
        assert later - earlier >= 600, "the next only after the last one was cured"
    assert gone[0][0] - START >= 1800
    assert (len(world.members()), world.view().serving()) == (size, size)
    assert [r.outcome for r in world.status.remediations.recent] == ["Cured"] * hung


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("seed", range(6))
def test_a_shared_false_cause_that_heals_costs_few_removals(size: int, seed: int) -> None:
    """70 % fall within a minute and are well again 5 to 30 minutes later."""
    chance = random.Random(f"{size}-{seed}")
    world = running_world(spec(size), 100)
    count = max(2, round(0.7 * size))
    victims = world.members()[:count]
    heals = world.now + chance.uniform(300, 1750)
    for pod in victims:
        pod.faults[Detector.STALLED] = world.now + chance.uniform(0, 60)

    def heal(w: World) -> None:
        if w.now >= heals:
            for pod in victims:
                pod.faults.clear()

    world.on_tick = heal
    world.run(3600, every=10)
    assert len(removals(world)) <= (1 if size == 2 else 0)
    assert all(pod.in_rotation for pod in world.members())


def test_a_bad_revision_costs_one_removal_and_then_stops() -> None:
    """Every pod of this revision falls sick some ten minutes after its start, the replacements too."""
    world = running_world(spec(8), 100)

    def fall_in_time(w: World) -> None:
        for pod in w.pods.values():
            due = ripe.get(pod.uid)
            if due is not None and w.now >= due:
                pod.faults[Detector.FRAGMENTED] = due

    ripe: dict[str, float] = {pod.uid: world.now + 1000.0 * i for i, pod in enumerate(world.members())}
    world.on_start = lambda pod: ripe.update({pod.uid: world.now + 700})
    world.on_tick = fall_in_time
    world.run(4 * 3600, every=20)
    assert len(removals(world)) == 1
    assert world.status.remediations.breakers[0].reason == "NotCured"
    condition = next(c for c in world.status.conditions if c.type == "HealingAllowed")
    assert (condition.status, condition.reason) == ("False", "BreakerOpen")
