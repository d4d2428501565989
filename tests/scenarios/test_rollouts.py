"""Rollouts and scaling draw on the same pool as healing, and never add up to an outage."""

import pytest

from kintsugi.testing.cluster import Start
from tests.scenarios.stage import Scene, warm

NEW = {"image": "vllm/vllm-openai:v0.34.0"}


class Watched:
    """The least that served, and the most pods that were short, over a stretch of time."""

    def __init__(self, scene: Scene, pool: str = "short") -> None:
        self._scene = scene
        self._pool = pool
        self.least = scene.serving(pool)

    async def run(self, seconds: float) -> None:
        until = self._scene.cluster.clock.mono() + seconds
        while self._scene.cluster.clock.mono() < until:
            await self._scene.run(self._scene.pace)
            self.least = min(self.least, self._scene.serving(self._pool))


def images(scene: Scene, pool: str = "short") -> set[str]:
    return {pod["spec"]["containers"][0]["image"].rsplit(":", 1)[1] for pod in scene.pods(pool)}


@pytest.mark.parametrize(("nodes", "least"), [(4, 3), (3, 2)])
async def test_a_rollout_replaces_one_pod_at_a_time(nodes: int, least: int) -> None:
    scene = await warm({"short": 3}, nodes=nodes, seconds=300)
    old = scene.uids()
    watched = Watched(scene)
    scene.edit(engine=NEW)
    await watched.run(900)
    assert images(scene) == {"v0.34.0"}
    assert scene.uids().isdisjoint(old)
    assert (watched.least, scene.serving()) == (least, 3)
    assert scene.remediations() == []
    assert [rollout.state for rollout in scene.status.rollouts] == ["Done"]
    assert len(scene.cluster.all("ReplicaSet", "llm")) == 1, "the spent ReplicaSet is gone"


@pytest.mark.parametrize("nodes", [3, 4])
async def test_a_version_that_does_not_boot_stops_after_its_first_pod_and_a_revert_brings_that_one_back(
    nodes: int,
) -> None:
    scene = await warm({"short": 3}, nodes=nodes, seconds=300)
    old = scene.uids()
    watched = Watched(scene)
    scene.cluster.on_start(
        lambda pod: (
            Start(dies_after=30.0, boot_seconds=float("inf"))
            if pod["spec"]["containers"][0]["image"].endswith("v0.34.0")
            else Start()
        )
    )
    scene.edit(engine=NEW)
    await watched.run(2400)
    new = scene.uids() - old
    assert len(new) == 1, "one bad pod"
    assert watched.least >= 2
    assert scene.condition("Progressing") == ("False", "RolloutStalled")
    assert scene.removals() == []
    kept = scene.uids() & old
    scene.edit(engine={"image": None})
    await scene.run(900)
    assert images(scene) == {"v0.33.0"}
    assert kept <= scene.uids(), "the others were never touched"
    assert scene.serving() == 3
    assert scene.condition("Available")[0] == "True"


async def test_scaling_up_starts_pods_and_scaling_down_drains_them_first() -> None:
    scene = await warm({"short": 2}, nodes=4, seconds=300)
    first = scene.uids()
    scene.edit(pools=[{"name": "short", "replicas": 4}])
    await scene.run(120)
    assert (scene.serving(), first <= scene.uids()) == (4, True)
    await scene.run(300)
    for name in scene.names_of("short"):
        scene.engines.change(name, drain_seconds=120.0)
    watched = Watched(scene)
    scene.edit(pools=[{"name": "short", "replicas": 2}])
    await watched.run(90)
    assert len(scene.names_of("short")) == 4, "the first is still draining"
    assert [scene.rotation(name) for name in scene.names_of("short")].count("out") == 1
    await watched.run(600)
    assert (len(scene.names_of("short")), watched.least) == (2, 2)


async def test_a_scale_down_that_is_taken_back_puts_the_draining_pod_back() -> None:
    scene = await warm({"short": 3}, nodes=4, seconds=300)
    uids = scene.uids()
    for name in scene.names_of("short"):
        scene.engines.change(name, drain_seconds=1000.0)
    scene.edit(pools=[{"name": "short", "replicas": 2}])
    await scene.run(60)
    assert scene.serving() == 2
    scene.edit(pools=[{"name": "short", "replicas": 3}])
    await scene.run(60)
    assert (scene.serving(), scene.uids()) == (3, uids)


