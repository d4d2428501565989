"""Actions on nodes themselves: only by opt-in, undone when the strike expires, and never what others did (safety rule 25)."""

from typing import Any

import pytest

from kintsugi.core import names
from kintsugi.core.moment import moment
from kintsugi.core.nodemarks import TAINT
from tests.scenarios.stage import Scene, warm


def node_of(scene: Scene, name: str) -> Any:
    return scene.cluster.get("Node", "", name)


def marks(scene: Scene, name: str) -> dict[str, str]:
    meta = node_of(scene, name)["metadata"]
    return {
        key: value for key, value in meta.get("annotations", {}).items() if key.startswith("kintsugi.dev/")
    }


async def struck(action: str | None, nodes: int = 4) -> tuple[Scene, str]:
    """A fleet whose victim was moved away from a node, and that node."""
    healing = {} if action is None else {"nodeActions": action}
    scene = await warm({"short": 3}, nodes=nodes, then=15, healing=healing)
    victim = scene.names_of("short")[0]
    node = scene.node(victim)
    scene.cluster.set_device_health("llm", victim, "Unhealthy")
    await scene.until_removed()
    await scene.run(60)
    return scene, node


@pytest.mark.parametrize("action", [None, "None"])
async def test_no_node_is_touched_unless_the_user_says_so(action: str | None) -> None:
    scene, node = await struck(action)
    assert [w for w in scene.cluster.writes if w.kind == "Node"] == []
    assert scene.status.remediations.strikes[0].action == ""
    assert "unschedulable" not in node_of(scene, node)["spec"]
    assert scene.told("NodeSuspect") == 2


async def test_a_cordoned_node_is_given_back_when_the_strike_expires() -> None:
    scene, node = await struck("Cordon")
    assert node_of(scene, node)["spec"]["unschedulable"] is True
    assert node_of(scene, node)["metadata"]["labels"][names.SUSPECT_LABEL] == "true"
    assert len(marks(scene, node)) == 2
    assert {s.action for s in scene.status.remediations.strikes if not s.device} == {"Cordon"}
    writes = len(scene.cluster.writes)
    await scene.until_done()
    await scene.run(3600, every=60)
    assert [w for w in scene.cluster.writes[writes:] if w.kind == "Node"] == [], "once, not in each pass"
    await scene.run(3600, every=60)
    assert not node_of(scene, node)["spec"].get("unschedulable")
    assert names.SUSPECT_LABEL not in node_of(scene, node)["metadata"]["labels"]
    assert marks(scene, node) == {}
    assert {s.action for s in scene.status.remediations.strikes} == {""}


async def test_a_tainted_node_keeps_the_taints_of_others() -> None:
    scene = await warm({"short": 3}, nodes=4, then=15, healing={"nodeActions": "Taint"})
    victim = scene.names_of("short")[0]
    node = scene.node(victim)
    theirs = {"key": "team", "value": "x", "effect": "PreferNoSchedule"}
    scene.cluster.edit("Node", "", node, {"spec": {"taints": [theirs]}})
    scene.cluster.set_device_health("llm", victim, "Unhealthy")
    await scene.until_removed()
    await scene.run(60)
    assert node_of(scene, node)["spec"]["taints"] == [theirs, dict(TAINT)]
    await scene.run(7500, every=60)
    assert node_of(scene, node)["spec"]["taints"] == [theirs]


async def test_a_node_that_somebody_else_cordoned_stays_cordoned() -> None:
    scene = await warm({"short": 3}, nodes=4, then=15, healing={"nodeActions": "Cordon"})
    victim = scene.names_of("short")[0]
    node = scene.node(victim)
    scene.cluster.cordon(node)
    scene.cluster.set_device_health("llm", victim, "Unhealthy")
    await scene.until_removed()
    await scene.run(7500, every=60)
    assert node_of(scene, node)["spec"]["unschedulable"] is True
    assert marks(scene, node) == {}


async def test_what_another_deployment_still_wants_is_left_and_what_nobody_lives_to_undo_is_undone() -> None:
    scene, node = await struck("Cordon")
    later = scene.cluster.clock.now() + 3 * 3600
    other = f"{names.NODE_HOLDER_PREFIX}other-uid"
    scene.cluster.edit("Node", "", node, {"metadata": {"annotations": {other: moment(later).isoformat()}}})
    await scene.run(7500, every=60)
    assert node_of(scene, node)["spec"]["unschedulable"] is True
    assert set(marks(scene, node)) == {other, names.NODE_ACTION_ANNOTATION}
    await scene.run(2 * 3600, every=60)
    victim = scene.names_of("short")[0]  # the nodes are read again once something is to be done
    scene.engines.change(victim, hung=True)
    await scene.run(600)
    assert not node_of(scene, node)["spec"].get("unschedulable")
    assert marks(scene, node) == {}


async def test_a_reset_by_a_person_gives_the_node_back_at_once() -> None:
    scene, node = await struck("Cordon")
    await scene.until_done()
    stamp = moment(scene.cluster.clock.now()).isoformat()
    patch = {"metadata": {"annotations": {names.RESET_LADDERS_ANNOTATION: stamp}}}
    scene.cluster.edit(names.DEPLOYMENT_KIND, "llm", "chat", patch)
    await scene.run(120)
    assert not node_of(scene, node)["spec"].get("unschedulable")
    assert scene.status.remediations.strikes == ()
    (owner,) = scene.cluster.all("ReplicaSet", "llm")
    assert "affinity" not in owner["spec"]["template"]["spec"]


async def test_taking_back_the_permission_in_the_spec_gives_the_node_back() -> None:
    scene, node = await struck("Cordon")
    await scene.until_done()
    scene.edit(healing={"nodeActions": "None"})
    await scene.run(120)
    assert not node_of(scene, node)["spec"].get("unschedulable")
    assert any(s.expires_at for s in scene.status.remediations.strikes), "it is avoided all the same"


async def test_at_most_one_node_in_ten_is_taken_away() -> None:
    scene = await warm({"short": 3}, nodes=5, then=15, healing={"nodeActions": "Cordon"})
    for number in (1, 2):
        victim = next(p for p in scene.names_of("short") if scene.node(p) in ("node1", "node2", "node3"))
        scene.cluster.set_device_health("llm", victim, "Unhealthy")
        await scene.until_removed(number)
        await scene.until_done()
    await scene.run(120)
    cordoned = [n for n in scene.cluster.all("Node") if n["spec"].get("unschedulable")]
    assert len([s for s in scene.status.remediations.strikes if not s.device]) == 2
    assert len(cordoned) == 1
