"""What runs beside the API server: controllers, scheduler, kubelets, garbage collection, node life-cycle."""

import random
from dataclasses import dataclass
from functools import partial

from kintsugi.adapters.kube.parse import pod_gpus
from kintsugi.core import names
from kintsugi.ports.errors import Forbidden
from kintsugi.testing.clock import SimulatedClock
from kintsugi.testing.cluster import pods
from kintsugi.testing.cluster.kubelet import Kubelets
from kintsugi.testing.cluster.matching import equal_labels, labels_match, tolerates
from kintsugi.testing.cluster.replicasets import ReplicaSetController
from kintsugi.testing.cluster.scheduling import Scheduler
from kintsugi.testing.cluster.schema import Schemas
from kintsugi.testing.cluster.store import Json, ObjectStore, stamp

CONTROLLER_DELAY = 0.05
COLLECTOR_DELAY = 0.2
NODE_GRACE = 40.0
"""`--node-monitor-grace-period` of Kubernetes."""
TOLERATION = 300.0
"""`--default-unreachable-toleration-seconds` of Kubernetes."""
NODE_GC = 60.0
_UNREACHABLE = "node.kubernetes.io/unreachable"


@dataclass(frozen=True, slots=True)
class Event:
    """One Kubernetes Event. `at` in epoch seconds; `about` is Kind/namespace/name."""

    at: float
    about: str
    kind: str
    reason: str
    message: str
    action: str = ""


