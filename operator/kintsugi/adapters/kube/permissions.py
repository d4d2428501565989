"""Every permission that the adapter's calls need, and why; the chart's roles are compared with this table."""

from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

from kintsugi.core import names


@unique
class Scope(StrEnum):
    """Where a permission is needed."""

    CLUSTER = "cluster"
    """In all namespaces, whatever the operator watches."""
    FLEET = "fleet"
    """In each watched namespace."""
    NODES = "nodes"
    """Of the whole cluster, where `nodeActions.enabled` allows it."""
    OWN = "own"
    """In the operator's own namespace."""
    WEBHOOK = "webhook"
    """In the operator's own namespace, where it has a webhook."""
    WEBHOOK_CLUSTER = "webhook-cluster"
    """Of the whole cluster, where it has a webhook."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One row: `resource` may name a subresource (`pods/log`)."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    scope: Scope
    why: str
    named: bool = False
    """Given for the webhook's own object alone, by its name."""


PERMISSIONS: Final = (
    Permission(
        names.GROUP,
        names.DEPLOYMENT_PLURAL,
        ("get", "list", "watch"),
        Scope.FLEET,
        "what users want; never written",
    ),
    Permission(
        names.GROUP,
        f"{names.DEPLOYMENT_PLURAL}/status",
        ("update",),
        Scope.FLEET,
        "verdicts and reservations",
    ),
    Permission(
        names.GROUP,
        names.REMEDIATION_PLURAL,
        ("get", "list", "create", "delete"),
        Scope.FLEET,
        "one object per attempt, the oldest removed",
    ),
    Permission(
        names.GROUP, f"{names.REMEDIATION_PLURAL}/status", ("update",), Scope.FLEET, "progress of attempts"
    ),
    Permission(
        "apps",
        "replicasets",
        ("list", "create", "patch", "delete"),
        Scope.FLEET,
        "one per pool and revision: made, scaled, told to avoid nodes, removed",
    ),
    Permission("", "services", ("list", "create", "patch", "delete"), Scope.FLEET, "one per pool, applied"),
    Permission(
        "policy",
        "poddisruptionbudgets",
        ("list", "create", "patch", "delete"),
        Scope.FLEET,
        "one per pool, applied",
    ),
    Permission("", "resourcequotas", ("list",), Scope.FLEET, "whether a replacement may be made"),
    Permission("", "pods", ("list", "patch"), Scope.FLEET, "instances: seen, withdrawn, released"),
    Permission("", "pods/eviction", ("create",), Scope.FLEET, "the only way a pod is removed"),
    Permission(
        "",
        "pods/log",
        ("get",),
        Scope.FLEET,
        "last lines for the black box, and the first error of a start that failed",
    ),
    Permission("", "secrets", ("get",), Scope.FLEET, "the engines' API key"),
    Permission(
        "",
        "configmaps",
        ("get", "create", "patch"),
        Scope.FLEET,
        "one per deployment: what was learned of its engines, for the next start of the operator",
    ),
    Permission(
        "",
        "events",
        ("list", "create"),
        Scope.FLEET,
        "transitions, for people; what the kubelet says of a pod that does not start",
    ),
    Permission("", "nodes", ("list",), Scope.CLUSTER, "GPUs free, nodes to avoid"),
    Permission("", "pods", ("list",), Scope.CLUSTER, "GPUs held by others"),
    Permission("", "nodes", ("patch",), Scope.NODES, "nodes with strikes: cordoned or tainted, and back"),
    Permission(
        "coordination.k8s.io", "leases", ("get", "create", "update"), Scope.OWN, "one leader among replicas"
    ),
    Permission(
        "", "secrets", ("create",), Scope.WEBHOOK, "the webhook's certificate: what is made has no name yet"
    ),
    Permission("", "secrets", ("get", "update"), Scope.WEBHOOK, "the webhook's certificate", named=True),
    Permission(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        ("get", "patch"),
        Scope.WEBHOOK_CLUSTER,
        "by which authority the API server knows the webhook",
        named=True,
    ),
)
