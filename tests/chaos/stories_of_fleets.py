"""Trouble around and in fleets, while the operator itself is well."""

import json
import time
from typing import Final

from kintsugi.core import names
from kintsugi.core.names import MEMBER_LABEL
from tests.chaos.stage import LOST, PLACE, STEP, Scene, evictions, stream
from tests.cluster.kube import wait_for
from tests.integration.fleet import NAME, Fleet, in_rotation, is_ready
from tests.integration.sight import Json

NODE_LOST_SECONDS: Final = 53.0
"""A lost node is NotReady after 50 s, and its pods are replaced 3 s later."""
FRAGMENTED_SECONDS: Final = 3 * STEP
"""Its evidence is a window without a gap, and while two dozen fleets start there are gaps."""
ROOM: Final = "chaos.kintsugi.dev/room"
FINALIZER: Final = "example.com/hold"


def no_metrics(scene: Scene) -> None:
    """All pages are errors while memory falls to pieces: nothing is known, so nobody is removed."""
    fleet = scene.fleet
    pods = [pod["metadata"]["name"] for pod in scene.warm(calm=True)]
    for pod in pods:
        fleet.engines.inject(pod, "metricsError", status=500)
        fleet.engines.inject(pod, "fragmentation", percent=60)
    scene.until("no data", lambda: fleet.condition("DataFresh").get("status") == "False")
    time.sleep(1.5 * fleet.times.fragmentation_window)
    assert fleet.condition("HealingAllowed")["reason"] == "NoData"
    assert {fleet.withheld(pod) for pod in pods} == {"noData"}
    for pod in pods:
        fleet.engines.clear(pod)
    scene.until("data again", lambda: fleet.condition("DataFresh").get("status") == "True")
    time.sleep(fleet.times.hold)
    assert fleet.mends() == []


def all_slow(scene: Scene) -> None:
    """Every engine of the pool loses three fifths of its speed at once: a cause outside of them."""
    fleet = scene.fleet
    pods = [pod["metadata"]["name"] for pod in scene.warm()]
    with fleet.traffic(short=4) as sent:
        time.sleep(2 * fleet.times.throughput_window)
        for pod in pods:
            fleet.engines.inject(pod, "throughputDrop", percent=60)
        time.sleep(3 * fleet.times.throughput_window)
        assert fleet.mends() == []
        scene.remark = f"said: {fleet.condition('Degraded').get('message', '')[:90]}"
        for pod in pods:
            fleet.engines.clear(pod)
    assert [one.error for one in sent if one.error] == []


def all_hang(scene: Scene) -> None:
    """All engines stop at once, and go on later: a storm, in which nobody is removed."""
    fleet = scene.fleet
    pods = [pod["metadata"]["name"] for pod in scene.warm()]
    for pod in pods:
        fleet.engines.inject(pod, "hang")
    scene.until("a storm", lambda: fleet.condition("HealingAllowed").get("reason") == "Storm")
    time.sleep(4 * fleet.times.stall_remove + fleet.times.hold)
    assert fleet.ended() == set()
    for pod in pods:
        fleet.engines.clear(pod)
    scene.until(
        "the storm is over", lambda: fleet.condition("HealingAllowed").get("status") == "True", 2 * STEP
    )


def eviction_refused(scene: Scene) -> None:
    """A PodDisruptionBudget of somebody else allows nothing: the eviction is waited for, never forced."""
    fleet = scene.fleet
    scene.warm()
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "never"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {names.DEPLOYMENT_LABEL: NAME}}},
    }
    fleet.kubectl("apply", "-f", "-", input=json.dumps(budget))
    victim = scene.victim()
    name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
    scene.until("it is said", lambda: fleet.withheld(name) in ("eviction", "disruptionBudget"))
    time.sleep(4 * fleet.times.stall_remove)
    assert fleet.ending_at(uid) is None
    fleet.kubectl("delete", "pdb", "never")
    scene.until_cured()
    assert fleet.ended() == {uid}


