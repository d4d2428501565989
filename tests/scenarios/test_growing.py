"""Memory that rises towards its limit (S20), and series that a detector cannot do without."""

from kintsugi.core.finding import Detector
from tests.scenarios.stage import Scene, warm

FOUR_HOURS = 4 * 3600.0
GIB_PER_HOUR = 8.0


async def grown(count: int = 4, **levels: float) -> Scene:
    """A warm pool in which every instance leaks alike; those that `levels` names begin higher."""
    scene = await warm({"short": count}, nodes=count + 1)
    for index, name in enumerate(scene.names_of("short")):
        scene.engines.change(name, leak=GIB_PER_HOUR, memory=22.0 + levels.get(f"of_{index}", 0.0))
    return scene


async def test_s20_a_leak_in_all_four_at_once_is_recycled_one_by_one_and_counts_towards_no_storm() -> None:
    scene = await grown(of_2=1.0)
    order = scene.names_of("short")
    await scene.run_until(lambda _: bool(scene.remediations()), within=FOUR_HOURS)
    first = scene.newest()
    assert first.spec.trigger == Detector.GROWING.value
    assert first.spec.instance.name == order[2], "the one that is nearest to its limit"
    assert scene.condition("HealingAllowed")[0] == "True", "no storm"
    entry = next(each for each in scene.status.instances if each.name == order[2])
    assert (entry.verdict, entry.reason) == ("Sick", "MemoryGrows")
    assert entry.signals is not None
    assert entry.signals.memory_forecast_seconds is not None
    assert 0 < entry.signals.memory_forecast_seconds < 7200
    evidence = {each.signal: each.value for each in first.status.evidence}
    assert evidence["memory limit"] == 64.0
    assert evidence["forecast to the limit"] < 7200

    lowest, at_once = 4, 0
    for _ in range(240):  # two hours more: every leaking instance has gone, each after the one before
        await scene.run(30)
        lowest = min(lowest, scene.serving())
        at_once = max(at_once, sum(phase != "Done" for phase in scene.phases()))
    assert at_once == 1
    assert lowest >= 3
    assert scene.removals()[0] == order[2]
    assert len(scene.removals()) >= 3
    assert all(each.spec.trigger == Detector.GROWING.value for each in scene.remediations())
    assert not scene.status.remediations.storms


async def test_a_growing_instance_of_a_pool_that_only_observes_is_told_and_stays() -> None:
    scene = await warm({"short": 2}, nodes=3, healing={"triggers": {"memoryGrowth": {"mode": "Observe"}}})
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, leak=GIB_PER_HOUR, memory=22.0)
    await scene.run(FOUR_HOURS)
    assert scene.withheld() == {victim: "mode"}
    assert scene.removals() == []


async def test_a_detector_that_lost_a_series_only_observes_and_says_so() -> None:
    scene = await warm({"short": 3}, nodes=4)
    victim = scene.names_of("short")[0]
    scene.engines.rewrite[victim] = lambda text: text.replace("vllm:request_success_total", "vllm:renamed")
    scene.engines.change(victim, errors=1.0, canary_errors=1.0)
    await scene.run(1800)
    status, reason = scene.condition("DataFresh")
    assert (status, reason) == ("True", "SeriesMissing")
    (said,) = [c.message for c in scene.status.conditions if c.type == "DataFresh"]
    assert "vllm:request_success_total" in said
    assert "only observed for it: errors" in said
    assert scene.removals() == []
