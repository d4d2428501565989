"""Many sick at once: a shared cause is likely, so nothing is removed, and healing goes on by itself (S26)."""

import itertools

import pytest

from tests.scenarios.stage import Scene, warm


def sicken(scene: Scene, names: list[str], sickness: str) -> None:
    for name in names:
        scene.engines.change(
            name, **({"fragmentation": 0.4} if sickness == "fragmentation" else {"hung": True})
        )


@pytest.mark.parametrize("sickness", ["fragmentation", "stall"])
async def test_three_of_three_sick_at_once_are_all_kept_and_the_condition_says_why(sickness: str) -> None:
    scene = await warm({"short": 3})
    names = scene.names_of("short")
    sicken(scene, names, sickness)
    await scene.run(1500)
    assert scene.removals() == []
    assert scene.condition("HealingAllowed") == ("False", "Storm")
    assert scene.withheld() == dict.fromkeys(names, "storm")
    assert scene.told("HealingWithheld") >= 1
    if sickness == "fragmentation":
        assert scene.serving() == 3, "what still serves goes on serving"


async def test_a_storm_in_which_one_was_already_replaced_begins_no_attempt_over_and_over() -> None:
    """An instance whose ladder is at its end would be given up: that, too, waits for the end of the storm."""
    scene = await warm({"short": 3}, nodes=4, healing={"ladder": ["Recreate"]})
    scene.engines.change(scene.names_of("short")[0], fragmentation=0.4)
    await scene.until_removed()
    await scene.until_done()
    await scene.run(1800)
    names = scene.names_of("short")
    sicken(scene, names, "fragmentation")
    await scene.run(1500)
    assert scene.condition("HealingAllowed") == ("False", "Storm")
    assert scene.withheld() == dict.fromkeys(names, "storm")
    assert len(scene.removals()) == 1
    assert scene.outcomes().count("Cancelled") <= 1
    assert scene.serving() == 3


async def test_a_storm_ends_by_itself_once_all_are_well_and_healing_goes_on() -> None:
    scene = await warm({"short": 3})
    names = scene.names_of("short")
    sicken(scene, names, "fragmentation")
    await scene.run(900)
    for name in names:
        scene.engines.change(name, fragmentation=0.05)
    await scene.run(1500)
    assert scene.condition("HealingAllowed") == ("True", "Ready")
    assert scene.status.remediations.storms == ()
    assert (scene.removals(), scene.serving()) == ([], 3)
    scene.engines.change(names[0], fragmentation=0.4)
    await scene.until_removed()
    assert scene.removals() == [names[0]]


async def test_a_second_one_falling_sick_during_the_hold_puts_the_first_back() -> None:
    scene = await warm({"short": 4}, nodes=5)
    first, second, *_ = scene.names_of("short")
    sicken(scene, [first], "fragmentation")
    await scene.run(100)
    sicken(scene, [second], "fragmentation")
    await scene.until_withdrawn(first)
    await scene.run(240)
    assert scene.rotation(first) == "in"
    assert scene.outcomes() == ["Cancelled"]
    assert scene.removals() == []
    assert scene.serving() == 4


async def test_a_stalled_victim_stays_out_in_a_storm_until_it_steps_again() -> None:
    scene = await warm({"short": 4}, nodes=5)
    first, second, *_ = scene.names_of("short")
    sicken(scene, [first], "stall")
    await scene.run(120)
    sicken(scene, [second], "stall")
    await scene.run(600)
    assert scene.removals() == []
    assert scene.rotation(first) == "out"
    assert scene.condition("HealingAllowed") == ("False", "Storm")
    for name in (first, second):
        scene.engines.change(name, hung=False)
    await scene.run(120)
    assert {scene.rotation(first), scene.rotation(second)} == {"in"}
    assert scene.removals() == []


async def test_a_second_one_falling_sick_after_the_window_is_no_storm() -> None:
    scene = await warm({"short": 4}, nodes=5)
    first, second, *_ = scene.names_of("short")
    sicken(scene, [first], "fragmentation")
    await scene.run(420)
    sicken(scene, [second], "fragmentation")
    await scene.run(900)
    assert scene.status.remediations.storms == ()
    assert scene.removals() == [first]


async def test_one_sick_in_each_of_two_pools_at_once_is_a_storm_over_all_instances() -> None:
    scene = await warm({"short": 3, "long": 3}, nodes=7)
    sicken(scene, [scene.names_of("short")[0], scene.names_of("long")[0]], "fragmentation")
    await scene.run(1200)
    assert scene.removals() == []
    assert [storm.pool for storm in scene.status.remediations.storms] == [""]
    assert scene.condition("HealingAllowed") == ("False", "Storm")


async def test_six_of_six_sick_in_the_same_second_lose_no_pod_in_two_hours() -> None:
    scene = await warm({"short": 6}, nodes=7, pace=30)
    sicken(scene, scene.names_of("short"), "fragmentation")
    await scene.run(7200)
    assert scene.removals() == []
    assert scene.serving() == 6
    assert set(scene.withheld()) == set(scene.names_of("short")), "every one of them has a reason"


@pytest.mark.parametrize(("hung", "of", "spare"), [(2, 4, 1)])
async def test_truly_hung_instances_are_replaced_one_after_the_other(hung: int, of: int, spare: int) -> None:
    scene = await warm({"short": of}, nodes=of + spare, seconds=660)
    victims = scene.names_of("short")[:hung]
    sicken(scene, victims, "stall")
    began = scene.cluster.clock.mono()
    await scene.run(1700)
    assert scene.removals() == [], "a storm keeps all of them for half an hour"
    at: list[float] = []
    for count in range(1, hung + 1):
        await scene.until_removed(count, within=3 * 3600 - (scene.cluster.clock.mono() - began))
        at.append(scene.cluster.clock.mono())
    assert sorted(scene.removals()) == sorted(victims)
    assert all(later - earlier > 1200 for earlier, later in itertools.pairwise(at)), "one at a time"
    await scene.run(2400)
    assert scene.serving() == of
    assert scene.outcomes().count("Cured") == hung
    assert scene.condition("HealingAllowed") == ("True", "Ready")
