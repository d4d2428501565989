"""The operator killed, frozen, doubled, deaf, without rights, or with a clock that jumps."""

import json
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from typing import Final

from kintsugi.core.names import MEMBER_LABEL
from tests.chaos.stage import STEP, Scene, stream, wait_for_line
from tests.cluster.kube import CommandFailed, wait_for
from tests.integration.fleet import Fleet
from tests.integration.installed import CONTAINER
from tests.integration.sight import Json

BLACK_HOLE_SECONDS: Final = 90.0
REFUSED_SECONDS: Final = 180.0
TAKEOVER_SECONDS: Final = 60.0
API_GONE_SECONDS: Final = 8.0
"""With its start, which takes ten seconds and more on a busy machine, well below the 50 s without a sign of life after
which the nodes are called lost and their addresses are taken away."""
KUBE_PROXY_SECONDS: Final = 2.0
"""Until the nodes send nothing more to an address that left the EndpointSlice."""
WEDGED_SECONDS: Final = 180.0
"""Six probes of the chart, ten seconds apart and five long, and half a minute in which it might have ended by itself."""
SLOW_STEPS: Final[Json] = {
    "drain": {"timeoutSeconds": 3000},
    "storm": {"holdSeconds": 160, "percent": 100},
    "probationSeconds": 160,
}
"""Each step lasts for eight seconds, so that what happens falls into it."""

Reached = Callable[[Fleet, Json], bool]


def reserved(fleet: Fleet, victim: Json) -> bool:
    return any(m.get("status", {}).get("phase") == "Quarantined" for m in fleet.mends())


def released(fleet: Fleet, victim: Json) -> bool:
    pod = fleet.sight.now("pods").get(victim["metadata"]["name"])
    return pod is not None and MEMBER_LABEL not in pod["metadata"]["labels"]


def evicted(fleet: Fleet, victim: Json) -> bool:
    return fleet.ending_at(victim["metadata"]["uid"]) is not None


def replaced(fleet: Fleet, victim: Json) -> bool:
    """Its successor is there, beside it or in its place."""
    return len({seen.uid for seen in fleet.sight.seen("pods")}) > 2


def in_phase(phase: str) -> Reached:
    return lambda fleet, victim: any(m.get("status", {}).get("phase") == phase for m in fleet.mends())


def killed(reached: Reached, fault: str = "hang") -> Callable[[Scene], None]:
    """SIGKILL to the operator once that step is reached (S33)."""

    def story(scene: Scene) -> None:
        fleet, operator = scene.fleet, scene.operator
        scene.warm(calm=fault == "fragmentation")
        before = fleet.uids()
        victim = scene.victim(fault)
        uid = victim["metadata"]["uid"]
        fleet.wait_until_withdrawn(victim, STEP)
        with stream(fleet, victim, 4000) if fault == "fragmentation" else nullcontext() as last:
            scene.until("the step is reached", lambda: reached(fleet, victim))
            restarts = operator.restarts()
            operator.kill()
            operator.wait_until_restarted(restarts)
            done = scene.until_cured(3 * STEP)
            assert done["spec"]["instance"]["uid"] == uid
            assert fleet.ended() == {uid}
            replacement = done["status"]["replacement"]["uid"]
            assert fleet.uids() == before - {uid} | {replacement}
            if last is not None:
                said, _ = last.communicate(timeout=90)
                assert last.returncode == 0, f"the stream was cut: {said}"

    return story


def frozen_leader(scene: Scene) -> None:
    """Two replicas: the leader freezes in the middle of a removal, the other takes over, and the first one wakes (S31).

    A stranger's peering object of the framework, with a higher priority, means nothing to either.
    """
    fleet, operator = scene.fleet, scene.operator
    definition, stranger = _peering()
    scene.cluster.apply(definition)
    scene.cluster.kubectl(
        "wait", "crd", definition["metadata"]["name"], "--for=condition=Established", "--timeout=60s"
    )
    wait_for("its kind is served", lambda: _applied(scene, stranger), STEP, every_seconds=1.0)
    scene.warm()
    victim = scene.victim()
    scene.until("it is held", lambda: reserved(fleet, victim))
    leader = _leader(scene)
    scene.cluster.kill_container(operator.name, leader, CONTAINER, number=signal.SIGSTOP)
    frozen = time.monotonic()
    try:
        wait_for("another leads", lambda: _leader(scene) not in ("", leader), TAKEOVER_SECONDS)
        took = time.monotonic() - frozen
        at = time.time()
        scene.until("the victim goes", lambda: evicted(fleet, victim))
        ended = fleet.ending_at(victim["metadata"]["uid"])
        assert ended is not None
        assert ended - at >= 0.8 * fleet.times.stall_remove, "a new leader acts on evidence of its own"
    finally:
        scene.cluster.kill_container(operator.name, leader, CONTAINER, number=signal.SIGCONT)
    scene.remark = f"another led after {took:.0f} s"
    scene.until_cured()
    assert fleet.ended() == {victim["metadata"]["uid"]}


