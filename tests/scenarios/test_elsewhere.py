"""RecreateElsewhere: nodes with strikes are avoided by new pods, before the sick one goes, and for a time (design §3)."""

import json
from typing import Any

import pytest

from kintsugi.core import names
from kintsugi.core.ladder import SAME_NODE_REMEDIES
from kintsugi.core.moment import moment
from tests.scenarios.stage import UNHURRIED, Scene, warm

FAST = {"storm": {"holdSeconds": 60}}
HOST = names.HOSTNAME_LABEL


def set_health(scene: Scene, pod: str, health: str | None) -> None:
    scene.cluster.set_device_health(scene.key.namespace, pod, health)


def affinity(scene: Scene) -> Any:
    """`affinity` of the template of the only ReplicaSet; {} where it has none."""
    (owner,) = scene.cluster.all("ReplicaSet", scene.key.namespace)
    return owner["spec"]["template"]["spec"].get("affinity") or {}


def avoided(scene: Scene) -> list[str]:
    """Hosts that every node selector term of the template excludes."""
    node = affinity(scene).get("nodeAffinity") or {}
    terms = (node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    found = [
        set(each["values"])
        for term in terms
        for each in term.get("matchExpressions", [])
        if (each["key"], each["operator"]) == (HOST, "NotIn")
    ]
    return sorted(set.intersection(*found)) if len(found) == len(terms) and found else []


async def test_s55_an_instance_with_a_sick_gpu_is_moved_to_another_node() -> None:
    scene = await warm({"short": 3}, then=5)
    victim = scene.names_of("short")[0]
    node, uids = scene.node(victim), scene.uids()
    set_health(scene, victim, "Unhealthy")
    done = await scene.until_done(every=UNHURRIED)
    assert (done.spec.trigger, done.spec.remedy, done.status.outcome) == (
        "deviceHealth",
        "RecreateElsewhere",
        "Cured",
    )
    assert done.status.path == "Surge"
    assert scene.removals() == [victim]
    assert done.status.replacement is not None
    assert scene.node(done.status.replacement.name) != node
    assert len(scene.uids() & uids) == 2, "the others were left alone"
    strikes = scene.status.remediations.strikes
    assert [(s.node, bool(s.device), s.count) for s in strikes] == [(node, False, 1), (node, True, 1)]
    assert done.metadata.labels[names.SUSPECT_NODE_LABEL] == node
    assert done.spec.instance.node == node
    assert scene.told("NodeSuspect") == 2, "of the deployment, and of the node"


async def test_the_template_avoids_the_node_before_the_sick_pod_is_let_go() -> None:
    scene = await warm({"short": 3}, then=5)
    victim = scene.names_of("short")[0]
    node = scene.node(victim)
    set_health(scene, victim, "Unhealthy")
    await scene.until_removed()
    order = [w.verb for w in scene.cluster.writes if w.kind in ("ReplicaSet", "Pod") and w.verb != "create"]
    told = [n for n, w in enumerate(scene.cluster.writes) if (w.verb, w.kind) == ("patch", "ReplicaSet")]
    freed = [
        n for n, w in enumerate(scene.cluster.writes) if w.kind == "Pod" and "ownerReferences" in w.detail
    ]
    assert len(told) == 1, order
    assert told[0] < freed[0], "a replacement that is made too early may get the same GPU"
    assert avoided(scene) == [node]
    revisions = {pod["metadata"]["labels"][names.REVISION_LABEL] for pod in scene.pods()}
    assert len(revisions) == 1, "avoidance is no part of the revision"
    assert scene.condition("Progressing")[1] != "RolloutStalled"


async def test_avoidance_is_taken_out_when_the_strike_expires_and_moves_no_pod() -> None:
    scene = await warm({"short": 3}, then=5)
    victim = scene.names_of("short")[0]
    set_health(scene, victim, "Unhealthy")
    await scene.until_done(every=UNHURRIED)
    uids = scene.uids()
    assert avoided(scene)
    await scene.run(7200, every=60)
    assert affinity(scene) == {}
    (owner,) = scene.cluster.all("ReplicaSet", scene.key.namespace)
    assert names.AVOIDS_ANNOTATION not in owner["metadata"].get("annotations", {})
    assert scene.uids() == uids
    assert [s.count for s in scene.status.remediations.strikes] == [1, 1], "remembered for a week"


async def test_a_user_s_own_terms_each_get_the_requirement_and_get_rid_of_it_again() -> None:
    mine = [
        {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h200"]}]},
        {"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": ["node9"]}]},
    ]
    wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": mine}}}
    scene = await warm({"short": 3}, then=5, podTemplate={"spec": {"affinity": wanted}})
    victim = scene.names_of("short")[0]
    node = scene.node(victim)
    set_health(scene, victim, "Unhealthy")
    await scene.until_done(every=UNHURRIED)
    ours = {"key": HOST, "operator": "NotIn", "values": [node]}
    terms = affinity(scene)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["matchExpressions"][-1] for term in terms["nodeSelectorTerms"]] == [ours, ours]
    assert [term["matchExpressions"][0] for term in terms["nodeSelectorTerms"]] == [
        mine[0]["matchExpressions"][0],
        mine[1]["matchExpressions"][0],
    ]
    await scene.run(7200, every=60)
    assert json.dumps(affinity(scene), sort_keys=True) == json.dumps(wanted, sort_keys=True)


