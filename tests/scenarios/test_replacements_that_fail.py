"""The replacement does not come up, or is sick too: nothing else is removed until somebody has seen to it (S22)."""

from collections.abc import Callable

import pytest

from kintsugi.adapters.kube.parse import rfc3339
from kintsugi.testing.cluster import Start
from kintsugi.testing.cluster.store import Json
from kintsugi.testing.fleet import Behaviour
from tests.scenarios.stage import Scene, warm


def newcomers(scene: Scene, start: Start) -> Callable[[Json], Start]:
    """Pods made from now on start so; those that stand are as they were."""
    known = scene.uids()
    return lambda pod: Start() if pod["metadata"]["uid"] in known else start


@pytest.mark.parametrize(
    ("start", "nodes"), [(Start(image_ok=False), 5), (Start(dies_after=40.0, boot_seconds=60.0), 4)]
)
async def test_a_replacement_that_does_not_start_trips_the_breaker_of_its_pool(
    start: Start, nodes: int
) -> None:
    scene = await warm({"short": 4}, nodes=nodes)
    first, second, *_ = scene.names_of("short")
    scene.cluster.on_start(newcomers(scene, start))
    scene.engines.change(first, fragmentation=0.4)
    done = await scene.until_done()
    assert done.status.outcome == "NotCured"
    assert "does not start" in done.status.message
    scene.engines.change(second, hung=True)
    await scene.run(3600)
    assert scene.removals() == [first], "the next is not taken"
    assert scene.condition("HealingAllowed") == ("False", "BreakerOpen")
    assert scene.withheld()[second] in ("breaker", "replacementPending")
    assert len(scene.names_of("short")) == 4, "no pods pile up"


async def test_a_breaker_is_reset_by_a_person_and_healing_goes_on() -> None:
    scene = await warm({"short": 4}, nodes=5)
    first, second, *_ = scene.names_of("short")
    scene.cluster.on_start(newcomers(scene, Start(image_ok=False)))
    scene.engines.change(first, fragmentation=0.4)
    done = await scene.until_done()
    assert done.status.outcome == "NotCured"
    scene.engines.change(second, fragmentation=0.4)
    await scene.run(1200)
    scene.cluster.on_start(lambda _: Start())
    stuck = next(
        name
        for name in scene.names_of("short")
        if "containerStatuses" in str(scene.pod(name)) and "ImagePullBackOff" in str(scene.pod(name))
    )
    scene.cluster.remove("Pod", "llm", stuck)
    await scene.run(300)
    assert scene.removals() == [first], "the breaker does not close by itself"
    scene.annotate(**{"kintsugi.dev__reset-breakers": rfc3339(scene.cluster.clock.now())})
    await scene.until_removed(2)
    assert scene.removals() == [first, second]
    assert scene.status.remediations.breakers == ()


async def test_a_replacement_without_a_gpu_stays_pending_and_blocks_the_next_removal() -> None:
    scene = await warm({"short": 3}, nodes=3)
    first, second, _ = scene.names_of("short")
    node = scene.node(first)
    scene.engines.change(first, fragmentation=0.4)
    await scene.until_removed()
    scene.cluster.set_gpus(node, 0)
    scene.engines.change(second, hung=True)
    await scene.run(3600)
    assert scene.removals() == [first]
    assert scene.withheld()[second] in ("inFlight", "replacementPending", "minHealthy")
    assert scene.outcomes() == [""] or scene.outcomes() == ["", ""], "still under way: a GPU may come"
    assert "not" in scene.newest().status.message or scene.withheld()
    scene.cluster.set_gpus(node, 1)
    scene.engines.change(second, hung=False)
    await scene.until_done()
    assert "Cured" in scene.outcomes()
    assert scene.serving() == 3


async def test_a_replacement_that_is_sick_too_is_not_cured_and_stops_removals() -> None:
    scene = await warm({"short": 4}, nodes=5)
    victim = scene.names_of("short")[0]
    scene.engines.behaviour = lambda pod: Behaviour(hung=True)
    scene.engines.change(victim, fragmentation=0.4)
    await scene.run_until(lambda _: "NotCured" in scene.outcomes(), 3600)
    await scene.run(3600)
    assert scene.removals() == [victim]
    assert scene.condition("HealingAllowed") == ("False", "BreakerOpen")


async def test_a_crash_loop_of_one_pool_leaves_the_other_pool_its_healing() -> None:
    scene = await warm({"short": 3, "long": 3}, nodes=7)
    bad, good = scene.names_of("long")[0], scene.names_of("short")[0]
    scene.cluster.on_start(
        lambda pod: (
            Start(dies_after=40.0, exit_code=1, boot_seconds=60.0)
            if pod["metadata"]["labels"]["kintsugi.dev/pool"] == "long"
            and pod["metadata"]["uid"] not in known
            else Start()
        )
    )
    known = scene.uids()
    scene.engines.change(bad, hung=True)
    done = await scene.until_done()
    assert done.status.outcome == "NotCured"
    scene.restart()
    await scene.run(1800)
    made = [w for w in scene.cluster.events if w.reason == "FailedCreate"]
    assert (scene.removals(), made) == ([bad], [])
    scene.engines.change(good, hung=True)
    await scene.until_removed(2)
    assert scene.removals() == [bad, good]


async def test_a_new_revision_closes_the_breaker_that_the_old_one_tripped() -> None:
    scene = await warm({"short": 3}, nodes=4)
    first = scene.names_of("short")[0]
    scene.cluster.on_start(newcomers(scene, Start(image_ok=False)))
    scene.engines.change(first, hung=True)
    await scene.until_done()
    assert scene.condition("HealingAllowed") == ("False", "BreakerOpen")
    scene.cluster.on_start(lambda _: Start())
    scene.edit(engine={"image": "vllm/vllm-openai:v0.33.1"})
    await scene.run(1500)
    assert scene.serving() == 3
    assert scene.condition("HealingAllowed") == ("True", "Ready")
    assert {pod["spec"]["containers"][0]["image"] for pod in scene.pods()} == {"vllm/vllm-openai:v0.33.1"}