async def test_the_top_level_replicas_scale_the_named_pool_and_spec_is_never_written() -> None:
    scene = await warm({"short": 1, "long": 2}, nodes=6, seconds=300, scalePool="short")
    scene.edit(replicas=3)
    await scene.run(300)
    assert (scene.serving("short"), scene.serving("long")) == (3, 2)
    assert scene.status.replicas == 3
    assert "kintsugi.dev/pool=short" in scene.status.selector
    held = scene.cluster.get("DeepSeekV4Deployment", "llm", "chat")
    assert held["metadata"]["generation"] == 2, "only the user wrote the spec"


async def test_a_pool_that_leaves_the_spec_is_drained_and_goes_with_all_that_was_its_own() -> None:
    scene = await warm({"short": 2, "long": 2}, nodes=5, seconds=300)
    scene.edit(pools=[{"name": "short", "replicas": 2}])
    await scene.run(900)
    assert scene.names_of("long") == []
    assert scene.serving("short") == 2
    left = [each["metadata"]["name"] for kind in KINDS for each in scene.cluster.all(kind, "llm")]
    assert not [name for name in left if name.startswith("chat-long")]


KINDS = ("ReplicaSet", "Service", "PodDisruptionBudget")


@pytest.mark.parametrize("phase", ["Quarantined", "Replacing"])
async def test_a_pool_removed_while_one_of_its_instances_is_healed_goes_all_the_same(phase: str) -> None:
    scene = await warm({"short": 2, "long": 2}, nodes=5)
    victim = scene.names_of("long")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.until_phase(phase)
    scene.edit(pools=[{"name": "short", "replicas": 2}])
    await scene.run(1500)
    assert scene.names_of("long") == []
    assert scene.serving("short") == 2
    assert scene.status.remediations.active == ()
    left = [each["metadata"]["name"] for kind in KINDS for each in scene.cluster.all(kind, "llm")]
    assert not [name for name in left if name.startswith("chat-long")]


@pytest.mark.parametrize("nodes", [3, 4])
async def test_a_rollout_over_a_sick_instance_ends_with_everything_new_and_well(nodes: int) -> None:
    scene = await warm({"short": 3}, nodes=nodes)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.until_withdrawn(victim)
    watched = Watched(scene)
    scene.edit(engine=NEW)
    await watched.run(3600)
    assert images(scene) == {"v0.34.0"}
    assert (scene.serving(), len(scene.names_of("short"))) == (3, 3)
    assert watched.least >= 2
    assert scene.removals() in ([], [victim])
    assert scene.status.remediations.active == ()
    assert scene.condition("HealingAllowed") == ("True", "Ready")


async def test_healing_waits_for_a_rollout_in_its_pool() -> None:
    scene = await warm({"short": 3}, nodes=3)
    scene.cluster.on_start(
        lambda pod: (
            Start(boot_seconds=1500.0)
            if pod["spec"]["containers"][0]["image"].endswith("v0.34.0")
            else Start()
        )
    )
    scene.edit(engine=NEW)
    await scene.run(120)
    victim = next(name for name in scene.names_of("short") if scene.serving_pod(name))
    scene.engines.change(victim, fragmentation=0.4)
    await scene.run(900)
    assert scene.removals() == []
    assert scene.withheld()[victim] == "rollout"
    assert scene.serving() == 2


@pytest.mark.parametrize("cut", range(1, 12))
async def test_an_operator_killed_in_a_rollout_goes_on_with_it(cut: int) -> None:
    scene = await warm({"short": 2}, nodes=2, pace=30, seconds=120)
    scene.edit(engine=NEW)
    scene.cluster.crash_after(cut)
    watched = Watched(scene)
    await watched.run(900)
    scene.cluster.faults.spare()
    assert images(scene) == {"v0.34.0"}
    assert (scene.serving(), watched.least) == (2, 1)
    assert len(scene.cluster.all("ReplicaSet", "llm")) == 1
