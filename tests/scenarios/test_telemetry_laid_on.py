"""The operator's own image as the source of the telemetry: for new engines alone, and never a reason to move one."""

from typing import Any

from kintsugi.core.pod.telemetry import CONTAINER
from kintsugi.runtime.reconcile import Reconciler
from kintsugi.testing.rehearsal import SilentRecorder
from tests.scenarios.stage import Scene


def operator(scene: Scene, image: str) -> Reconciler:
    """The operator from that image."""
    return Reconciler(scene.cluster, scene.engines, scene.cluster.clock, SilentRecorder(), image=image)


def sources(scene: Scene) -> list[Any]:
    """The image that each pod got its telemetry from; None where it has none."""
    inits = [{c["name"]: c["image"] for c in pod["spec"].get("initContainers", ())} for pod in scene.pods()]
    return [each.get(CONTAINER) for each in inits]


async def test_engines_get_the_telemetry_from_the_operators_own_image() -> None:
    scene = Scene()
    scene.operator = operator(scene, "registry.corp/kintsugi:1")
    scene.deploy({"short": 2})
    await scene.run(300)
    assert sources(scene) == ["registry.corp/kintsugi:1"] * 2


async def test_an_upgrade_of_the_operator_moves_no_engine_and_a_new_revision_gets_its_own() -> None:
    scene = Scene()
    scene.operator = operator(scene, "registry.corp/kintsugi:1")
    scene.deploy({"short": 2})
    await scene.run(300)
    before = set(scene.names_of("short"))
    scene.operator = operator(scene, "registry.corp/kintsugi:2")
    await scene.run(600)
    assert set(scene.names_of("short")) == before
    scene.edit(engine={"env": [{"name": "A", "value": "1"}]})
    await scene.run(3600)
    assert not before & set(scene.names_of("short"))
    assert sources(scene) == ["registry.corp/kintsugi:2"] * 2


async def test_an_engine_of_a_release_that_nobody_knows_gets_none() -> None:
    scene = Scene()
    scene.operator = operator(scene, "registry.corp/kintsugi:1")
    scene.deploy({"short": 1}, engine={"image": "vllm/vllm-openai:nightly"})
    await scene.run(300)
    assert sources(scene) == [None]
