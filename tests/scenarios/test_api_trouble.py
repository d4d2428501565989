"""The API server fails, refuses or is slow, and other operators write too (S28, S29, S30, S31, S32)."""

import copy
from typing import Any

import pytest

from kintsugi.api.crd import crd_documents
from kintsugi.core import names
from kintsugi.ports.errors import Conflict, PortError, Refused, Unavailable
from kintsugi.runtime.reconcile import Reconciler
from kintsugi.testing.cluster import FakeApi, FakeCluster
from kintsugi.testing.cluster.schema import Schemas
from kintsugi.testing.rehearsal import SilentRecorder
from tests.scenarios.stage import Scene, warm


@pytest.mark.parametrize("sickness", ["hung", "fragmented"])
async def test_two_operators_at_once_remove_one_pod_once(sickness: str) -> None:
    scene = Scene(nodes=4, pace=30)
    scene.deploy({"short": 3})
    second = scene.cluster.client()
    other = Reconciler(second, scene.engines, scene.cluster.clock, SilentRecorder())

    async def both(passes: int) -> None:
        for index in range(passes):
            scene.cluster.clock.move(30.0)
            for operator in (scene.operator, other) if index % 3 else (other, scene.operator):
                await operator.run(scene.key, 0.0)

    await both(45)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, **({"hung": True} if sickness == "hung" else {"fragmentation": 0.4}))
    await both(90)
    evicted = {w.name for api in (scene.cluster, second) for w in api.writes if w.verb == "evict"}
    assert evicted == {victim}
    assert len(scene.names_of("short")) == 3
    assert scene.outcomes() == ["Cured"]


async def test_an_operator_that_stood_still_in_the_middle_of_its_pass_does_nothing_with_its_old_plan() -> (
    None
):
    scene = await warm({"short": 3}, nodes=4)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, hung=True)
    await scene.until_withdrawn(victim)
    late = Late(scene)
    reconciler = Reconciler(late, scene.engines, scene.cluster.clock, SilentRecorder())
    await reconciler.run(scene.key, 0.0)
    assert late.writes == []
    await scene.until_done()
    assert scene.removals() == [victim]


class Late(FakeApi):
    """An operator that was paused between its look and its first write, while another one worked on."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.cluster.world)
        self._scene = scene

    async def write_status(self, key: Any, status: Any, resource_version: str) -> str:
        await self._scene.until_phase("Replacing")
        return await super().write_status(key, status, resource_version)


@pytest.mark.parametrize("phase", ["Quarantined", "Draining", "Replacing", "Probation"])
async def test_an_api_outage_in_any_phase_delays_and_changes_nothing_else(phase: str) -> None:
    scene = await warm({"short": 3}, nodes=4)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, hung=True)
    await scene.until_phase(phase)
    scene.cluster.outage(600)
    done = await scene.until_done()
    assert (scene.removals(), done.status.outcome) == ([victim], "Cured")
    assert scene.serving() == 3


async def test_nothing_is_held_against_a_healthy_fleet_after_an_api_outage() -> None:
    scene = await warm({"short": 3}, nodes=4)
    for _ in range(4):
        scene.cluster.outage(400)
        await scene.run(900)
    assert (scene.remediations(), scene.serving()) == ([], 3)


@pytest.mark.parametrize(
    ("error", "performed"),
    [(Refused("slow down", 7.0), False), (Conflict("moved"), False), (Unavailable("502"), True)],
)
async def test_half_of_the_calls_failing_for_three_minutes_loses_nothing_and_does_nothing_twice(
    error: PortError, performed: bool
) -> None:
    scene = await warm({"short": 3}, nodes=4)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, hung=True)
    await scene.until_withdrawn(victim)
    await scene.run(210)
    for _ in range(12):
        scene.cluster.fail_next("*", "*", error, performed=performed)
        await scene.run(15)
        scene.cluster.fail_next("status", "*", error, performed=performed)
        scene.cluster.fail_next("patch", "Pod", error, performed=performed)
        scene.cluster.fail_next("evict", "Pod", error, performed=performed)
    scene.cluster.faults.spare()
    done = await scene.until_done()
    assert (scene.removals(), done.status.outcome) == ([victim], "Cured")
    assert len(scene.names_of("short")) == 3
    assert scene.condition("HealingAllowed") == ("True", "Ready")


async def test_changes_made_during_an_outage_are_carried_out_within_a_minute_of_its_end() -> None:
    scene = await warm({"short": 2}, nodes=4)
    scene.cluster.outage(90)
    scene.edit(pools=[{"name": "short", "replicas": 3}])
    gone = scene.names_of("short")[0]
    scene.cluster.remove("Pod", "llm", gone)
    await scene.run(150)
    assert len(scene.names_of("short")) == 3
    assert scene.serving() == 3


async def test_the_last_spec_wins_however_fast_it_changes_while_pods_load() -> None:
    scene = Scene(nodes=4)
    scene.deploy({"short": 2}, engine={"image": "vllm/vllm-openai:v0.33.0"})
    await scene.run(20)
    scene.edit(pools=[{"name": "short", "replicas": 3}], engine={"image": "vllm/vllm-openai:v0.34.0"})
    await scene.run(5, 5)
    scene.edit(engine={"image": "vllm/vllm-openai:v0.33.0"})
    await scene.run(900)
    images = [pod["spec"]["containers"][0]["image"] for pod in scene.pods()]
    assert images == ["vllm/vllm-openai:v0.33.0"] * 3
    held = scene.cluster.get(names.DEPLOYMENT_KIND, "llm", "chat")
    assert scene.status.observed_generation == held["metadata"]["generation"]
    assert scene.serving() == 3


def without(path: str) -> Schemas:
    """The schemas of an older version, which lacks one field of the deployment's status (`a.b[].c`)."""
    documents = copy.deepcopy(crd_documents())
    for document in documents:
        if document["spec"]["names"]["kind"] == names.DEPLOYMENT_KIND:
            at = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            *way, last = path.split(".")
            for step in way:
                at = at["properties"][step.removesuffix("[]")]
                at = at["items"] if step.endswith("[]") else at
            del at["properties"][last]
            at["required"] = [name for name in at.get("required", ()) if name != last]
    return Schemas.of_crds(documents)


@pytest.mark.parametrize(
    "path",
    ["status.remediations", "status.remediations.active", "status.remediations.active[].evictingSince"],
)
async def test_with_a_crd_that_lacks_a_field_nothing_is_touched_and_it_is_said_once(path: str) -> None:
    scene = Scene(nodes=4, cluster=FakeCluster(schemas=without(path)))
    scene.deploy({"short": 3})
    await scene.run(1300)
    victim = scene.names_of("short")[0]
    before = len(scene.cluster.writes)
    scene.engines.change(victim, hung=True)
    await scene.run(1800)
    assert scene.removals() == []
    if path.count(".") < 3:
        assert scene.writes("patch", "evict", "create", since=before) == [], "not even withdrawn"
    assert len(scene.writes(since=before)) <= 24, "no loop of writes"
    assert scene.told("CRDOutdated") == 1
