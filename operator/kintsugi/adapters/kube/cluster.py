"""`ports.cluster.ClusterPort` over a real API server."""

import base64
import binascii
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from kintsugi.adapters.kube.client import (
    APPLY_PATCH,
    MERGE_PATCH,
    METADATA_LIST,
    Json,
    KubeClient,
    Request,
    path,
)
from kintsugi.adapters.kube.events import event
from kintsugi.adapters.kube.gpu_pods import asks_for_devices, trimmed
from kintsugi.adapters.kube.kinds import plural_of
from kintsugi.core import names
from kintsugi.core.snapshot import Key
from kintsugi.ports.errors import Conflict, Invalid, NotFound, Unavailable

PAGE_SIZE: Final = 500
"""Objects per answer of cluster-wide lists, client-go's own default."""
LOG_LIMIT_BYTES: Final = 256 * 1024
EVENTS_OF_A_POD: Final = 100
"""Equal ones are counted in one object, so that a pod rarely has more than a dozen."""
_BOUND_AND_ALIVE: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class KubeCluster:
    """Namespaced reads and writes of one operator.

    `watched`: the namespaces whose deployments are listed; empty = all. `now` gives epoch seconds for Events,
    `instance` names this process in them.
    """

    def __init__(
        self, client: KubeClient, now: Callable[[], float], watched: Sequence[str] = (), instance: str = ""
    ) -> None:
        self._client = client
        self._now = now
        self._watched = tuple(watched)
        self._instance = instance

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def get_deployment(self, key: Key) -> Json | None:
        """The DeepSeekV4Deployment, or None where it does not exist."""
        return await self._get(names.API_VERSION, names.DEPLOYMENT_KIND, key.namespace, key.name)

    async def list_deployments(self) -> list[Json]:
        """Every DeepSeekV4Deployment of the watched namespaces."""
        return [
            {"apiVersion": names.API_VERSION, "kind": names.DEPLOYMENT_KIND, **each}
            for namespace in self._watched or ("",)
            async for each in self._pages(names.API_VERSION, names.DEPLOYMENT_PLURAL, namespace)
        ]

    async def list_pods(self, key: Key) -> list[Json]:
        """The engine pods of one deployment, released ones included."""
        return await self._list("v1", "Pod", key.namespace, f"{_ours(key)},{names.POOL_LABEL}")

    async def list_replica_sets(self, key: Key) -> list[Json]:
        """The ReplicaSets of one deployment's pools."""
        return await self._list("apps/v1", "ReplicaSet", key.namespace, f"{_ours(key)},{names.POOL_LABEL}")

    async def list_children(self, key: Key) -> list[Json]:
        """Services and PodDisruptionBudgets of one deployment, with `kind` filled in."""
        services = await self._list("v1", "Service", key.namespace, _ours(key))
        return services + await self._list("policy/v1", "PodDisruptionBudget", key.namespace, _ours(key))

    async def get_remediation(self, namespace: str, name: str) -> Json | None:
        """One Remediation, or None."""
        return await self._get(names.API_VERSION, names.REMEDIATION_KIND, namespace, name)

    async def list_remediation_names(self, key: Key) -> list[tuple[str, str]]:
        """(name, creationTimestamp) of this deployment's Remediations; their bodies never leave the server."""
        selector = f"{names.DEPLOYMENT_LABEL}={key.name}"
        found = self._pages(
            names.API_VERSION, names.REMEDIATION_PLURAL, key.namespace, selector, accept=METADATA_LIST
        )
        return [(each["metadata"]["name"], each["metadata"]["creationTimestamp"]) async for each in found]

    async def list_disruption_budgets(self, namespace: str) -> list[Json]:
        """Every PodDisruptionBudget of a namespace, whosever it is."""
        return [each async for each in self._pages("policy/v1", "poddisruptionbudgets", namespace)]

    async def list_quotas(self, namespace: str) -> list[Json]:
        """Every ResourceQuota of a namespace."""
        return [each async for each in self._pages("v1", "resourcequotas", namespace)]

    async def list_nodes(self) -> list[Json]:
        """Every node."""
        return [each async for each in self._pages("v1", "nodes")]

    async def list_gpu_pods(self) -> list[Json]:
        """Every bound, not ended pod that asks for a device of any vendor, cut down to what GPU arithmetic needs."""
        found = self._pages("v1", "pods", fields=_BOUND_AND_ALIVE)
        return [trimmed(pod) async for pod in found if asks_for_devices(pod)]

    async def get_secret_value(self, namespace: str, name: str, key: str) -> str | None:
        """The decoded value of one key of one Secret, outer white space off; None where either is missing."""
        found = await self._get("v1", "Secret", namespace, name, plural="secrets")
        held = ((found or {}).get("data") or {}).get(key)
        if held is None:
            return None
        try:
            return base64.b64decode(held, validate=True).decode().strip()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise Invalid(f"secret {namespace}/{name}: key {key} is no text: {error}") from error

    async def get_config_map(self, namespace: str, name: str) -> Json | None:
        """One ConfigMap, or None."""
        return await self._get("v1", "ConfigMap", namespace, name)

    async def write_status(self, key: Key, status: Mapping[str, Any], resource_version: str) -> str:
        """Replace the deployment's status; Conflict where anybody wrote since `resource_version`."""
        return await self._put_status(
            names.DEPLOYMENT_KIND, key.namespace, key.name, status, resource_version
        )

    async def write_remediation_status(
        self, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> str:
        """Replace a Remediation's status; Conflict where anybody wrote since `resource_version`."""
        return await self._put_status(names.REMEDIATION_KIND, namespace, name, status, resource_version)

    async def create(self, manifest: Json) -> Json:
        """Create one object of a kind we own. Fields that the server does not know are an error, not dropped."""
        plural, namespace, name = _spot(manifest)
        return await self._client.call(
            Request(
                "POST",
                path(manifest["apiVersion"], plural, namespace),
                "create",
                plural,
                namespace,
                name,
                query=(("fieldManager", names.FIELD_MANAGER), ("fieldValidation", "Strict")),
                body=manifest,
            )
        )

    async def apply(self, manifest: Json) -> Json:
        """Server-side apply by our field manager, forced. Fields that the server does not know are an error."""
        plural, namespace, name = _spot(manifest)
        return await self._client.call(
            Request(
                "PATCH",
                path(manifest["apiVersion"], plural, namespace, name),
                "patch",
                plural,
                namespace,
                name,
                query=(
                    ("fieldManager", names.FIELD_MANAGER),
                    ("force", "true"),
                    ("fieldValidation", "Strict"),
                ),
                body=manifest,
                content_type=APPLY_PATCH,
            )
        )

    async def scale_replica_set(
        self, namespace: str, name: str, replicas: int, resource_version: str
    ) -> None:
        """Set spec.replicas; Conflict where the ReplicaSet changed since `resource_version`."""
        await self.patch_replica_set(namespace, name, {"spec": {"replicas": replicas}}, resource_version)

    async def patch_replica_set(self, namespace: str, name: str, patch: Json, resource_version: str) -> None:
        """Merge-patch a ReplicaSet's annotations and its template's affinity; Conflict where it changed since."""
        await self._patch("apps/v1", "replicasets", namespace, name, patch, resource_version)

    async def patch_node(self, name: str, patch: Json, resource_version: str) -> None:
        """Merge-patch a node; Conflict where it changed since. Forbidden unless the chart's nodeActions are enabled."""
        await self._patch("v1", "nodes", "", name, patch, resource_version)

    async def patch_pod(self, namespace: str, name: str, uid: str, patch: Json) -> None:
        """Merge-patch one pod's metadata; Conflict where a pod of that name has another UID, NotFound if gone."""
        if set(patch) - {"metadata"}:
            raise Invalid(f"only metadata of a pod is patched, not {sorted(patch)}")
        await self._patch(
            "v1", "pods", namespace, name, {"metadata": {**patch.get("metadata", {}), "uid": uid}}
        )

    async def evict(self, namespace: str, name: str, uid: str, grace_seconds: int | None) -> None:
        """Eviction of exactly this pod; Refused where a disruption budget says not now."""
        options: Json = {"preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        body: Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": options,
        }
        where = path("v1", "pods", namespace, name, "eviction")
        await self._client.call(Request("POST", where, "create", "pods/eviction", namespace, name, body=body))

    async def delete(self, api_version: str, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete exactly this object, its dependents in the background; NotFound if gone, Conflict by UID."""
        plural = plural_of(api_version, kind)
        options: Json = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        where = path(api_version, plural, namespace, name)
        await self._client.call(Request("DELETE", where, "delete", plural, namespace, name, body=options))

    async def create_event(
        self, regarding: Mapping[str, Any], event_type: str, reason: str, message: str, action: str
    ) -> None:
        """Post one Event (`event_type` Normal or Warning)."""
        body = event(regarding, event_type, reason, message, action, self._now(), self._instance)
        namespace = body["metadata"]["namespace"]
        where = path("v1", "events", namespace)
        name = f"{regarding.get('kind', '')}/{regarding.get('name', '')}"
        await self._client.call(Request("POST", where, "create", "events", namespace, name, body=body))

    async def pod_log_tail(
        self, namespace: str, name: str, lines: int, previous: bool = False
    ) -> Sequence[str]:
        """The last lines of the engine container's log, `previous`: of its run before; empty while it has none.

        NotFound if the pod is gone.
        """
        query = (
            ("container", names.ENGINE_CONTAINER),
            ("tailLines", str(lines)),
            ("limitBytes", str(LOG_LIMIT_BYTES)),
            *((("previous", "true"),) if previous else ()),
        )
        where = path("v1", "pods", namespace, name, "log")
        try:
            text = await self._client.text(
                Request("GET", where, "get", "pods/log", namespace, name, query=query, accept="*/*")
            )
        except Invalid:
            return ()  # 400: the container waits to start, or there is none of that name
        return tuple(text.splitlines()[-lines:])

    async def list_pod_events(self, namespace: str, name: str, uid: str) -> list[Json]:
        """Events about one pod, at most `EVENTS_OF_A_POD`, in no order."""
        where = path("v1", "events", namespace)
        query = (("fieldSelector", f"involvedObject.uid={uid}"), ("limit", str(EVENTS_OF_A_POD)))
        answer = await self._client.call(
            Request("GET", where, "list", "events", namespace, name, query=query)
        )
        return list(answer.get("items") or ())

    async def get_lease(self, namespace: str, name: str) -> Json | None:
        """The Lease, or None."""
        return await self._get("coordination.k8s.io/v1", "Lease", namespace, name)

    async def replace_lease(self, lease: Json) -> Json:
        """Replace the Lease; Conflict where its resourceVersion is not the stored one."""
        plural, namespace, name = _spot(lease)
        where = path(lease["apiVersion"], plural, namespace, name)
        return await self._client.call(Request("PUT", where, "update", plural, namespace, name, body=lease))

    async def _get(
        self, api_version: str, kind: str, namespace: str, name: str, plural: str = ""
    ) -> Json | None:
        resource = plural or plural_of(api_version, kind)
        try:
            return await self._client.call(
                Request("GET", path(api_version, resource, namespace, name), "get", resource, namespace, name)
            )
        except NotFound:
            return None

    async def _list(self, api_version: str, kind: str, namespace: str, selector: str) -> list[Json]:
        """One whole list by selector; items get the kind, which lists leave out."""
        found = self._pages(api_version, plural_of(api_version, kind), namespace, selector, page_size=0)
        return [{"apiVersion": api_version, "kind": kind, **each} async for each in found]

    async def _pages(
        self,
        api_version: str,
        plural: str,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        accept: str = "application/json",
        page_size: int = PAGE_SIZE,
    ) -> AsyncIterator[Json]:
        """Every item, page by page; Unavailable where the list expired between two pages (so: look again)."""
        token = ""
        while True:
            query = [("labelSelector", selector), ("fieldSelector", fields), ("continue", token)]
            if page_size:
                query.append(("limit", str(page_size)))
            request = Request(
                "GET",
                path(api_version, plural, namespace),
                "list",
                plural,
                namespace,
                query=tuple((key, value) for key, value in query if value),
                accept=accept,
            )
            try:
                answer = await self._client.call(request)
            except NotFound as error:
                if token:
                    raise Unavailable(f"{request}: the list expired between two pages") from error
                raise
            for item in answer.get("items") or ():
                yield item
            token = str((answer.get("metadata") or {}).get("continue") or "")
            if not token:
                return

    async def _patch(
        self, api_version: str, plural: str, namespace: str, name: str, body: Json, version: str = ""
    ) -> None:
        """Merge-patch one object; with `version` only if it still has that resourceVersion."""
        if version:
            body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": version}}
        await self._client.call(
            Request(
                "PATCH",
                path(api_version, plural, namespace, name),
                "patch",
                plural,
                namespace,
                name,
                query=(("fieldManager", names.FIELD_MANAGER),),
                body=body,
                content_type=MERGE_PATCH,
            )
        )

    async def _put_status(
        self, kind: str, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> str:
        """PUT of the status subresource: stale keys go, and the server ignores all else in the body."""
        if not resource_version:
            raise Conflict(f"status of {namespace}/{name}: written without a resourceVersion")
        plural = plural_of(names.API_VERSION, kind)
        body: Json = {
            "apiVersion": names.API_VERSION,
            "kind": kind,
            "metadata": {"namespace": namespace, "name": name, "resourceVersion": resource_version},
            "status": dict(status),
        }
        written = await self._client.call(
            Request(
                "PUT",
                path(names.API_VERSION, plural, namespace, name, "status"),
                "update",
                f"{plural}/status",
                namespace,
                name,
                query=(("fieldManager", names.FIELD_MANAGER),),
                body=body,
            )
        )
        return str(written["metadata"]["resourceVersion"])


def _ours(key: Key) -> str:
    return f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY},{names.DEPLOYMENT_LABEL}={key.name}"


def _spot(manifest: Json) -> tuple[str, str, str]:
    meta = manifest.get("metadata") or {}
    plural = plural_of(str(manifest.get("apiVersion")), str(manifest.get("kind")))
    return plural, str(meta.get("namespace") or ""), str(meta.get("name") or meta.get("generateName") or "")
