"""The Kubernetes API as the operator needs it: raw JSON objects in and out, errors of `ports.errors`.

Objects are plain dicts as the API server sends them; `adapters.kube.parse` turns them into snapshot parts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from kintsugi.core.snapshot import Key

Json: TypeAlias = dict[str, Any]


class ClusterPort(Protocol):
    """Reads and writes of one API server. Every call has a timeout and raises only `PortError`s."""

    async def get_deployment(self, key: Key) -> Json | None:
        """The DeepSeekV4Deployment, or None where it does not exist."""
        ...

    async def list_deployments(self) -> list[Json]:
        """Every DeepSeekV4Deployment that this operator watches."""
        ...

    async def list_pods(self, key: Key) -> list[Json]:
        """The pods of one deployment, by label selector (released ones included)."""
        ...

    async def list_replica_sets(self, key: Key) -> list[Json]:
        """The ReplicaSets of one deployment, by label selector."""
        ...

    async def list_children(self, key: Key) -> list[Json]:
        """Services and PodDisruptionBudgets of one deployment, by label selector, with `kind` filled in."""
        ...

    async def get_remediation(self, namespace: str, name: str) -> Json | None:
        """One Remediation, or None."""
        ...

    async def list_remediation_names(self, key: Key) -> list[tuple[str, str]]:
        """(name, creationTimestamp) of this deployment's Remediations, metadata only."""
        ...

    async def list_disruption_budgets(self, namespace: str) -> list[Json]:
        """Every PodDisruptionBudget of a namespace, whosever it is."""
        ...

    async def list_quotas(self, namespace: str) -> list[Json]:
        """Every ResourceQuota of a namespace."""
        ...

    async def list_nodes(self) -> list[Json]:
        """Every node."""
        ...

    async def list_gpu_pods(self) -> list[Json]:
        """Every pod bound to a node and not ended, of all namespaces (for free-GPU arithmetic)."""
        ...

    async def get_secret_value(self, namespace: str, name: str, key: str) -> str | None:
        """The decoded value of one key of one Secret, or None where either is missing."""
        ...

    async def get_config_map(self, namespace: str, name: str) -> Json | None:
        """One ConfigMap, or None."""
        ...

    async def write_status(self, key: Key, status: Mapping[str, Any], resource_version: str) -> str:
        """Replace the deployment's status if nobody wrote since `resource_version`; the new version.

        Raises Conflict where somebody did.
        """
        ...

    async def create(self, manifest: Json) -> Json:
        """Create one object of any kind we own; AlreadyExists where it is there."""
        ...

    async def apply(self, manifest: Json) -> Json:
        """Server-side apply by the operator's field manager, forced: for children that are ours by definition."""
        ...

    async def scale_replica_set(
        self, namespace: str, name: str, replicas: int, resource_version: str
    ) -> None:
        """Set spec.replicas; Conflict where the ReplicaSet changed since `resource_version`."""
        ...

    async def patch_replica_set(self, namespace: str, name: str, patch: Json, resource_version: str) -> None:
        """Merge-patch a ReplicaSet's annotations and its template's affinity; Conflict where it changed since."""
        ...

    async def patch_node(self, name: str, patch: Json, resource_version: str) -> None:
        """Merge-patch a node; Conflict where it changed since. Forbidden unless the chart's nodeActions are enabled."""
        ...

    async def patch_pod(self, namespace: str, name: str, uid: str, patch: Json) -> None:
        """Merge-patch one pod's metadata; Conflict where a pod of that name has another UID, NotFound if gone."""
        ...

    async def evict(self, namespace: str, name: str, uid: str, grace_seconds: int | None) -> None:
        """Eviction with `preconditions.uid`; Refused where a disruption budget says not now."""
        ...

    async def delete(self, api_version: str, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete one object of ours with a UID precondition, in the background; NotFound if gone."""
        ...

    async def write_remediation_status(
        self, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> str:
        """Replace a Remediation's status; the new version; Conflict where somebody wrote."""
        ...

    async def create_event(
        self, regarding: Mapping[str, Any], event_type: str, reason: str, message: str, action: str
    ) -> None:
        """Post one Kubernetes Event (`event_type` Normal or Warning) about an object: its apiVersion, kind, namespace,
        name and uid."""
        ...

    async def pod_log_tail(
        self, namespace: str, name: str, lines: int, previous: bool = False
    ) -> Sequence[str]:
        """The last lines of the engine container's log, `previous`: of its run before; empty where there is none."""
        ...

    async def list_pod_events(self, namespace: str, name: str, uid: str) -> list[Json]:
        """Events about one pod, at most some hundred, in no order."""
        ...
