"""The scheduler: binds pending pods where labels, taints and GPUs allow, the emptiest node first."""

from kintsugi.adapters.kube.parse import pod_gpus
from kintsugi.core import names
from kintsugi.testing.cluster import pods
from kintsugi.testing.cluster.matching import node_fits
from kintsugi.testing.cluster.store import Json, ObjectStore, stamp

_GPU_TOLERATION = {"key": names.GPU_RESOURCE, "operator": "Exists"}


class Scheduler:
    """One round over every pending pod."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def round(self, now: float) -> None:
        """Bind what fits, oldest pod first; tell the others why not."""
        pending = [
            pod
            for pod in self._store.each("Pod")
            if not pod["spec"].get("nodeName") and pods.active(pod) and not pod["spec"].get("schedulingGates")
        ]
        if not pending:
            return
        free, crowd = self._room()
        for pod in sorted(pending, key=lambda p: (p["metadata"]["creationTimestamp"], p["metadata"]["name"])):
            need = pod_gpus(pod)
            spec = pod["spec"]
            if need:
                spec = {**spec, "tolerations": [*(spec.get("tolerations") or ()), _GPU_TOLERATION]}
            fitting = [node for node in self._store.each("Node") if node_fits(spec, node)]
            roomy = [node["metadata"]["name"] for node in fitting if free[node["metadata"]["name"]] >= need]
            if not roomy:
                self._refuse(pod, len(fitting), len(free), now)
                continue
            chosen = min(roomy, key=lambda node: (-free[node], crowd[node], node))
            free[chosen] -= need
            crowd[chosen] += 1
            self._bind(pod, chosen, now)

    def _room(self) -> tuple[dict[str, int], dict[str, int]]:
        free = {
            node["metadata"]["name"]: int(
                ((node.get("status") or {}).get("allocatable") or {}).get(names.GPU_RESOURCE, 0)
            )
            for node in self._store.each("Node")
        }
        crowd = dict.fromkeys(free, 0)
        for pod in self._store.each("Pod"):
            node = pod["spec"].get("nodeName")
            if node in free and not pods.ended(pod):
                free[node] -= pod_gpus(pod)
                crowd[node] += 1
        return free, crowd

    def _bind(self, pod: Json, node: str, now: float) -> None:
        meta = pod["metadata"]

        def bound(held: Json) -> Json:
            held["spec"]["nodeName"] = node
            return held

        def scheduled(held: Json) -> Json:
            pods.set_condition(held, "PodScheduled", "True", stamp(now))
            return held

        self._store.update("Pod", meta["namespace"], meta["name"], bound)
        self._store.update_status("Pod", meta["namespace"], meta["name"], scheduled)

    def _refuse(self, pod: Json, fitting: int, nodes: int, now: float) -> None:
        meta = pod["metadata"]
        causes = []
        if fitting:
            causes.append(f"{fitting} Insufficient {names.GPU_RESOURCE}")
        if nodes - fitting:
            causes.append(
                f"{nodes - fitting} node(s) didn't match Pod's node affinity/selector, or had taints"
            )
        message = f"0/{nodes} nodes are available: {', '.join(causes) or 'no nodes'}."

        def unschedulable(held: Json) -> Json:
            pods.set_condition(held, "PodScheduled", "False", stamp(now), "Unschedulable", message)
            return held

        self._store.update_status("Pod", meta["namespace"], meta["name"], unschedulable)