def wedged(scene: Scene) -> None:
    """The only operator stands still in the middle of a removal: the kubelet sees no progress, and starts it again."""
    fleet, operator = scene.fleet, scene.operator
    scene.warm()
    victim = scene.victim()
    scene.until("it is held", lambda: reserved(fleet, victim))
    restarts, began = operator.restarts(), time.monotonic()
    name = operator.pod()["metadata"]["name"]
    scene.cluster.kill_container(operator.name, name, CONTAINER, number=signal.SIGSTOP)
    wait_for("it is started again", lambda: operator.restarts() > restarts, WEDGED_SECONDS, every_seconds=1.0)
    scene.remark = f"started again after {time.monotonic() - began:.0f} s"
    scene.until_cured()
    assert fleet.ended() == {victim["metadata"]["uid"]}


def _leader(scene: Scene) -> str:
    name = scene.operator.name
    lease = scene.cluster.reader.json(f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases/{name}")
    return str((lease or {}).get("spec", {}).get("holderIdentity") or "")


def _applied(scene: Scene, document: Json) -> bool:
    try:
        scene.cluster.apply(document)
    except CommandFailed:
        return False
    return True


def _peering() -> tuple[Json, Json]:
    kind = {"kind": "ClusterKopfPeering", "plural": "clusterkopfpeerings", "singular": "clusterkopfpeering"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterkopfpeerings.kopf.dev"},
        "spec": {
            "group": "kopf.dev",
            "scope": "Cluster",
            "names": kind,
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }
    stranger = {
        "apiVersion": "kopf.dev/v1",
        "kind": "ClusterKopfPeering",
        "metadata": {"name": "default"},
        "status": {"stranger": {"priority": 666, "lifetime": 86400, "lastseen": "2030-01-01T00:00:00"}},
    }
    return crd, stranger


def black_hole(scene: Scene) -> None:
    """90 s without an answer from the API server, in the middle of a removal; somebody scales up meanwhile (S28)."""
    fleet, proxy = scene.fleet, scene.proxy
    assert proxy is not None
    scene.warm()
    victim = scene.victim()
    scene.until("it is held", lambda: reserved(fleet, victim))
    proxy.make(black_hole=True)
    _scale_up(scene)
    time.sleep(BLACK_HOLE_SECONDS)
    assert fleet.ended() <= {victim["metadata"]["uid"]}
    counts = proxy.make()
    scene.remark = (
        f"{counts['swallowed']} requests swallowed, {_heard_after(scene):.0f} s until the change was heard"
    )
    scene.until_cured()
    assert fleet.ended() == {victim["metadata"]["uid"]}


def _scale_up(scene: Scene) -> None:
    pools = scene.fleet.manifest["spec"]["pools"]
    scene.fleet.edit(pools=[{**pools[0], "replicas": pools[0]["replicas"] + 1}, *pools[1:]])


def _heard_after(scene: Scene) -> float:
    began = time.monotonic()
    scene.until("the change is heard", lambda: len(scene.fleet.pods()) >= scene.fleet.size, STEP)
    return time.monotonic() - began


def refused(scene: Scene) -> None:
    """For three minutes the API server refuses every other request, with 7 s to wait (S29)."""
    fleet, proxy = scene.fleet, scene.proxy
    assert proxy is not None
    scene.warm()
    victim = scene.victim()
    scene.until("it is held", lambda: reserved(fleet, victim))
    restarts = scene.operator.restarts()
    proxy.make(refused_share=0.5, retry_after_seconds=7)
    time.sleep(REFUSED_SECONDS)
    counts = proxy.make()
    assert counts["refused"] > 10
    scene.remark = f"{counts['refused']} requests refused"
    scene.until_cured()
    assert fleet.ended() == {victim["metadata"]["uid"]}
    assert scene.operator.restarts() == restarts, "it needs no restart"


def resets_and_slowness(scene: Scene) -> None:
    """Watches that are gone, connections that are reset, answers that take two seconds; a change and a removal meanwhile."""
    fleet, proxy = scene.fleet, scene.proxy
    assert proxy is not None
    scene.warm()
    proxy.make(reset_share=1.0)
    proxy.make(gone=True)
    _scale_up(scene)
    heard = _heard_after(scene)
    victim = scene.victim()
    proxy.make(reset_share=0.25, gone=True)
    time.sleep(20.0)
    proxy.make(slow_seconds=2.0)
    time.sleep(25.0)
    counts = proxy.make()
    scene.remark = f"{counts['reset']} reset, {counts['gone']} gone, {counts['slowed']} slow; change heard after {heard:.0f} s"
    assert min(counts["reset"], counts["gone"], counts["slowed"]) > 0
    scene.until_cured()
    assert fleet.ended() == {victim["metadata"]["uid"]}


def api_server_restarted(scene: Scene) -> None:
    """The API server itself goes away in the middle of a removal, and comes back; requests know nothing of it."""
    fleet = scene.fleet
    scene.warm()
    restarts = scene.operator.restarts()
    victim = scene.victim()
    scene.until("it is held", lambda: reserved(fleet, victim))
    fleet.wait_until_withdrawn(victim, STEP)
    scene.until("it is out", lambda: victim["status"]["podIP"] not in fleet.addresses("short"))
    time.sleep(KUBE_PROXY_SECONDS)
    with fleet.traffic(short=3) as sent:
        scene.cluster.stop_api_server()
        try:
            time.sleep(API_GONE_SECONDS)
        finally:
            scene.cluster.start_api_server()
        scene.until_cured()
    errors = [one.error for one in sent if one.error]
    assert errors == [], errors[:5]
    assert fleet.ended() == {victim["metadata"]["uid"]}, fleet.ended()
    assert scene.operator.restarts() == restarts, "the operator was started again"


JUMP: Final = """
import signal
import time

jumps = {signal.SIGUSR1: 3600.0, signal.SIGUSR2: -7200.0}
plain, shift = time.time, [0.0]
time.time = lambda: plain() + shift[0]
for number, seconds in jumps.items():
    signal.signal(number, lambda number, frame: shift.__setitem__(0, shift[0] + jumps[number]))
"""
"""`sitecustomize` of the operator's Python: its wall clock jumps an hour ahead, or two hours back, by a signal."""


def give_it_a_clock(scene: Scene) -> None:
    """Restart the operator with a wall clock that jumps on a signal."""
    operator = scene.operator
    source = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "clock", "namespace": operator.name},
        "data": {"sitecustomize.py": JUMP},
    }
    scene.cluster.apply(source)
    container = {
        "name": CONTAINER,
        "env": [{"name": "PYTHONPATH", "value": "/clock"}],
        "volumeMounts": [{"name": "clock", "mountPath": "/clock", "readOnly": True}],
    }
    volume = {"name": "clock", "configMap": {"name": "clock"}}
    patch = json.dumps({"spec": {"template": {"spec": {"containers": [container], "volumes": [volume]}}}})
    scene.cluster.kubectl("-n", operator.name, "patch", f"deployment/{operator.name}", "-p", patch)
    scene.cluster.kubectl(
        "-n", operator.name, "rollout", "status", f"deployment/{operator.name}", "--timeout=90s"
    )
    operator.wait_until_ready()


