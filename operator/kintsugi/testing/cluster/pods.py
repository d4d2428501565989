"""Small questions about raw pods, asked by every controller of the fake cluster."""

from collections.abc import Mapping
from typing import Any

from kintsugi.core import names
from kintsugi.testing.cluster.store import Json


def labels(pod: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels, or none."""
    found: Mapping[str, str] = pod["metadata"].get("labels") or {}
    return found


def phase(pod: Mapping[str, Any]) -> str:
    """The pod phase; a pod that nobody has looked at yet is Pending."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def condition(pod: Mapping[str, Any], kind: str) -> Json:
    """The condition of that type, or an empty one."""
    conditions: list[Json] = (pod.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the pod's Ready condition is True."""
    return condition(pod, "Ready").get("status") == "True"


def ended(pod: Mapping[str, Any]) -> bool:
    """Whether all its containers are over for good."""
    return phase(pod) in ("Succeeded", "Failed")


def deleting(pod: Mapping[str, Any]) -> bool:
    """Whether a graceful deletion is under way."""
    return "deletionTimestamp" in pod["metadata"]


def active(pod: Mapping[str, Any]) -> bool:
    """Whether a ReplicaSet counts the pod: neither ended nor being deleted."""
    return not ended(pod) and not deleting(pod)


def controller(owned: Mapping[str, Any]) -> Json | None:
    """The owner reference with `controller: true`, or None."""
    owners: list[Json] = owned["metadata"].get("ownerReferences") or []
    return next((each for each in owners if each.get("controller")), None)


def report_devices(pod: Json, health: str = "Healthy") -> None:
    """Say in the pod's status how its GPUs are, as the kubelet of Kubernetes 1.36 does; what is said already stands."""
    wanted = {each["name"]: each.get("resources") or {} for each in pod["spec"]["containers"]}
    for status in pod["status"].get("containerStatuses", ()):
        resources = wanted.get(status["name"], {})
        count = int((resources.get("limits") or resources.get("requests") or {}).get(names.GPU_RESOURCE, 0))
        if count and "running" in status["state"] and "allocatedResourcesStatus" not in status:
            held = [
                {"resourceID": f"GPU-{pod['metadata']['uid'][:8]}-{n}", "health": health}
                for n in range(count)
            ]
            status["allocatedResourcesStatus"] = [{"name": names.GPU_RESOURCE, "resources": held}]


def set_condition(pod: Json, kind: str, status: str, at: str, reason: str = "", message: str = "") -> None:
    """Set one condition; the transition time moves only when the status does."""
    conditions: list[Json] = pod.setdefault("status", {}).setdefault("conditions", [])
    held = next((each for each in conditions if each["type"] == kind), None)
    if held is None:
        held = {"type": kind, "status": "", "lastTransitionTime": at}
        conditions.append(held)
    if held["status"] != status:
        held |= {"status": status, "lastTransitionTime": at}
    for key, value in (("reason", reason), ("message", message)):
        held.pop(key, None)
        if value:
            held[key] = value
