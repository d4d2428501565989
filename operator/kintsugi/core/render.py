"""The children of one deployment as Kubernetes objects: pure, so that a test's diff is the review of a change."""

from collections.abc import Mapping
from typing import Any

from kintsugi.api.effective import Pool
from kintsugi.api.objects import DeepSeekV4Deployment
from kintsugi.core import names
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.pod import group
from kintsugi.core.pod.known import gpus_of
from kintsugi.core.pod.seconds import start_budget_seconds
from kintsugi.core.pod.template import pod_template

__all__ = [
    "disruption_budget",
    "gpus_of",
    "leader_worker_set",
    "owner_reference",
    "pod_template",
    "pool_labels",
    "replica_set",
    "replica_set_name",
    "rotation_selector",
    "service",
    "start_budget_seconds",
]

Json = dict[str, Any]


def pool_labels(deployment: str, pool: str) -> dict[str, str]:
    """Labels that every object of a pool carries."""
    return {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.NAME_LABEL: "deepseek-v4",
        names.DEPLOYMENT_LABEL: deployment,
        names.POOL_LABEL: pool,
    }


def rotation_selector(deployment: str, pool: str) -> dict[str, str]:
    """Selects the pods of a pool that take traffic."""
    return {
        names.DEPLOYMENT_LABEL: deployment,
        names.POOL_LABEL: pool,
        names.ROTATION_LABEL: names.ROTATION_IN,
    }


def owner_reference(deployment: str, uid: str) -> Json:
    """The deployment as controlling owner; never blocking, so its deletion needs no operator."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.DEPLOYMENT_KIND,
        "name": deployment,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def replica_set_name(deployment: str, pool: str, revision: str) -> str:
    """Name of the ReplicaSet of one pool and revision; at most 57 characters."""
    return f"{deployment}-{pool}-{revision}"


def replica_set(
    deployment: DeepSeekV4Deployment,
    uid: str,
    pool: Pool,
    revision: str,
    replicas: int,
    catalog: Catalog | None = None,
    operator_image: str = "",
) -> Json:
    """The ReplicaSet of one pool and revision. Its template is never edited afterwards (design §3)."""
    name = deployment.metadata.name
    labels = pool_labels(name, pool.name) | {names.REVISION_LABEL: revision}
    selector = {
        names.DEPLOYMENT_LABEL: name,
        names.POOL_LABEL: pool.name,
        names.REVISION_LABEL: revision,
        names.MEMBER_LABEL: names.MEMBER,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": _metadata(deployment, uid, replica_set_name(name, pool.name, revision), labels),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector},
            "template": pod_template(deployment.spec, pool, labels, catalog, operator_image),
        },
    }


def leader_worker_set(
    deployment: DeepSeekV4Deployment,
    uid: str,
    pool: Pool,
    revision: str,
    replicas: int,
    catalog: Catalog | None = None,
    operator_image: str = "",
) -> Json:
    """The LeaderWorkerSet of one pool whose instances need several nodes each. Not run by this version yet."""
    name = deployment.metadata.name
    labels = pool_labels(name, pool.name) | {names.REVISION_LABEL: revision}
    return {
        "apiVersion": group.API_VERSION,
        "kind": group.KIND,
        "metadata": _metadata(deployment, uid, replica_set_name(name, pool.name, revision), labels),
        "spec": {
            "replicas": replicas,
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": group.group_template(
                deployment.spec, pool, labels, catalog, operator_image
            ),
        },
    }


def service(deployment: DeepSeekV4Deployment, uid: str, pool: str) -> Json:
    """The pool's Service, which selects the pods in rotation."""
    name = deployment.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(deployment, uid, f"{name}-{pool}", pool_labels(name, pool)),
        "spec": {
            "selector": rotation_selector(name, pool),
            "ports": [{"name": "http", "port": names.ENGINE_PORT, "targetPort": "http"}],
        },
    }


def disruption_budget(deployment: DeepSeekV4Deployment, uid: str, pool: str) -> Json:
    """The pool's PodDisruptionBudget over the pods in rotation."""
    name = deployment.metadata.name
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(deployment, uid, f"{name}-{pool}", pool_labels(name, pool)),
        "spec": {
            "selector": {"matchLabels": rotation_selector(name, pool)},
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _metadata(deployment: DeepSeekV4Deployment, uid: str, name: str, labels: Mapping[str, str]) -> Json:
    return {
        "name": name,
        "namespace": deployment.metadata.namespace,
        "labels": dict(labels),
        "ownerReferences": [owner_reference(deployment.metadata.name, uid)],
    }
