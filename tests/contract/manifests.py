"""Objects as the operator renders them, cut down to what the contract suite needs, and common questions."""

from typing import Any

from kintsugi.core import names
from tests.contract.benches import Bench, Json, eventually, key_of

OURS = {
    names.MANAGED_BY_LABEL: names.MANAGED_BY,
    names.DEPLOYMENT_LABEL: "chat",
    names.POOL_LABEL: "short",
}


def deployment(bench: Bench) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.DEPLOYMENT_KIND,
        "metadata": {"namespace": bench.namespace, "name": "chat", "labels": {"team": "a"}},
        "spec": {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash-0731"}},
    }


def replica_set(bench: Bench, replicas: int, gpus: int = 0, ready: bool = True) -> Json:
    engine: Json = {"name": "engine", "image": "docker.io/local/pause:1", "imagePullPolicy": "IfNotPresent"}
    if gpus:
        engine["resources"] = {"limits": {names.GPU_RESOURCE: str(gpus)}}
    if not ready:
        engine["readinessProbe"] = {"exec": {"command": ["false"]}}
    member = {**OURS, names.MEMBER_LABEL: names.MEMBER, names.REVISION_LABEL: "r1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"namespace": bench.namespace, "name": "chat-short-r1", "labels": OURS},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": member},
            "template": {
                "metadata": {"labels": {**member, names.ROTATION_LABEL: names.ROTATION_IN}},
                "spec": {"containers": [engine], "terminationGracePeriodSeconds": 1},
            },
        },
    }


def service(bench: Bench, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": bench.namespace, "name": "chat-short", "labels": OURS},
        "spec": {
            "selector": {names.POOL_LABEL: "short", names.ROTATION_LABEL: names.ROTATION_IN},
            "ports": [{"name": "http", "port": 8000, "protocol": "TCP", "targetPort": 8000}],
            **spec,
        },
    }


def budget(bench: Bench, name: str = "chat-short") -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": bench.namespace, "name": name, "labels": OURS},
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {**OURS, names.ROTATION_LABEL: names.ROTATION_IN}},
        },
    }


def remediation(bench: Bench, name: str) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.REMEDIATION_KIND,
        "metadata": {"namespace": bench.namespace, "name": name, "labels": OURS},
        "spec": {
            "deployment": "chat",
            "pool": "short",
            "revision": "r1",
            "instance": {"name": "chat-short-r1-abcde", "uid": "0001", "startedAt": "2026-01-01T00:00:00Z"},
            "trigger": "stall",
            "remedy": "Recreate",
            "attemptId": name,
            "lineage": "0001",
        },
    }


async def ready_pods(bench: Bench, replicas: int, gpus: int = 0) -> list[Json]:
    await bench.port.create(replica_set(bench, replicas, gpus))

    async def all_ready() -> bool:
        held = await bench.look("apps/v1", "replicasets", "ReplicaSet", "chat-short-r1")
        return int(held.get("status", {}).get("readyReplicas", 0)) == replicas

    await eventually(all_ready, lambda: bench.wait(5))
    return await bench.port.list_pods(key_of(bench))


async def pod_names(bench: Bench) -> set[str]:
    return {pod["metadata"]["name"] for pod in await bench.port.list_pods(key_of(bench))}