class World:
    """Everything of a cluster that is not a client; driven by timers on a simulated clock, the same each time."""

    def __init__(self, clock: SimulatedClock, seed: int = 0, schemas: Schemas | None = None) -> None:
        self.clock = clock
        self.store = ObjectStore(clock.now, random.Random(seed), schemas or Schemas({}))
        self.kubelets = Kubelets(self.store, clock)
        self.events: list[Event] = []
        self.kubelets.told = self.controller_event
        self.quotas: dict[str, tuple[int | None, int | None]] = {}
        self.logs: dict[tuple[str, str], list[str]] = {}
        self._lost: dict[str, bool] = {}
        """Lost nodes; True where the node is off, not only out of reach."""
        self._replica_sets = ReplicaSetController(
            self.store, self.make_pod, self.end_pod, self.controller_event
        )
        self._scheduler = Scheduler(self.store)
        self._queued: set[tuple[str, str]] = set()
        self._round_queued = False
        self.store.listen(self._changed)

    def quota_objects(self, namespace: str) -> list[Json]:
        """The ResourceQuota behind `quotas`, as it would be read; none where nothing is limited."""
        most_pods, most_gpus = self.quotas.get(namespace, (None, None))
        living = [each for each in self.store.each("Pod", namespace) if not pods.ended(each)]
        used = {"pods": len(living), f"requests.{names.GPU_RESOURCE}": sum(pod_gpus(each) for each in living)}
        hard = {"pods": most_pods, f"requests.{names.GPU_RESOURCE}": most_gpus}
        limits = {key: str(value) for key, value in hard.items() if value is not None}
        if not limits:
            return []
        status = {"hard": limits, "used": {key: str(used[key]) for key in limits}}
        meta = {"namespace": namespace, "name": "limits"}
        return [{"metadata": meta, "spec": {"hard": limits}, "status": status}]

    def make_pod(self, pod: Json) -> None:
        """Create a pod unless the namespace's quota forbids it."""
        namespace = pod["metadata"].get("namespace", "default")
        most_pods, most_gpus = self.quotas.get(namespace, (None, None))
        living = [each for each in self.store.each("Pod", namespace) if not pods.ended(each)]
        if most_pods is not None and len(living) >= most_pods:
            raise Forbidden(f"exceeded quota: pods, used: {len(living)}, limited: {most_pods}")
        gpus = sum(pod_gpus(each) for each in living)
        if most_gpus is not None and gpus + pod_gpus(pod) > most_gpus:
            raise Forbidden(f"exceeded quota: {names.GPU_RESOURCE}, used: {gpus}, limited: {most_gpus}")
        pod["spec"].setdefault("terminationGracePeriodSeconds", 30)
        pod["spec"].setdefault("restartPolicy", "Always")
        made = self.store.create(pod)
        meta = made["metadata"]
        self.store.update_status(
            "Pod", meta["namespace"], meta["name"], lambda p: {**p, "status": {"phase": "Pending"}}
        )

    def end_pod(self, namespace: str, name: str, grace_seconds: float | None) -> None:
        """Graceful deletion, as any client may ask for; at once where the pod is on no node."""
        pod = self.store.find("Pod", namespace, name)
        if pod is None:
            return
        grace = (
            float(pod["spec"].get("terminationGracePeriodSeconds", 30))
            if grace_seconds is None
            else grace_seconds
        )
        if grace <= 0 or not pod["spec"].get("nodeName") or pods.ended(pod):
            self.store.remove("Pod", namespace, name)
        else:
            self.store.mark_deleted("Pod", namespace, name, grace)

    def endpoints(self, namespace: str, service: str) -> list[str]:
        """Addresses that the Service's EndpointSlices call ready: pods selected, Ready and not terminating."""
        found = self.store.find("Service", namespace, service)
        selector = (found or {}).get("spec", {}).get("selector") or {}
        return sorted(
            pod["status"]["podIP"]
            for pod in self.store.each("Pod", namespace)
            if equal_labels(selector, pods.labels(pod)) and pods.is_ready(pod) and not pods.deleting(pod)
        )

    def lose_node(self, name: str, off: bool) -> None:
        """Nothing is heard of a node: NotReady after the grace period, its pods deleted after their toleration."""
        self.kubelets.lost(name)
        self._lost[name] = off
        self.clock.call_later(NODE_GRACE, lambda: self._node_lost(name))

    def node_back(self, name: str) -> None:
        """The node is heard of again; what was deleted meanwhile is let go of."""
        rebooted = self._lost.pop(name, False)
        self._set_node(name, True)
        self.kubelets.back(name, rebooted)

    def remove_node(self, name: str) -> None:
        """Delete the Node object; the pod collector takes its pods a minute later."""
        self.store.remove("Node", "", name)
        self.kubelets.lost(name)

        def collect() -> None:
            if self.store.find("Node", "", name) is None:
                for pod in [each for each in self.store.each("Pod") if each["spec"].get("nodeName") == name]:
                    self.store.remove("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])

        self.clock.call_later(NODE_GC, collect)

    def _changed(self, kind: str, before: Json | None, after: Json | None) -> None:
        if kind == "Pod":
            self._pod_changed(before, after)
        elif kind == "ReplicaSet" and after is not None:
            if before is None or before["metadata"]["generation"] != after["metadata"]["generation"]:
                self._queue(after["metadata"]["namespace"], after["metadata"]["name"])
        elif kind == "Node":
            self._queue_round()
        if after is None and before is not None and kind != "Pod":
            uid = before["metadata"]["uid"]
            self.clock.call_later(COLLECTOR_DELAY, lambda: self._collect(uid))

    def _pod_changed(self, before: Json | None, after: Json | None) -> None:
        either = after or before
        assert either is not None
        namespace = either["metadata"]["namespace"]
        bosses = {boss["uid"] for pod in (before, after) if pod and (boss := pods.controller(pod))}
        for owner in self.store.each("ReplicaSet", namespace):
            if owner["metadata"]["uid"] in bosses or labels_match(
                owner["spec"]["selector"], pods.labels(either)
            ):
                self._queue(namespace, owner["metadata"]["name"])
        self._queue_round()
        if after is None:
            self.kubelets.forget(either)
            return
        if after["spec"].get("nodeName") and not (before and before["spec"].get("nodeName")):
            self.kubelets.bound(after)
        grace = after["metadata"].get("deletionGracePeriodSeconds")
        if grace is not None and (
            before is None or before["metadata"].get("deletionGracePeriodSeconds") != grace
        ):
            pod = after
            self.clock.call_later(0.0, lambda: self._terminate(pod))

    def _terminate(self, pod: Json) -> None:
        if pod["spec"].get("nodeName") not in self.kubelets.down:
            self.kubelets.terminate(pod)

    def _queue(self, namespace: str, name: str, delay: float = CONTROLLER_DELAY) -> None:
        if (namespace, name) in self._queued:
            return
        self._queued.add((namespace, name))

        def due() -> None:
            self._queued.discard((namespace, name))
            if not self._replica_sets.reconcile(namespace, name):
                self._queue(namespace, name, 10.0)

        self.clock.call_later(delay, due)

    def _queue_round(self) -> None:
        if self._round_queued:
            return
        self._round_queued = True

        def due() -> None:
            self._round_queued = False
            self._scheduler.round(self.clock.now())

        self.clock.call_later(CONTROLLER_DELAY, due)

    def _collect(self, uid: str) -> None:
        """Delete what only the object of that UID owned."""
        for kind in self.store.kinds():
            for held in list(self.store.each(kind)):
                owners = held["metadata"].get("ownerReferences") or []
                if not any(owner["uid"] == uid for owner in owners):
                    continue
                space, name = held["metadata"].get("namespace", ""), held["metadata"]["name"]
                if kind == "Pod":
                    self.end_pod(space, name, None)
                elif len(owners) == 1:
                    self.store.remove(kind, space, name)

    def _node_lost(self, name: str) -> None:
        if name not in self.kubelets.down or self.store.find("Node", "", name) is None:
            return
        self._set_node(name, False)
        for pod in [each for each in self.store.each("Pod") if each["spec"].get("nodeName") == name]:
            self.kubelets.set_ready(pod, False)
            tolerations = pod["spec"].get("tolerations") or ()
            taint = {"key": _UNREACHABLE, "effect": "NoExecute"}
            own = [each for each in tolerations if tolerates([each], taint)]
            if any("tolerationSeconds" not in each for each in own):
                continue
            wait = min((float(each["tolerationSeconds"]) for each in own), default=TOLERATION)
            self.clock.call_later(wait, partial(self._taint_eviction, name, pod))

    def _taint_eviction(self, node: str, pod: Json) -> None:
        meta = pod["metadata"]
        held = self.store.find("Pod", meta["namespace"], meta["name"])
        if node in self.kubelets.down and held is not None and held["metadata"]["uid"] == meta["uid"]:
            self.end_pod(meta["namespace"], meta["name"], None)

    def _set_node(self, name: str, ready: bool) -> None:
        def spec(node: Json) -> Json:
            taints = [each for each in node["spec"].get("taints") or () if each["key"] != _UNREACHABLE]
            if not ready:
                taints += [{"key": _UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
            node["spec"]["taints"] = taints
            return node

        def status(node: Json) -> Json:
            pods.set_condition(node, "Ready", "True" if ready else "Unknown", stamp(self.clock.now()))
            return node

        self.store.update("Node", "", name, spec)
        self.store.update_status("Node", "", name, status)

    def controller_event(self, about: Json, kind: str, reason: str, message: str) -> None:
        """Post an Event about an object, as a controller or a kubelet would."""
        meta = about["metadata"]
        where = f"{about['kind']}/{meta.get('namespace', '')}/{meta['name']}"
        self.events.append(Event(self.clock.now(), where, kind, reason, message))
