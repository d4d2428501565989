"""One instance is sick: which way it is replaced, by what room there is and how many stand beside it."""

import pytest

from tests.scenarios.stage import Scene, warm


async def test_with_a_free_gpu_the_replacement_starts_before_the_sick_pod_goes() -> None:
    scene = await warm({"short": 3}, nodes=4)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.until_removed()
    assert scene.removals() == [victim]
    assert len(scene.names_of("short")) == 4, "the replacement is there while the victim ends"
    done = await scene.until_done()
    assert (done.status.outcome, done.status.path, done.status.streams_cut) == ("Cured", "Surge", 0)
    assert len(scene.names_of("short")) == 3


async def test_without_a_free_gpu_the_sick_pod_goes_first_and_its_replacement_takes_the_gpu() -> None:
    scene = await warm({"short": 3}, nodes=3)
    victim = scene.names_of("short")[0]
    node = scene.node(victim)
    scene.engines.change(victim, fragmentation=0.4)
    done = await scene.until_done()
    assert (done.status.outcome, done.status.path) == ("Cured", "DeleteFirst")
    assert scene.removals() == [victim]
    assert done.status.replacement is not None
    assert scene.node(done.status.replacement.name) == node


@pytest.mark.parametrize(("nodes", "path"), [(4, "Surge"), (3, "DeleteFirst")])
@pytest.mark.parametrize("sickness", ["fragmentation", "stall"])
async def test_streams_end_before_the_signal_and_two_others_serve_all_along(
    nodes: int, path: str, sickness: str
) -> None:
    scene = await warm({"short": 3}, nodes=nodes, then=5)
    victim = scene.names_of("short")[0]
    scene.engines.change(
        victim, **({"fragmentation": 0.4} if sickness == "fragmentation" else {"hung": True})
    )
    least = 3

    def removed(_: object) -> bool:
        nonlocal least
        least = min(least, scene.serving())
        return bool(scene.removals())

    await scene.run_until(removed, 1500)
    assert least == 2
    mended = scene.newest().status
    assert (mended.path, mended.streams_cut) == (path, 0)
    evicted = [w for w in scene.cluster.writes if w.verb == "evict"]
    assert [w.detail for w in evicted] == ["10" if sickness == "stall" else "None"]


async def test_a_pool_of_one_with_room_serves_until_its_replacement_is_ready() -> None:
    scene = await warm({"short": 1}, nodes=2, then=5)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    least = 1

    def removed(_: object) -> bool:
        nonlocal least
        least = min(least, scene.serving())
        return bool(scene.removals())

    await scene.run_until(removed, 1500)
    assert least == 1, "somebody served at every moment"
    done = await scene.until_done()
    assert (done.status.outcome, done.status.path) == ("Cured", "Surge")


async def test_a_pool_of_one_without_room_asks_a_person_about_fragmentation() -> None:
    scene = await warm({"short": 1}, nodes=1)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.run(3600)
    assert scene.removals() == []
    assert scene.withheld() == {victim: "poolOfOne"}
    assert scene.serving() == 1, "it still serves"


@pytest.mark.parametrize(("nodes", "path"), [(1, "DeleteFirst"), (2, "Surge")])
async def test_a_stalled_pool_of_one_is_replaced_at_the_removal_time(nodes: int, path: str) -> None:
    scene = await warm({"short": 1}, nodes=nodes, then=5)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, hung=True)
    assert 300 <= await scene.until_removed() <= 320
    done = await scene.until_done()
    assert (done.status.outcome, done.status.path) == ("Cured", path)
    assert scene.removals() == [victim]


async def test_a_dead_pool_of_one_is_replaced_without_a_hold() -> None:
    scene = await warm({"short": 1}, nodes=1)
    victim = scene.names_of("short")[0]
    scene.cluster.fail_pod("llm", victim)
    await scene.run(120)
    assert victim not in [name for name in scene.names_of("short") if scene.rotation(name) == "in"]
    assert scene.serving() == 1
    done = await scene.until_done()
    assert (done.spec.trigger, done.status.outcome) == ("dead", "Cured")


@pytest.mark.parametrize("nodes", [3, 4])
async def test_a_trigger_that_clears_after_withdrawal_gives_the_pod_back_untouched(nodes: int) -> None:
    scene = await warm({"short": 3}, nodes=nodes)
    victim = scene.names_of("short")[0]
    uid = scene.uid(victim)
    scene.engines.change(victim, hung=True)
    await scene.until_withdrawn(victim)
    await scene.run(120)
    scene.engines.change(victim, hung=False)
    done = await scene.until_done(120)
    assert done.status.outcome == "Cancelled"
    assert (scene.rotation(victim), scene.uid(victim)) == ("in", uid)
    await scene.run(60)
    status = scene.status.remediations
    assert status.active == ()
    assert [entry.counts_towards_budget for entry in status.recent] == [False]
    assert scene.removals() == []
    assert scene.writes("scale", "delete") == []


async def test_fragmentation_that_falls_during_the_hold_gives_the_pod_back() -> None:
    scene = await warm({"short": 3}, nodes=3)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.until_withdrawn(victim)
    scene.engines.change(victim, fragmentation=0.05)
    await scene.run(900)
    assert scene.removals() == []
    assert (scene.outcomes(), scene.rotation(victim)) == (["Cancelled"], "in")


async def test_a_released_pod_whose_trigger_clears_is_still_evicted_and_called_cancelled() -> None:
    scene = Scene(nodes=4, pace=15)
    scene.deploy({"short": 3}, healing={"drain": {"timeoutSeconds": 1200}})
    await scene.run(1300)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4, drain_seconds=1000.0)
    await scene.until_phase("Draining")
    scene.engines.change(victim, fragmentation=0.05)
    done = await scene.until_done()
    assert done.status.outcome == "Cancelled"
    assert scene.removals() == [victim]
    assert len(scene.names_of("short")) == 3
    assert [entry.counts_towards_budget for entry in scene.status.remediations.recent] in ([True], [])
