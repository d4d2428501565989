"""The ReplicaSet controller: adopt, release, then create or delete until the count is right.

Rules and order of victims: Kubernetes documentation, "ReplicaSet" (Isolating Pods, Scaling a ReplicaSet,
Pod deletion cost).
"""

from collections.abc import Callable
from typing import Protocol

from kintsugi.core import names
from kintsugi.ports.errors import PortError
from kintsugi.testing.cluster import pods
from kintsugi.testing.cluster.matching import labels_match
from kintsugi.testing.cluster.store import Json, ObjectStore, clone


class PodMaker(Protocol):
    """Creates a pod as the API server would, quota included; PortError where it refuses."""

    def __call__(self, pod: Json) -> None: ...


class PodEnder(Protocol):
    """Deletes a pod gracefully; `grace_seconds` None takes the pod's own."""

    def __call__(self, namespace: str, name: str, grace_seconds: float | None) -> None: ...


class ReplicaSetController:
    """Brings one ReplicaSet at a time to its count; knows nothing of time."""

    def __init__(
        self, store: ObjectStore, make: PodMaker, end: PodEnder, event: Callable[[Json, str, str, str], None]
    ) -> None:
        self._store = store
        self._make = make
        self._end = end
        self._event = event

    def reconcile(self, namespace: str, name: str) -> bool:
        """One look at one ReplicaSet; False where a pod could not be made, so that it must be tried again."""
        held = self._store.find("ReplicaSet", namespace, name)
        if held is None or "deletionTimestamp" in held["metadata"]:
            return True
        claimed = [pod for pod in self._claim(held) if pods.active(pod)]
        wanted = int(held["spec"].get("replicas", 1))
        content = True
        if len(claimed) < wanted:
            content = self._create(held, wanted - len(claimed))
        elif len(claimed) > wanted:
            self._delete(claimed, len(claimed) - wanted)
        self._report(held, claimed)
        return content

    def _claim(self, owner: Json) -> list[Json]:
        """Owned pods that match, after adopting orphans that match and releasing owned ones that no longer do."""
        uid, namespace = owner["metadata"]["uid"], owner["metadata"]["namespace"]
        claimed = []
        for pod in [clone(each) for each in self._store.each("Pod", namespace)]:
            boss = pods.controller(pod)
            matches = labels_match(owner["spec"]["selector"], pods.labels(pod))
            if boss is not None and boss["uid"] == uid:
                if matches:
                    claimed.append(pod)
                else:
                    self._store.update("Pod", namespace, pod["metadata"]["name"], lambda p: _release(p, uid))
            elif boss is None and matches and pods.active(pod):
                claimed.append(
                    self._store.update("Pod", namespace, pod["metadata"]["name"], lambda p: _adopt(p, owner))
                )
        return claimed

    def _create(self, owner: Json, missing: int) -> bool:
        meta, template = owner["metadata"], owner["spec"]["template"]
        for _ in range(missing):
            pod: Json = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "generateName": f"{meta['name']}-",
                    "namespace": meta["namespace"],
                    "labels": dict(template["metadata"].get("labels") or {}),
                    "annotations": dict(template["metadata"].get("annotations") or {}),
                    "ownerReferences": [_reference(owner)],
                },
                "spec": clone(template["spec"]),
            }
            try:
                self._make(pod)
            except PortError as refused:
                self._event(owner, "Warning", "FailedCreate", f"Error creating: {refused}")
                return False
        return True

    def _delete(self, claimed: list[Json], surplus: int) -> None:
        per_node: dict[str, int] = {}
        for pod in claimed:
            node = pod["spec"].get("nodeName", "")
            per_node[node] = per_node.get(node, 0) + 1
        victims = sorted(claimed, key=lambda pod: _dispensability(pod, per_node))[:surplus]
        for pod in victims:
            self._end(pod["metadata"]["namespace"], pod["metadata"]["name"], None)

    def _report(self, owner: Json, claimed: list[Json]) -> None:
        """The status as of the pods seen at the start of this look, as the real controller writes it."""
        ready = sum(pods.is_ready(pod) for pod in claimed)
        meta = owner["metadata"]
        status: Json = {"replicas": len(claimed), "observedGeneration": meta["generation"]}
        if claimed:
            status["fullyLabeledReplicas"] = len(claimed)
        if ready:
            status |= {"readyReplicas": ready, "availableReplicas": ready}
        self._store.update_status(
            "ReplicaSet", meta["namespace"], meta["name"], lambda held: {**held, "status": status}
        )


def _dispensability(pod: Json, per_node: dict[str, int]) -> tuple[object, ...]:
    """Sort key: who is ended first comes first."""
    ready = pods.is_ready(pod)
    node = pod["spec"].get("nodeName", "")
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    annotations = pod["metadata"].get("annotations") or {}
    return (
        bool(node),
        {"Pending": 0, "Unknown": 1}.get(pods.phase(pod), 2),
        ready,
        int(annotations.get(names.DELETION_COST_ANNOTATION, "0")),
        -per_node[node] if node else 0,
        _newest_first(str(pods.condition(pod, "Ready").get("lastTransitionTime", ""))) if ready else (),
        -max((each.get("restartCount", 0) for each in statuses), default=0),
        _newest_first(pod["metadata"]["creationTimestamp"]),
        pod["metadata"]["name"],
    )


def _newest_first(stamp: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in stamp)


def _reference(owner: Json) -> Json:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _release(pod: Json, uid: str) -> Json:
    meta = pod["metadata"]
    meta["ownerReferences"] = [each for each in meta["ownerReferences"] if each["uid"] != uid]
    return pod


def _adopt(pod: Json, owner: Json) -> Json:
    meta = pod["metadata"]
    meta["ownerReferences"] = [*meta.get("ownerReferences", ()), _reference(owner)]
    return pod
