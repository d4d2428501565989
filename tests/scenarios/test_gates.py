"""Budgets, modes, pauses and the hard stop: what holds a cure back, said in the status, and what lets it go on."""

from typing import Any

import pytest

from tests.scenarios.stage import LEARNED, STATUS, Scene, warm


async def sick_scene(pool: int = 3, nodes: int = 4, **healing: Any) -> tuple[Scene, str]:
    """A warm fleet in which one instance has just become fragmented."""
    scene = await warm({"short": pool}, nodes=nodes, healing=healing)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    return scene, victim


async def test_below_min_healthy_a_sick_one_that_serves_is_kept() -> None:
    scene = await warm({"short": 4}, nodes=5, healing={"budget": {"minHealthyPercent": 75}})
    victim, down, *_ = scene.names_of("short")
    scene.cluster.set_ready("llm", down, False)
    scene.engines.change(victim, fragmentation=0.4)
    await scene.run(1800)
    assert scene.removals() == []
    assert scene.withheld()[victim] == "minHealthy"
    scene.cluster.set_ready("llm", down, True)
    await scene.until_removed()
    assert scene.removals() == [victim]


async def test_of_two_hung_the_second_waits_though_both_serve_nothing() -> None:
    scene = await warm({"short": 2}, nodes=3, healing={"storm": {"minInstances": 5}})
    first, second = scene.names_of("short")
    scene.engines.change(first, hung=True)
    await scene.run(180)
    scene.engines.change(second, hung=True)
    await scene.run(900)
    assert scene.removals() in ([first], [])
    assert scene.rotation(second) == "in", "min-healthy keeps the last one in rotation"


async def test_one_at_a_time_and_the_next_only_after_the_first_is_verified() -> None:
    scene = await warm({"short": 5}, nodes=6)
    first, second, *_ = scene.names_of("short")
    scene.engines.change(first, fragmentation=0.4)
    await scene.until_withdrawn(first)
    await scene.run(300)
    scene.engines.change(second, fragmentation=0.4)
    await scene.run(800)
    assert scene.removals() == [first]
    assert scene.withheld() == {second: "inFlight"}
    await scene.until_removed(2)
    assert scene.removals() == [first, second]
    assert scene.outcomes()[0] == "Cured"


async def test_two_replacements_in_half_an_hour_are_the_most_that_a_pool_may_have() -> None:
    scene = await warm(
        {"short": 6}, nodes=7, healing={"probationSeconds": 60, "budget": {"maxInFlightPerPool": 3}}
    )
    names = scene.names_of("short")
    at: list[float] = []
    for name in names[:3]:
        scene.cluster.fail_pod("llm", name)
        await scene.run(310)
    for count in (1, 2, 3):
        await scene.until_removed(count)
        at.append(
            next(w.at for w in scene.cluster.writes if w.verb == "evict" and w.name == names[count - 1])
        )
    assert at[1] - at[0] < 1800 <= at[2] - at[0]


async def test_an_hour_has_no_more_replacements_than_max_per_hour_over_all_pools() -> None:
    scene = await warm({"short": 3, "long": 3}, nodes=7, healing={"budget": {"maxPerHour": 1}})
    first, second = scene.names_of("short")[0], scene.names_of("long")[0]
    scene.engines.change(first, fragmentation=0.4)
    await scene.run(600)
    scene.engines.change(second, fragmentation=0.4)
    await scene.run(1800)
    assert scene.removals() == [first]
    assert scene.withheld() == {second: "hourlyBudget"}
    await scene.until_removed(2)
    removed = {w.name: w.at for w in scene.cluster.writes if w.verb == "evict"}
    assert removed[second] - removed[first] >= 3000


async def test_two_people_pause_and_healing_goes_on_only_when_both_are_done() -> None:
    scene, victim = await sick_scene()
    scene.edit(healing={"pauseRequests": ["audit"]})
    scene.annotate(**{"kintsugi.dev__pause.night": "true"})
    await scene.run(1500)
    assert scene.condition("HealingAllowed") == ("False", "Paused")
    assert scene.withheld() == {victim: "paused"}
    scene.edit(healing={"pauseRequests": None})
    await scene.run(300)
    assert (scene.remediations(), scene.rotation(victim)) == ([], "in")
    scene.annotate(**{"kintsugi.dev__pause.night": None})
    await scene.until_removed()
    assert scene.removals() == [victim]


