"""The smallest workload that exercises a cluster: a server that says which pod answers and which GPUs it was given."""

from __future__ import annotations

import json
from subprocess import CalledProcessError
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.images import build_image
from tests.cluster.kube import wait_for
from tests.cluster.paths import HERE

PORT = 8080


def image() -> str:
    """The server's image, in the registry."""
    return build_image(HERE / "probe" / "Dockerfile", HERE / "probe", "probe")


def pod_spec(*, gpus: int = 1, pull: str = "IfNotPresent", node: str | None = None) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "probe",
        "image": image(),
        "imagePullPolicy": pull,
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1},
    }
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 1}
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return spec


def pod(name: str, namespace: str, **options: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": pod_spec(**options),
    }


def deployment(name: str, namespace: str, replicas: int, **options: Any) -> list[dict[str, Any]]:
    """A Deployment of the server and a Service of the same name on port 80."""
    labels = {"app": name}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod_spec(**options)},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": PORT}]},
        },
    ]


def read_pod(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """The pod, or an empty dict while it does not exist or the API server is away."""
    return cluster.reader.json(f"/api/v1/namespaces/{namespace}/pods/{name}") or {}


def pods(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    listed = cluster.reader.json(f"/api/v1/namespaces/{namespace}/pods") or {"items": []}
    items: list[dict[str, Any]] = listed["items"]
    return items


def condition(thing: dict[str, Any], kind: str) -> bool:
    """Whether a pod's or node's condition is True."""
    found = thing.get("status", {}).get("conditions", [])
    return any(c["type"] == kind and c["status"] == "True" for c in found)


def wait_ready(
    cluster: Cluster, namespace: str, count: int, timeout_seconds: float = 60
) -> list[dict[str, Any]]:
    """Return once exactly `count` pods of the namespace are Ready and not going."""

    def look() -> list[dict[str, Any]] | None:
        good = [
            p
            for p in pods(cluster, namespace)
            if condition(p, "Ready") and "deletionTimestamp" not in p["metadata"]
        ]
        return good if len(good) == count else None

    return wait_for(f"{count} pods Ready in {namespace}", look, timeout_seconds)


def node_ready(cluster: Cluster, name: str) -> bool:
    return condition(cluster.reader.json(f"/api/v1/nodes/{name}") or {}, "Ready")


def ask(cluster: Cluster, address: str, port: int = PORT) -> dict[str, Any]:
    """What the server at `address`, a pod's or Service's, answers. Raises CalledProcessError if it does not in 3 s."""
    code = (
        f"import urllib.request as u; print(u.urlopen('http://{address}:{port}/', timeout=3).read().decode())"
    )
    answer: dict[str, Any] = json.loads(
        cluster.run_inside(["python3", "-c", code], timeout_seconds=15).stdout
    )
    return answer


def answers(cluster: Cluster, address: str, port: int = PORT, seconds: float = 30.0) -> dict[str, Any]:
    """The first answer of the Service at `address`: kube-proxy learns of its endpoints a moment after they are Ready."""

    def look() -> dict[str, Any] | None:
        try:
            return ask(cluster, address, port)
        except CalledProcessError:
            return None

    return wait_for(f"{address}:{port} answers", look, seconds, every_seconds=0.5)


def restarts(thing: dict[str, Any]) -> int:
    return sum(status["restartCount"] for status in thing.get("status", {}).get("containerStatuses", []))
