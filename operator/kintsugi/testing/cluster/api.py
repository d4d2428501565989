"""One client's view of the fake cluster: `ports.cluster.ClusterPort` and `adapters.kube.lease.LeaseApi` in memory."""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kintsugi.adapters.kube.kinds import plural_of
from kintsugi.core import names
from kintsugi.core.snapshot import Key
from kintsugi.ports.errors import Conflict, Invalid, NotFound
from kintsugi.testing.cluster import disruption
from kintsugi.testing.cluster.faults import Faults, Write
from kintsugi.testing.cluster.matching import equal_labels
from kintsugi.testing.cluster.merge import apply, merge_patch
from kintsugi.testing.cluster.store import Json, clone
from kintsugi.testing.cluster.world import Event, World

R = TypeVar("R")
CHILDREN = ("Service", "PodDisruptionBudget")


class FakeApi:
    """What one operator (or one person) sees of a `World`. Every call first lets other tasks run, as I/O would."""

    def __init__(self, world: World, watched: Sequence[str] = ()) -> None:
        self.world = world
        self.faults = Faults(world.clock.now)
        self.watched = tuple(watched)
        """Namespaces that `list_deployments` looks at; empty = all."""
        self.writes: list[Write] = []
        """Every write of this client that was done, in order."""
        self.reads = 0
        self._applied: dict[tuple[str, str, str], Json] = {}

    async def get_deployment(self, key: Key) -> Json | None:
        return await self._find(names.DEPLOYMENT_KIND, key.namespace, key.name)

    async def list_deployments(self) -> list[Json]:
        await self._read("list", names.DEPLOYMENT_KIND)
        found = self.world.store.each(names.DEPLOYMENT_KIND)
        return [
            clone(each) for each in found if not self.watched or each["metadata"]["namespace"] in self.watched
        ]

    async def list_pods(self, key: Key) -> list[Json]:
        return await self._list("Pod", key.namespace, _engines_of(key), exists=names.POOL_LABEL)

    async def list_replica_sets(self, key: Key) -> list[Json]:
        return await self._list("ReplicaSet", key.namespace, _engines_of(key), exists=names.POOL_LABEL)

    async def list_children(self, key: Key) -> list[Json]:
        return [each for kind in CHILDREN for each in await self._list(kind, key.namespace, _engines_of(key))]

    async def get_remediation(self, namespace: str, name: str) -> Json | None:
        return await self._find(names.REMEDIATION_KIND, namespace, name)

    async def list_remediation_names(self, key: Key) -> list[tuple[str, str]]:
        found = await self._list(names.REMEDIATION_KIND, key.namespace, {names.DEPLOYMENT_LABEL: key.name})
        return [(each["metadata"]["name"], each["metadata"]["creationTimestamp"]) for each in found]

    async def list_disruption_budgets(self, namespace: str) -> list[Json]:
        await self._read("list", "PodDisruptionBudget")
        store = self.world.store
        found = [clone(each) for each in store.each("PodDisruptionBudget", namespace)]
        return [{**each, "status": disruption.budget_status(store, each)} for each in found]

    async def list_quotas(self, namespace: str) -> list[Json]:
        await self._read("list", "ResourceQuota")
        return self.world.quota_objects(namespace)

    async def list_nodes(self) -> list[Json]:
        await self._read("list", "Node")
        return [clone(each) for each in self.world.store.each("Node")]

    async def list_gpu_pods(self) -> list[Json]:
        await self._read("list", "Pod")
        return [
            clone(pod)
            for pod in self.world.store.each("Pod")
            if pod["spec"].get("nodeName")
            and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    async def get_config_map(self, namespace: str, name: str) -> Json | None:
        return await self._find("ConfigMap", namespace, name)

    async def get_secret_value(self, namespace: str, name: str, key: str) -> str | None:
        found = await self._find("Secret", namespace, name)
        held = ((found or {}).get("data") or {}).get(key)
        return None if held is None else base64.b64decode(held).decode().strip()

    async def write_status(self, key: Key, status: Mapping[str, Any], resource_version: str) -> str:
        return await self._put_status(
            names.DEPLOYMENT_KIND, key.namespace, key.name, status, resource_version
        )

    async def create(self, manifest: Json) -> Json:
        kind, (namespace, name) = _kind(manifest), _where(manifest)

        def done() -> Json:
            if kind == "Pod":
                self.world.make_pod(clone(manifest))
                return self._must("Pod", namespace, name)
            return self.world.store.create(manifest)

        return await self._write("create", kind, namespace, name, "", done)

    async def apply(self, manifest: Json) -> Json:
        kind, (namespace, name) = _kind(manifest), _where(manifest)
        spot = (kind, namespace, name)

        def done() -> Json:
            store, last = self.world.store, self._applied.get(spot, {})
            if store.find(*spot) is None:
                made = store.create(manifest)
            else:
                made = store.update(*spot, lambda live: apply(live, last, clone(manifest)))
            self._applied[spot] = clone(manifest)
            return made

        return await self._write("apply", kind, namespace, name, "", done)

    async def scale_replica_set(
        self, namespace: str, name: str, replicas: int, resource_version: str
    ) -> None:
        def change(held: Json) -> Json:
            held["metadata"]["resourceVersion"] = resource_version
            held["spec"]["replicas"] = replicas
            return held

        if replicas < 0:
            raise Invalid("spec.replicas: must be greater than or equal to 0")
        await self._write(
            "scale",
            "ReplicaSet",
            namespace,
            name,
            str(replicas),
            lambda: self.world.store.update("ReplicaSet", namespace, name, change),
        )

    async def patch_replica_set(self, namespace: str, name: str, patch: Json, resource_version: str) -> None:
        whole = merge_patch(patch, {"metadata": {"resourceVersion": resource_version}})
        await self._write(
            "patch",
            "ReplicaSet",
            namespace,
            name,
            json.dumps(patch, sort_keys=True),
            lambda: self.world.store.update(
                "ReplicaSet", namespace, name, lambda held: _dict(merge_patch(held, whole))
            ),
        )

    async def patch_node(self, name: str, patch: Json, resource_version: str) -> None:
        whole = merge_patch(patch, {"metadata": {"resourceVersion": resource_version}})
        await self._write(
            "patch",
            "Node",
            "",
            name,
            json.dumps(patch, sort_keys=True),
            lambda: self.world.store.update("Node", "", name, lambda held: _dict(merge_patch(held, whole))),
        )

    async def patch_pod(self, namespace: str, name: str, uid: str, patch: Json) -> None:
        if set(patch) - {"metadata"}:
            raise Invalid(f"only metadata of a pod is patched, not {sorted(patch)}")
        whole = merge_patch(patch, {"metadata": {"uid": uid}})
        await self._write(
            "patch",
            "Pod",
            namespace,
            name,
            json.dumps(patch, sort_keys=True),
            lambda: self.world.store.update(
                "Pod", namespace, name, lambda held: _dict(merge_patch(held, whole))
            ),
        )

    async def evict(self, namespace: str, name: str, uid: str, grace_seconds: int | None) -> None:
        def done() -> None:
            pod = self._must("Pod", namespace, name)
            _same(pod, uid)
            disruption.check_eviction(self.world.store, pod)
            self.world.end_pod(namespace, name, None if grace_seconds is None else float(grace_seconds))

        await self._write("evict", "Pod", namespace, name, str(grace_seconds), done)

    async def delete(self, api_version: str, kind: str, namespace: str, name: str, uid: str) -> None:
        plural_of(api_version, kind)

        def done() -> None:
            _same(self._must(kind, namespace, name), uid)
            if kind == "Pod":
                self.world.end_pod(namespace, name, None)
            else:
                self.world.store.remove(kind, namespace, name)

        await self._write("delete", kind, namespace, name, "", done)

    async def write_remediation_status(
        self, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> str:
        return await self._put_status(names.REMEDIATION_KIND, namespace, name, status, resource_version)

    async def create_event(
        self, regarding: Mapping[str, Any], event_type: str, reason: str, message: str, action: str
    ) -> None:
        about = "/".join(str(regarding.get(key, "")) for key in ("kind", "namespace", "name"))
        await self._begin("create", "Event", write=False)
        self.world.events.append(Event(self.world.clock.now(), about, event_type, reason, message, action))

    async def pod_log_tail(
        self, namespace: str, name: str, lines: int, previous: bool = False
    ) -> Sequence[str]:
        await self._read("get", "Pod/log")
        self._must("Pod", namespace, name)
        logs = self.world.kubelets.ended_logs if previous else self.world.logs
        return tuple(logs.get((namespace, name), ()))[-lines:]

    async def list_pod_events(self, namespace: str, name: str, uid: str) -> list[Json]:
        await self._read("list", "Event")
        about = f"Pod/{namespace}/{name}"
        return [
            {"type": each.kind, "reason": each.reason, "message": each.message, "count": 1}
            for each in self.world.events
            if each.about == about
        ]

    async def get_lease(self, namespace: str, name: str) -> Json | None:
        """The Lease, or None."""
        return await self._find("Lease", namespace, name)

    async def replace_lease(self, lease: Json) -> Json:
        """Replace the Lease; Conflict where its resourceVersion is not the stored one."""
        namespace, name = _where(lease)
        return await self._write(
            "update",
            "Lease",
            namespace,
            name,
            "",
            lambda: self.world.store.update("Lease", namespace, name, lambda _: clone(lease)),
        )

    async def _find(self, kind: str, namespace: str, name: str) -> Json | None:
        await self._read("get", kind)
        return self.world.store.find(kind, namespace, name)

    async def _list(
        self, kind: str, namespace: str, labels: Mapping[str, str], exists: str = ""
    ) -> list[Json]:
        await self._read("list", kind)
        found = []
        for each in self.world.store.each(kind, namespace):
            held = each["metadata"].get("labels") or {}
            if equal_labels(labels, held) and (not exists or exists in held):
                found.append(clone(each))
        return found

    async def _put_status(
        self, kind: str, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> str:
        def change(held: Json) -> Json:
            held["metadata"]["resourceVersion"] = resource_version
            return {**held, "status": clone(dict(status))}  # pruning must not reach what the caller holds

        if not resource_version:
            raise Conflict(f"status of {namespace}/{name}: written without a resourceVersion")
        written = await self._write(
            "status",
            kind,
            namespace,
            name,
            "",
            lambda: self.world.store.update_status(kind, namespace, name, change),
        )
        return str(written["metadata"]["resourceVersion"])

    async def _read(self, verb: str, kind: str) -> None:
        self.reads += 1
        await self._begin(verb, kind, write=False)

    async def _write(
        self, verb: str, kind: str, namespace: str, name: str, detail: str, do: Callable[[], R]
    ) -> R:
        lost = await self._begin(verb, kind, write=True)
        result = do()
        self.writes.append(Write(self.world.clock.now(), verb, kind, namespace, name, detail))
        self.faults.after_write(verb, kind)
        if lost is not None:
            raise lost
        return result

    async def _begin(self, verb: str, kind: str, write: bool) -> Exception | None:
        await asyncio.sleep(0)
        return self.faults.before_call(verb, kind, write)

    def _must(self, kind: str, namespace: str, name: str) -> Json:
        found = self.world.store.find(kind, namespace, name)
        if found is None:
            raise NotFound(f"{kind} {namespace}/{name} not found")
        return found


def _engines_of(key: Key) -> Mapping[str, str]:
    return {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.DEPLOYMENT_LABEL: key.name}


def _kind(manifest: Mapping[str, Any]) -> str:
    """The kind, if it is one that the real adapter writes."""
    kind = str(manifest.get("kind"))
    plural_of(str(manifest.get("apiVersion")), kind)
    return kind


def _where(manifest: Mapping[str, Any]) -> tuple[str, str]:
    meta = manifest["metadata"]
    return str(meta.get("namespace", "")), str(meta.get("name", ""))


def _same(held: Json, uid: str) -> None:
    if held["metadata"]["uid"] != uid:
        raise Conflict(
            f"the UID in the precondition ({uid}) does not match the stored {held['metadata']['uid']}"
        )


def _dict(value: Any) -> Json:
    assert isinstance(value, dict)
    return value