async def test_s55_without_room_on_another_node_a_sick_gpu_that_serves_is_left_alone() -> None:
    scene = await warm({"short": 3}, nodes=3, then=5)
    victim = scene.names_of("short")[0]
    set_health(scene, victim, "Unhealthy")
    await scene.run(900)
    assert scene.removals() == []
    assert scene.rotation(victim) == "in"
    assert scene.withheld() == {victim: "elsewhere"}
    (said,) = scene.status.remediations.withheld
    assert scene.node(victim) in said.message
    assert scene.remediations() == [], "nothing was begun that could not be ended"
    scene.cluster.add_node("node9", gpus=1)
    done = await scene.until_done(every=UNHURRIED)
    assert done.status.replacement is not None
    assert scene.node(done.status.replacement.name) == "node9"


async def test_s55_without_room_elsewhere_another_fault_of_it_is_cured_in_place() -> None:
    scene = await warm({"short": 3}, nodes=3, then=5)
    victim = scene.names_of("short")[0]
    set_health(scene, victim, "Unhealthy")
    await scene.run(120)
    scene.engines.change(victim, errors=0.5, canary_errors=0.5)
    done = await scene.until_done(every=UNHURRIED)
    assert (done.spec.trigger, done.spec.remedy) == ("errors", "Recreate")
    assert scene.removals() == [victim]


async def test_s55_another_fault_of_an_instance_with_a_sick_gpu_moves_it_too() -> None:
    scene = await warm(
        {"short": 3}, nodes=4, then=5, healing={"triggers": {"deviceHealth": {"mode": "Observe"}}}
    )
    victim = scene.names_of("short")[0]
    node = scene.node(victim)
    set_health(scene, victim, "Unhealthy")
    await scene.run(120)
    scene.engines.change(victim, errors=0.5, canary_errors=0.5)
    done = await scene.until_done(every=UNHURRIED)
    assert (done.spec.trigger, done.spec.remedy) == ("errors", "RecreateElsewhere")
    assert done.status.replacement is not None
    assert scene.node(done.status.replacement.name) != node


async def test_s55_recovery_while_it_is_held_gives_the_instance_back() -> None:
    scene = await warm({"short": 3}, then=5)
    victim = scene.names_of("short")[0]
    set_health(scene, victim, "Unhealthy")
    await scene.until_withdrawn(victim)
    set_health(scene, victim, "Healthy")
    done = await scene.until_done(every=UNHURRIED)
    assert done.status.outcome == "Cancelled"
    assert (scene.removals(), scene.rotation(victim)) == ([], "in")
    assert scene.status.remediations.strikes == ()
    assert affinity(scene) == {}


