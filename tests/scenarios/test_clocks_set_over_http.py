"""The operator's wall clock is set while a victim is held: neither does it lose its time, nor does it wait for an hour."""

import pytest

from kintsugi.core.times import Times
from tests.scenarios.served import served


@pytest.mark.parametrize("seconds", [260.0, 3_600.0, -3_600.0])
async def test_a_clock_that_is_set_shortens_no_hold(seconds: float) -> None:
    async with served({"short": 3}, then=5) as scene:
        pod = scene.names_of("short")[0]
        scene.engines.change(pod, fragmentation=0.41)
        await scene.until_withdrawn(pod, within=900)
        await scene.run(30)
        scene.cluster.clock.jump(seconds)
        at = scene.cluster.clock.mono()
        while scene.cluster.clock.mono() - at < Times().hold - 10:
            await scene.run(5)
            assert all(mend.status.timeline.released is None for mend in scene.remediations())
        assert scene.removals() == []


async def test_a_clock_that_is_set_back_delays_no_removal() -> None:
    async with served({"short": 3}, then=5) as scene:
        pod = scene.names_of("short")[0]
        scene.engines.change(pod, hung=True, running=5.0)
        await scene.until_withdrawn(pod, within=90)
        await scene.run(30)
        scene.cluster.clock.jump(-3_600.0)
        assert await scene.until_removed(within=600) <= 330