def replacement_pending(scene: Scene) -> None:
    """There is no place for the replacement, and another engine falls sick meanwhile: it is not removed as well."""
    fleet = scene.fleet
    place = f"{ROOM}-"
    scene.warm()
    scene.cluster.kubectl("label", "nodes", "--all", place)
    first = scene.victim(number=0)
    scene.until("nothing more can be done", lambda: _waits_for_room(fleet, first))
    others = [pod for pod in fleet.pods() if pod["metadata"]["uid"] != first["metadata"]["uid"]]
    second = next(pod for pod in others if is_ready(pod) and in_rotation(pod))
    fleet.engines.inject(second["metadata"]["name"], "hang")
    time.sleep(4 * fleet.times.stall_remove + fleet.times.hold)
    assert fleet.ended() <= {first["metadata"]["uid"]}
    scene.remark = f"withheld meanwhile: {fleet.withheld(second['metadata']['name']) or 'nothing'}"
    fleet.engines.clear(second["metadata"]["name"])
    scene.cluster.kubectl("label", "nodes", "-l", f"{PLACE}!={LOST}", f"{ROOM}=yes")
    scene.until_cured()
    assert second["metadata"]["uid"] in fleet.uids()


def _waits_for_room(fleet: Fleet, victim: Json) -> bool:
    pending = [p for p in fleet.pods() if not p["spec"].get("nodeName")]
    gone = fleet.ending_at(victim["metadata"]["uid"]) is not None
    return (bool(pending) and gone) or fleet.withheld(victim["metadata"]["name"]) not in (
        "",
        "hold",
        "removalTime",
    )


def cleared_while_it_drains(scene: Scene) -> None:
    """The memory is whole again while the victim, let go already, ends its last stream: it goes, and is no cure."""
    fleet = scene.fleet
    scene.warm(calm=True)
    victim = scene.victim("fragmentation", percent=60)
    name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
    fleet.wait_until_withdrawn(victim, FRAGMENTED_SECONDS)
    # 110 s of tokens each, as the client waits 120 s at most: the first ones last until it is let go, the others until the
    # judge has seen the trigger clear.
    with stream(fleet, victim, 4400) as first:
        scene.until("it is let go", lambda: MEMBER_LABEL not in _labels(fleet, name))
        fleet.engines.clear(name)
        with stream(fleet, victim, 4400) as last:
            scene.until("it is over", lambda: scene.phases() == ["Done"], 2 * STEP)
            status = fleet.mends()[0]["status"]
            assert status["outcome"] == "Cancelled", status
            assert fleet.ended() == {uid}
            for one in (first, last):
                said, _ = one.communicate(timeout=120)
                assert one.returncode == 0, f"the stream was cut: {said}"


def _labels(fleet: Fleet, pod: str) -> Json:
    found: Json = fleet.sight.now("pods").get(pod, {"metadata": {"labels": {}}})["metadata"]["labels"]
    return found


def two_triggers(scene: Scene) -> None:
    """Memory in pieces, and then not a step any more: one instance, one removal."""
    fleet = scene.fleet
    scene.warm(calm=True)
    victim = scene.victim("fragmentation", percent=60)
    fleet.wait_until_withdrawn(victim, FRAGMENTED_SECONDS)
    fleet.engines.inject(victim["metadata"]["name"], "hang")
    scene.until_cured()
    assert fleet.ended() == {victim["metadata"]["uid"]}


def during_a_rollout(scene: Scene) -> None:
    """An engine of the old revision hangs while the new one is rolled out."""
    fleet = scene.fleet
    before = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in scene.warm()}
    began = time.time()
    fleet.edit(engine=fleet.manifest["spec"]["engine"] | {"args": {"maxNumSeqs": 32}})
    scene.until("one is new", lambda: [p for p in fleet.pods() if p["metadata"]["uid"] not in before])
    old = next(p for p in fleet.pods() if p["metadata"]["uid"] in before and in_rotation(p))
    fleet.engines.inject(old["metadata"]["name"], "hang")

    def rolled_out() -> bool:
        pods = fleet.pods()
        return len(pods) == 3 and not {p["metadata"]["uid"] for p in pods} & set(before)

    scene.until("all are new", rolled_out, 3 * STEP)
    scene.until("all are ready", lambda: all(map(is_ready, fleet.pods())))
    removed = evictions(scene.cluster, fleet.namespace)
    by_rollout = {s.uid for s in fleet.sight.seen("pods") if s.uid in fleet.ended() and s.name not in removed}
    scene.others |= by_rollout - {old["metadata"]["uid"]}
    least = fleet.least_serving(began)
    scene.remark = f"{least} of 3 served at least"
    assert least >= 1