async def test_a_pause_in_the_hold_stops_the_removal_and_what_was_begun_is_finished() -> None:
    scene, victim = await sick_scene()
    await scene.until_withdrawn(victim)
    scene.annotate(**{"kintsugi.dev__pause.night": "true"})
    await scene.run(900)
    assert scene.removals() == []
    assert scene.withheld() == {victim: "paused"}
    scene.annotate(**{"kintsugi.dev__pause.night": None})
    await scene.until_phase("Draining")
    scene.annotate(**{"kintsugi.dev__pause.night": "true"})
    done = await scene.until_done()
    assert (scene.removals(), done.status.outcome) == ([victim], "Cured")


@pytest.mark.parametrize(
    ("healing", "gate"),
    [
        ({"mode": "Observe"}, "mode"),
        ({"mode": "Recommend"}, "approval"),
        ({"triggers": {"fragmentation": {"mode": "Observe"}}}, "mode"),
        ({"triggers": {"fragmentation": {"mode": "Recommend"}}}, "approval"),
    ],
)
async def test_a_mode_that_does_not_act_shows_the_finding_and_touches_nothing(
    healing: dict[str, Any], gate: str
) -> None:
    scene, victim = await sick_scene(**healing)
    before = len(scene.cluster.writes)
    await scene.run(1500)
    assert scene.withheld() == {victim: gate}
    names = [each.metadata.name for each in scene.remediations()]
    assert len(names) == (gate == "approval"), "a recommendation is an object, an observation is none"
    told = {f"{verb} Remediation {name}" for verb in ("create", "status") for name in names}
    assert set(scene.writes(since=before)) - {LEARNED} == {STATUS, *told}
    (found,) = [each for each in scene.status.instances if each.name == victim]
    assert found.verdict == "Sick"
    assert scene.told("InstanceSick") == 1
    scene.edit(healing={"mode": "Act", "triggers": {"fragmentation": {"mode": None}}})
    await scene.until_removed()
    assert scene.removals() == [victim]


async def test_one_trigger_may_act_while_the_deployment_observes() -> None:
    scene = await warm({"short": 3}, healing={"mode": "Observe", "triggers": {"stall": {"mode": "Act"}}})
    fragmented, hung, _ = scene.names_of("short")
    scene.engines.change(fragmented, fragmentation=0.4)
    await scene.run(1200)
    scene.engines.change(hung, hung=True)
    await scene.until_removed()
    assert scene.removals() == [hung]
    assert scene.withheld()[fragmented] == "mode"


async def test_observe_set_during_the_hold_stops_the_removal() -> None:
    scene, victim = await sick_scene()
    await scene.until_withdrawn(victim)
    scene.edit(healing={"mode": "Observe"})
    await scene.run(900)
    assert scene.removals() == []
    assert scene.withheld() == {victim: "mode"}


async def test_a_budget_of_the_user_that_never_allows_the_eviction_is_waited_for_and_never_forced() -> None:
    scene = await warm({"short": 3}, nodes=3)
    victim = scene.names_of("short")[0]
    labels = {"kintsugi.dev/deployment": "chat"}
    scene.cluster.put(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"namespace": "llm", "name": "theirs"},
            "spec": {"selector": {"matchLabels": labels}, "minAvailable": 3},
        }
    )
    scene.engines.change(victim, fragmentation=0.4)
    uid = scene.uid(victim)
    await scene.run(3600)
    assert scene.uid(victim) == uid
    assert scene.writes("delete", "evict") == []
    assert scene.rotation(victim) == "in", "what may not go had better serve"
    assert scene.withheld() == {victim: "disruptionBudget"}
    (entry,) = scene.status.remediations.withheld
    assert "theirs" in entry.message
    scene.cluster.remove("PodDisruptionBudget", "llm", "theirs")
    await scene.until_removed()
    assert scene.removals() == [victim]
