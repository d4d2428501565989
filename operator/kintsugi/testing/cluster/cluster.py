"""A Kubernetes cluster in memory and in simulated time, for tests of operators.

It stands in for the API server (optimistic locking, UID preconditions, status subresource, schema pruning and
defaults) and for what runs beside it (ReplicaSet controller, scheduler, kubelets, disruption budgets, garbage
collection, node failure). Not emulated: watches, admission, field managers other than ours, Deployments.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from kintsugi.api.crd import crd_documents
from kintsugi.core import names
from kintsugi.ports.errors import NotFound, PortError
from kintsugi.testing.clock import SimulatedClock
from kintsugi.testing.cluster import pods
from kintsugi.testing.cluster.api import FakeApi
from kintsugi.testing.cluster.kubelet import Start
from kintsugi.testing.cluster.matching import labels_match
from kintsugi.testing.cluster.merge import merge_patch
from kintsugi.testing.cluster.schema import Schemas
from kintsugi.testing.cluster.store import Json, clone, stamp
from kintsugi.testing.cluster.world import Event, World


class FakeCluster(FakeApi):
    """The cluster, seen by its first operator; `client()` gives a second one its own view.

    The same seed, clock and calls give the same cluster, names and UIDs included.
    """

    def __init__(
        self, clock: SimulatedClock | None = None, seed: int = 0, schemas: Schemas | None = None
    ) -> None:
        self.clock = clock or SimulatedClock()
        super().__init__(World(self.clock, seed, schemas or Schemas.of_crds(crd_documents())))

    def client(self, *watched: str) -> FakeApi:
        """Another client of the same cluster, with its own faults and its own log of writes."""
        return FakeApi(self.world, watched)

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass; between two timers all tasks run until they wait."""
        await self.clock.advance(seconds)

    # --- what goes wrong with this client ---

    def fail_next(
        self,
        verb: str,
        kind: str,
        error: PortError | type[PortError],
        times: int = 1,
        performed: bool = False,
    ) -> None:
        """The next `times` calls of `verb` on `kind` raise `error`; see `Faults.fail_next`.

        Verbs: get, list, create, apply, scale, patch, evict, delete, status, update; '*' = any.
        """
        self.faults.fail_next(verb, kind, error, times, performed)

    def outage(self, seconds: float, after: float = 0.0) -> None:
        """No call is answered for `seconds`; the cluster itself lives on."""
        self.faults.outage(seconds, after)

    def crash_after(self, writes: int, before: bool = False) -> None:
        """The `writes`-th write from now raises `OperatorKilled`, once done, or `before` it is."""
        self.faults.crash_after(writes, before)

    # --- what people and other controllers do ---

    def put(self, manifest: Mapping[str, Any]) -> Json:
        """Create an object as a user would; not counted among the operator's writes."""
        if manifest["kind"] == "Pod":
            self.world.make_pod(clone(dict(manifest)))
            return self.get("Pod", manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        return self.world.store.create(manifest)

    def edit(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Json:
        """Merge-patch an object as a user would (its status aside)."""
        return self.world.store.update(kind, namespace, name, lambda held: dict(merge_patch(held, patch)))

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object; pods gracefully, dependents follow in the background."""
        if kind == "Pod":
            self.world.end_pod(namespace, name, None)
        else:
            self.world.store.remove(kind, namespace, name)

    def get(self, kind: str, namespace: str, name: str) -> Json:
        """The object; NotFound where there is none."""
        found = self.world.store.find(kind, namespace, name)
        if found is None:
            raise NotFound(f"{kind} {namespace}/{name} not found")
        return found

    def all(self, kind: str, namespace: str | None = None, **match_labels: str) -> list[Json]:
        """Every object of a kind, by namespace and name; `match_labels` by the part after the slash."""
        found = [clone(each) for each in self.world.store.each(kind, namespace)]
        wanted = {f"{names.GROUP}/{key}": value for key, value in match_labels.items()}
        return [each for each in found if labels_match({"matchLabels": wanted}, pods.labels(each))]

    def endpoints(self, namespace: str, service: str) -> list[str]:
        """Addresses to which the Service sends new connections."""
        return self.world.endpoints(namespace, service)

    def add_secret(self, namespace: str, name: str, **values: str) -> None:
        """Create a Secret with these plain values."""
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.put(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"namespace": namespace, "name": name},
                "data": data,
            }
        )

    def set_quota(self, namespace: str, pods: int | None = None, gpus: int | None = None) -> None:
        """From now on the namespace may hold at most so many pods or GPUs; None = no limit."""
        self.world.quotas[namespace] = (pods, gpus)

    # --- nodes ---

    def add_node(self, name: str, gpus: int = 8, **labels: str) -> None:
        """A Ready node with GPUs."""
        room = {names.GPU_RESOURCE: str(gpus), "cpu": "64", "memory": "512Gi", "pods": "110"}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
        self.put({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}})
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(self.clock.now())}
        self._node_status(name, {"capacity": room, "allocatable": room, "conditions": [ready]})

    def set_gpus(self, name: str, gpus: int) -> None:
        """The device plugin now offers so many healthy GPUs."""
        node = self.get("Node", "", name)
        room = {**node["status"]["allocatable"], names.GPU_RESOURCE: str(gpus)}
        self._node_status(name, {**node["status"], "allocatable": room})

    def cordon(self, name: str, on: bool = True) -> None:
        """`kubectl cordon`, or uncordon."""
        self.edit("Node", "", name, {"spec": {"unschedulable": True if on else None}})

    def power_off(self, name: str) -> None:
        """The node and everything on it stops at once; `join` starts it again."""
        self.world.lose_node(name, off=True)

    def cut(self, name: str) -> None:
        """The node's network is gone; its engines run on unheard. `join` mends it."""
        self.world.lose_node(name, off=False)

    def join(self, name: str) -> None:
        """A lost node is back."""
        self.world.node_back(name)

    def remove_node(self, name: str) -> None:
        """Delete the Node, as a cloud's autoscaler does."""
        self.world.remove_node(name)

    def reachable(self, pod: Mapping[str, Any]) -> bool:
        """Whether packets reach the pod: its node is neither off nor cut."""
        return pod["spec"].get("nodeName") not in self.world.kubelets.down

    # --- pods ---

    def on_start(self, behaviour: Callable[[Json], Start]) -> None:
        """How pods start and stop from now on; asked again at every step of a pod's life."""
        self.world.kubelets.behaviour = behaviour

    def exit_container(self, namespace: str, name: str, exit_code: int = 1, reason: str = "") -> None:
        """The engine process of a pod ends; the kubelet restarts it."""
        self.world.kubelets.exit(self.get("Pod", namespace, name), exit_code, reason)

    def fail_pod(self, namespace: str, name: str, reason: str = "Evicted", message: str = "") -> None:
        """The pod becomes Failed and stays as an object."""
        self.world.kubelets.fail(self.get("Pod", namespace, name), reason, message)

    def set_ready(self, namespace: str, name: str, ready: bool) -> None:
        """The pod's readiness probe changes its mind."""
        self.world.kubelets.set_ready(self.get("Pod", namespace, name), ready)

    def set_device_health(self, namespace: str, name: str, health: str | None) -> None:
        """The device plugin calls the pod's first GPU Healthy, Unhealthy or Unknown; None = nothing is reported."""
        self.world.kubelets.set_device_health(self.get("Pod", namespace, name), health)

    def log(self, namespace: str, name: str, *lines: str) -> None:
        """The engine container of a pod prints these lines."""
        self.world.logs.setdefault((namespace, name), []).extend(lines)

    def tell(self, namespace: str, name: str, reason: str, message: str) -> None:
        """Kubernetes posts a warning about a pod: FailedMount, for one."""
        self.world.controller_event(self.get("Pod", namespace, name), "Warning", reason, message)

    @property
    def events(self) -> list[Event]:
        """Every Event so far, of operators and controllers."""
        return self.world.events

    @property
    def pruned(self) -> list[str]:
        """Every field that was written and that the schema does not know; should stay empty."""
        return self.world.store.pruned

    def _node_status(self, name: str, status: Json) -> None:
        self.world.store.update_status("Node", "", name, lambda held: {**held, "status": status})
