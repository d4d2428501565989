"""Who has the cluster's GPUs: pods that do nothing, put on every one that is free."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kintsugi.core.names import GPU_RESOURCE
from tests.cluster.cluster import Cluster
from tests.cluster.configs import PAUSE_IMAGE

OCCUPANT: Final = "occupant"


def free_gpus(cluster: Cluster) -> dict[str, int]:
    """GPUs of each node that no pod has asked for."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    free = {n["metadata"]["name"]: int(n["status"]["allocatable"].get(GPU_RESOURCE, 0)) for n in nodes}
    for pod in json.loads(cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]:
        if pod["spec"].get("nodeName") in free and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            free[pod["spec"]["nodeName"]] -= sum(map(_asks, pod["spec"]["containers"]))
    return free


def _asks(container: dict[str, Any]) -> int:
    return int(container.get("resources", {}).get("limits", {}).get(GPU_RESOURCE, 0))


@contextmanager
def no_free_gpu(cluster: Cluster, namespace: str) -> Iterator[None]:
    """While this lasts, pods in `namespace` hold every GPU that was free before."""
    made = [_occupant(namespace, node, count) for node, count in free_gpus(cluster).items() if count]
    cluster.apply(*made)
    cluster.kubectl(
        *("-n", namespace, "wait", "pods", "-l", f"app={OCCUPANT}"),
        *("--for=jsonpath={.status.phase}=Running", "--timeout=60s"),
    )
    try:
        yield
    finally:
        cluster.kubectl(
            "-n", namespace, "delete", "pods", "-l", f"app={OCCUPANT}", "--grace-period=0", "--force"
        )


def _occupant(namespace: str, node: str, gpus: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{OCCUPANT}-{node}", "namespace": namespace, "labels": {"app": OCCUPANT}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "pause",
                    "image": PAUSE_IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "resources": {"limits": {GPU_RESOURCE: str(gpus)}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
