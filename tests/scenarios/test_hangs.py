"""Hung engines: how soon they are seen, and what only looks like one (S11, S15, S17)."""

import itertools
from collections.abc import Callable

import pytest

from tests.scenarios.stage import warm


@pytest.mark.parametrize("offset", [0.5, 2.5, 4.5])
async def test_a_hang_under_load_is_withdrawn_within_90_s_and_removed_within_320_s(offset: float) -> None:
    scene = await warm({"short": 3}, then=5, seconds=660)
    victim = scene.names_of("short")[1]
    scene.cluster.clock.move(offset)
    scene.engines.change(victim, hung=True)
    withdrawn = await scene.until_withdrawn(victim, 120)
    assert withdrawn <= 90
    assert withdrawn + await scene.until_removed(within=400) <= 320
    assert scene.removals() == [victim]


@pytest.mark.parametrize("offset", [1.0, 21.0, 41.0])
async def test_a_hang_of_an_idle_engine_is_withdrawn_within_150_s_and_removed_within_370_s(
    offset: float,
) -> None:
    scene = await warm({"short": 3}, then=5, seconds=660)
    for name in scene.names_of("short"):
        scene.engines.change(name, running=0.0, kv_usage=0.0)
    await scene.run(180)
    victim = scene.names_of("short")[1]
    scene.cluster.clock.move(offset)
    scene.engines.change(victim, hung=True)
    withdrawn = await scene.until_withdrawn(victim, 200)
    assert withdrawn <= 150
    assert withdrawn + await scene.until_removed(within=400) <= 370
    assert scene.removals() == [victim]


async def test_an_engine_frozen_behind_a_growing_queue_is_replaced_once_and_leaves_its_evidence() -> None:
    scene = await warm({"short": 3}, then=5, seconds=660)
    victim = scene.names_of("short")[0]
    for waiting in range(9, 28, 3):
        scene.engines.change(victim, hung=True, running=3.0, waiting=float(waiting))
        await scene.run(50)
    done = await scene.until_done()
    assert scene.removals() == [victim]
    assert (done.spec.trigger, done.status.outcome) == ("stall", "Cured")
    evidence = {each.signal: each.value for each in done.status.evidence}
    assert evidence["canaries unanswered"] == 3
    assert evidence["seconds without a step of rank 0"] >= 60
    assert any(e.reason == "InstanceSick" and "no step" in e.message for e in scene.cluster.events)


async def test_an_engine_that_admits_nobody_though_its_cache_is_empty_is_replaced_without_a_drain() -> None:
    scene = await warm({"short": 3}, then=5, seconds=660)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, hung=True, running=0.0, waiting=6.0, kv_usage=0.0)
    await scene.until_removed(within=400)
    evicted = scene.newest().status.timeline
    assert evicted.drained is not None
    assert evicted.released is not None
    assert (evicted.drained - evicted.released).total_seconds() <= 10
    assert scene.removals() == [victim]


async def test_an_engine_that_steps_and_admits_nobody_is_withdrawn_and_later_removed() -> None:
    scene = await warm({"short": 3}, seconds=660, engine={"args": {"maxNumSeqs": 64, "maxModelLen": 131072}})
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, admits=False, waiting=6.0, kv_usage=0.05)
    assert await scene.until_withdrawn(victim) <= 400
    await scene.run(120)
    assert scene.removals() == []
    done = await scene.until_done()
    assert (scene.removals(), done.status.outcome) == ([victim], "Cured")


async def test_gauges_frozen_at_their_last_busy_value_are_asked_about_and_never_acted_upon() -> None:
    scene = await warm({"short": 3}, then=5, seconds=660)
    pod = scene.names_of("short")[0]
    scene.engines.change(pod, running=106.0, waiting=15.0, kv_usage=0.904, steps_per_second=0.0)
    sent = len(scene.engines.canaries)
    await scene.run_until(lambda s: len(s.engines.canaries) > sent, 30)
    await scene.run(600)
    assert scene.rotation(pod) == "in"
    scene.engines.change(pod, running=0.0, waiting=0.0, kv_usage=0.0)
    await scene.run(600)
    assert scene.rotation(pod) == "in"
    assert scene.remediations() == []


def standing_still(text: str) -> Callable[[str], str]:
    """A page whose every value stands, but for the process's own CPU time."""
    frozen = [line for line in text.splitlines() if not line.startswith("process_cpu")]
    cpu = itertools.count(1)
    return lambda _: "\n".join([*frozen, f"process_cpu_seconds_total {100 + next(cpu) / 10}"]) + "\n"


async def test_counters_that_stand_still_though_canaries_are_answered_are_called_stale_not_sick() -> None:
    scene = await warm({"short": 3}, then=5, seconds=660)
    pod = scene.names_of("short")[0]
    (page,) = await scene.engines.scrape([scene.address(pod)], 4.0)
    scene.engines.rewrite[pod] = standing_still(getattr(page, "text", ""))
    await scene.run(900)
    assert scene.rotation(pod) == "in"
    assert scene.remediations() == []
    (found,) = [i for i in scene.status.instances if i.name == pod]
    assert (found.verdict, found.reason) == ("Unknown", "StaleGauges")


async def test_a_long_pause_that_ends_is_put_back_and_three_in_a_day_cost_no_pod() -> None:
    scene = await warm({"short": 3}, seconds=660)
    pod = scene.names_of("short")[0]
    uid = scene.uid(pod)
    for _ in range(3):
        scene.engines.change(pod, hung=True)
        await scene.until_withdrawn(pod)
        await scene.run(90)
        scene.engines.change(pod, hung=False)
        await scene.run(900)
        assert (scene.rotation(pod), scene.uid(pod)) == ("in", uid)
    assert scene.removals() == []
    assert scene.outcomes() == ["Cancelled"] * 3


async def test_gauges_that_stand_still_are_called_stale_though_every_answer_takes_seconds() -> None:
    scene = await warm({"short": 3}, then=5, seconds=660)
    pod = scene.names_of("short")[0]
    (page,) = await scene.engines.scrape([scene.address(pod)], 4.0)
    scene.engines.rewrite[pod] = standing_still(getattr(page, "text", ""))
    scene.engines.change(pod, answer_seconds=5.0)
    before, sent = len(scene.cluster.writes), len(scene.engines.canaries)
    await scene.run(900)
    (found,) = [i for i in scene.status.instances if i.name == pod]
    assert (found.verdict, found.reason) == ("Unknown", "StaleGauges")
    assert len(scene.writes(since=before)) <= 6, "no stream of writes"
    assert len(scene.engines.canaries) - sent <= 20, "no stream of canaries"