async def test_a_fault_that_comes_back_within_the_memory_is_moved_and_then_given_up() -> None:
    scene = await warm({"short": 3}, nodes=4, then=15)
    where: list[str] = []
    victim = scene.names_of("short")[0]
    for remedy in ("Recreate", "RecreateElsewhere"):
        where.append(scene.node(victim))
        scene.engines.change(victim, hung=True)
        await scene.until_removed(len(where))
        done = await scene.until_done(every=UNHURRIED)
        assert (done.spec.remedy, done.status.outcome) == (remedy, "Cured")
        assert done.status.replacement is not None
        victim = done.status.replacement.name
    last = victim
    assert scene.node(last) != where[1]
    scene.engines.change(last, hung=True)
    await scene.until_withdrawn(last)
    assert scene.condition("Degraded")[1] != "Exhausted", "a pause of a minute is no reason to give up"
    given_up = await scene.until_done(every=UNHURRIED)
    await scene.run(60)
    assert (given_up.spec.remedy, given_up.status.outcome) == ("GiveUp", "Exhausted")
    assert given_up.spec.attempt == 3
    assert len(scene.removals()) == 2, "it is left as it is"
    assert scene.rotation(last) == "out", "and takes no request that it would not answer"
    assert scene.serving() == 2, "the pool serves on"
    assert scene.condition("Degraded") == ("True", "Exhausted")
    assert scene.withheld() == {last: "exhausted"}
    assert scene.told("RemediationExhausted") == 1
    entry = next(each for each in scene.status.instances if each.name == last)
    assert entry.remedy == "GiveUp"
    await scene.run(3 * 3600, every=60)
    assert len(scene.remediations()) == 3, "nothing is tried until a person says so, however long it takes"


async def test_a_person_lets_healing_begin_anew_where_it_gave_up() -> None:
    scene = await warm({"short": 3}, nodes=4, then=15, healing={"ladder": ["Recreate"]})
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, hung=True)
    await scene.until_removed()
    done = await scene.until_done(every=UNHURRIED)
    assert done.status.replacement is not None
    heir = done.status.replacement.name
    scene.engines.change(heir, hung=True)
    await scene.run_until(lambda s: s.condition("Degraded")[1] == "Exhausted", 1200)
    await scene.run(120)
    now = scene.cluster.clock.now()
    scene.annotate(kintsugi_dev__reset_ladders="soon")
    await scene.run(60)
    assert scene.withheld() == {heir: "exhausted"}, "no time, no reset"
    patch = {"metadata": {"annotations": {names.RESET_LADDERS_ANNOTATION: moment(now + 60).isoformat()}}}
    scene.cluster.edit(names.DEPLOYMENT_KIND, "llm", "chat", patch)
    await scene.until_removed(2)
    assert scene.removals() == [victim, heir]


async def test_a_second_strike_within_the_week_lasts_longer() -> None:
    scene = await warm({"short": 2}, nodes=2, gpus=2, then=15)
    for number, expected in enumerate((7200, 86_400), start=1):
        pod = next(p for p in scene.names_of("short") if scene.node(p) == "node1")
        set_health(scene, pod, "Unhealthy")
        await scene.until_removed(number)
        await scene.until_done(every=UNHURRIED)
        entry = next(s for s in scene.status.remediations.strikes if s.node == "node1" and not s.device)
        assert entry.expires_at is not None
        assert entry.last_at is not None
        assert (entry.expires_at - entry.last_at).total_seconds() == pytest.approx(expected, abs=1)
        if number == 2:
            break
        await scene.run(expected, every=60)
        # Back on the first node: somebody drained the other.
        other = next(p for p in scene.names_of("short") if scene.node(p) == "node2")
        scene.cluster.cordon("node2")
        scene.cluster.remove("Pod", "llm", other)
        await scene.run(1500, every=30)
        scene.cluster.cordon("node2", False)
        await scene.run(60)


def test_the_rungs_that_may_bring_the_same_gpu_back_are_named() -> None:
    assert {"Compact", "Recreate"} == SAME_NODE_REMEDIES