def node_lost(scene: Scene) -> None:
    """A node loses its power for good, and comes back when nobody waits for it any more (S25)."""
    fleet = scene.fleet
    pods = scene.warm()
    node = pods[0]["spec"]["nodeName"]
    on_it = {pod["metadata"]["uid"] for pod in pods if pod["spec"]["nodeName"] == node}
    elsewhere = fleet.uids() - on_it
    scene.cluster.power_off(node)
    try:
        scene.until(
            "the pool is whole on the other node",
            lambda: sum(1 for p in fleet.pods() if is_ready(p) and p["spec"].get("nodeName") != node) == 3,
            NODE_LOST_SECONDS + STEP,
        )
        # Long enough for a second thought about the ones that are well.
        time.sleep(2 * fleet.times.hold + fleet.times.warm_up)
    finally:
        scene.cluster.power_on(node)
    wait_for("the node is back", lambda: node in scene.cluster.ready_nodes(), STEP)
    scene.until("nothing of the dead is left", lambda: not on_it & _all_uids(fleet))
    assert elsewhere <= fleet.uids()
    assert fleet.ended() == on_it
    assert len(fleet.pods()) == 3
    # Kubernetes ended them, and not more than were there.
    scene.others |= on_it
    scene.remark = f"{len(on_it)} engines went with their node"


def _all_uids(fleet: Fleet) -> set[str]:
    return {pod["metadata"]["uid"] for pod in fleet.sight.now("pods").values()}


def foreign_finalizer(scene: Scene) -> None:
    """Somebody else's finalizer holds the evicted pod: it is left to him, and holds nothing else up."""
    fleet = scene.fleet
    scene.warm()
    victim = fleet.pods()[0]
    name, uid = victim["metadata"]["name"], victim["metadata"]["uid"]
    patch = json.dumps({"metadata": {"finalizers": [FINALIZER]}})
    fleet.kubectl("patch", "pod", name, "--type=merge", "-p", patch)
    scene.victim()
    try:
        scene.until_cured()
        held = fleet.sight.now("pods")[name]["metadata"]
        assert held["deletionTimestamp"]
        assert held["finalizers"] == [FINALIZER]
        time.sleep(2 * fleet.times.hold)
        assert fleet.ended() == {uid}
    finally:
        none = json.dumps({"metadata": {"finalizers": []}})
        fleet.kubectl("patch", "pod", name, "--type=merge", "-p", none)
    scene.until("it is gone", lambda: uid not in _all_uids(fleet))


def restored(scene: Scene) -> None:
    """A fleet comes back from a backup that was made, status and all, in the middle of a remediation."""
    fleet = scene.fleet
    scene.warm()
    scene.victim()
    scene.until("it is held", lambda: "Quarantined" in scene.phases())
    backup = json.loads(fleet.kubectl("get", "dsv4", NAME, "-o", "json"))
    mends = json.loads(fleet.kubectl("get", "remediations", "-o", "json"))["items"]
    assert backup["status"]["remediations"]["active"]
    fleet.kubectl("delete", "dsv4", NAME, "--cascade=foreground", "--timeout=90s")
    scene.until("its engines are gone", lambda: not fleet.pods())
    scene.others |= fleet.ended()
    for document in (backup, *mends):
        kept = {
            key: document["metadata"][key]
            for key in ("name", "namespace", "labels", "annotations")
            if key in document["metadata"]
        }
        document["metadata"] = kept
        fleet.kubectl("create", "-f", "-", input=json.dumps(document))
    version = json.loads(fleet.kubectl("get", "dsv4", NAME, "-o", "json"))["metadata"]["resourceVersion"]
    backup["metadata"]["resourceVersion"] = version
    scene.remark = (
        "with its status" if _write_status(fleet, backup) else "the operator had written its own status"
    )
    fleet.wait_until_ready(STEP)
    time.sleep(2 * fleet.times.stall_remove + fleet.times.hold)


def _write_status(fleet: Fleet, backup: Json) -> bool:
    """Put the old status back as a backup tool does; False where the operator was faster."""
    for _ in range(5):
        now = json.loads(fleet.kubectl("get", "dsv4", NAME, "-o", "json"))
        now["status"] = backup["status"]
        try:
            fleet.kubectl("replace", "--subresource=status", "-f", "-", input=json.dumps(now))
        except RuntimeError:
            continue
        return True
    return False