def clock_jumps(scene: Scene) -> None:
    """Its machine's clock jumps an hour ahead while a victim is held, and two hours back when its replacement is there."""
    fleet, operator = scene.fleet, scene.operator
    give_it_a_clock(scene)
    scene.warm()
    victim = scene.victim()
    scene.until("it is held", lambda: reserved(fleet, victim))
    name = operator.pod()["metadata"]["name"]
    try:
        scene.cluster.kill_container(operator.name, name, CONTAINER, number=signal.SIGUSR1)
        scene.until("its replacement is there", lambda: replaced(fleet, victim))
        took = _made_at(fleet.pods()[-1]) - _made_at(fleet.mends()[0])
        assert took >= fleet.times.hold - 1, "a jump shortens nothing"
        scene.cluster.kill_container(operator.name, name, CONTAINER, number=signal.SIGUSR2)
        scene.remark = f"replaced {took:.0f} s after it was held, an hour ahead meanwhile"
        scene.until_cured()
        time.sleep(2 * fleet.times.hold)
        assert fleet.ended() == {victim["metadata"]["uid"]}
    finally:
        operator.replace()  # a new process, whose clock has not jumped


def _made_at(found: Json) -> float:
    """By the API server's clock, in whole epoch seconds."""
    return datetime.fromisoformat(found["metadata"]["creationTimestamp"]).timestamp()


def rights_lost(scene: Scene) -> None:
    """The operator's rights in the namespace are taken away in the middle of a removal, and given back."""
    fleet, operator = scene.fleet, scene.operator
    scene.warm()
    victim = scene.victim()
    scene.until("it is held", lambda: reserved(fleet, victim))
    binding = fleet.kubectl("get", "rolebinding", operator.name, "-o", "json")
    restarts = operator.restarts()
    fleet.kubectl("delete", "rolebinding", operator.name)
    wait_for_line(
        operator, "it says that it may not", lambda line: "forbidden" in str(line.get("why", "")).lower(), 60
    )
    time.sleep(10.0)
    assert fleet.ended() <= {victim["metadata"]["uid"]}
    kept = json.loads(binding)
    kept["metadata"] = {"name": operator.name}
    fleet.kubectl("create", "-f", "-", input=json.dumps(kept))
    scene.until_cured()
    assert fleet.ended() == {victim["metadata"]["uid"]}
    assert operator.restarts() == restarts
