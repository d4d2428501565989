"""Deleting a deployment needs no operator and leaves nothing (S27)."""

import pytest

from kintsugi.core import names
from tests.scenarios.stage import Scene, warm

OURS = ("ReplicaSet", "Pod", "Service", "PodDisruptionBudget", names.REMEDIATION_KIND)


def left(scene: Scene) -> list[str]:
    return [f"{kind} {each['metadata']['name']}" for kind in OURS for each in scene.cluster.all(kind, "llm")]


async def healed() -> Scene:
    """A fleet of two pools with one remediation behind it and one in flight: every kind of object is there."""
    scene = await warm({"short": 3, "long": 2}, nodes=6, seconds=720)
    scene.engines.change(scene.names_of("short")[0], hung=True)
    await scene.until_done()
    scene.engines.change(scene.names_of("long")[0], hung=True)
    await scene.until_phase("Draining")
    assert {entry.split()[0] for entry in left(scene)} == set(OURS)
    return scene


async def test_nothing_carries_a_finalizer_and_every_child_has_an_owner() -> None:
    scene = await healed()
    deployment = scene.cluster.get(names.DEPLOYMENT_KIND, "llm", "chat")
    objects = [deployment, *(each for kind in OURS for each in scene.cluster.all(kind, "llm"))]
    assert not [each["metadata"]["name"] for each in objects if each["metadata"].get("finalizers")]
    sets = {each["metadata"]["uid"] for each in scene.cluster.all("ReplicaSet", "llm")}
    for each in objects[1:]:
        (owner,) = each["metadata"]["ownerReferences"]
        assert owner["controller"] is True
        assert owner["uid"] in sets | {deployment["metadata"]["uid"]}
        if owner["uid"] == deployment["metadata"]["uid"]:
            assert owner["blockOwnerDeletion"] is False


@pytest.mark.parametrize("operator_lives", [False, True])
async def test_deleting_the_deployment_leaves_nothing_with_and_without_the_operator(
    operator_lives: bool,
) -> None:
    scene = await healed()
    scene.cluster.remove(names.DEPLOYMENT_KIND, "llm", "chat")
    before = len(scene.cluster.writes)
    if operator_lives:
        for _ in range(20):
            scene.cluster.clock.move(3)
            assert await scene.operator.run(scene.key, 0.0) is None
    else:
        scene.cluster.clock.move(60)
    assert left(scene) == []
    assert scene.writes(since=before) == [], "Kubernetes does it alone"


async def test_without_the_operator_the_fleet_serves_on_and_lost_pods_come_back() -> None:
    scene = await warm({"short": 3}, nodes=4, seconds=720)
    scene.cluster.remove("Pod", "llm", scene.names_of("short")[0])
    scene.cluster.clock.move(86_400)
    assert scene.serving() == 3


async def test_a_deployment_of_the_same_name_made_anew_inherits_nothing() -> None:
    scene = await healed()
    scene.cluster.remove(names.DEPLOYMENT_KIND, "llm", "chat")
    await scene.run(60)
    scene.deploy({"short": 2})
    await scene.run(900)
    assert scene.serving() == 2
    assert scene.remediations() == []
    assert scene.status.remediations.recent == ()
