"""A fleet that is well costs the API server nothing."""

from tests.scenarios.stage import LEARNED, STATUS, warm


async def test_an_idle_fleet_causes_no_write_for_an_hour() -> None:
    scene = await warm({"short": 3, "long": 2}, nodes=5)
    for name in scene.names_of("short") + scene.names_of("long"):
        scene.engines.change(name, running=0.0, kv_usage=0.0)
    await scene.run(300)
    before, told = len(scene.cluster.writes), len(scene.cluster.events)
    await scene.run(3600)
    assert scene.writes(since=before) == []
    assert len(scene.cluster.events) == told


async def test_a_busy_healthy_fleet_causes_almost_no_write() -> None:
    scene = await warm({"short": 3}, nodes=3)
    before = len(scene.cluster.writes)
    for minute in range(60):
        for index, name in enumerate(scene.names_of("short")):
            scene.engines.change(
                name, running=float((minute * 7 + index * 13) % 64), waiting=float(minute % 3)
            )
        await scene.run(60)
    written = scene.writes(since=before)
    assert set(written) <= {STATUS, LEARNED}
    assert written.count(LEARNED) <= 1
    assert len(written) <= 60, "load alone writes at most once a minute"
    assert scene.remediations() == []


async def test_an_operator_that_starts_over_a_running_fleet_writes_almost_nothing_and_touches_no_pod() -> (
    None
):
    scene = await warm({"short": 3}, nodes=3)
    before = len(scene.cluster.writes)
    scene.restart()
    await scene.run(1800)
    assert set(scene.writes(since=before)) <= {STATUS, LEARNED}
    assert len(scene.writes(since=before)) <= 6
    assert scene.serving() == 3
