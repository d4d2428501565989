"""Every call of the port is covered by the table of permissions, and no row of it is idle."""

import inspect

from kintsugi.adapters.kube.admission import WebhookObjects
from kintsugi.adapters.kube.client import Json, Request
from kintsugi.adapters.kube.cluster import KubeCluster
from kintsugi.adapters.kube.permissions import PERMISSIONS, Scope
from kintsugi.core import names
from kintsugi.core.snapshot import Key
from kintsugi.ports.cluster import ClusterPort

KEY = Key("llm", "chat")
META = {"metadata": {"namespace": "llm", "name": "x"}}
WRITTEN = (("v1", "Service"), ("policy/v1", "PodDisruptionBudget"), ("apps/v1", "ReplicaSet"))
REMEDIATION = {"apiVersion": names.API_VERSION, "kind": names.REMEDIATION_KIND, **META}
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **META}
OF_KOPF = {(names.GROUP, names.DEPLOYMENT_PLURAL, "watch")}
"""Needed by the watch, which is not a call of the port."""


class Recorder:
    """Stands in for the client: answers nothing much and remembers what would have been asked."""

    def __init__(self) -> None:
        self.needed: set[tuple[str, str, str]] = set()

    async def call(self, request: Request) -> Json:
        root = request.path.split("/")
        group = "" if root[1] == "api" else root[2]
        self.needed.add((group, request.resource, request.verb))
        if request.content_type == "application/apply-patch+yaml":
            self.needed.add((group, request.resource, "create"))  # where the object is not there yet
        return {"metadata": {"resourceVersion": "1"}, "items": []}

    async def text(self, request: Request) -> str:
        await self.call(request)
        return ""

    async def close(self) -> None: ...


async def ask_everything(cluster: KubeCluster) -> None:
    await cluster.get_deployment(KEY)
    await cluster.list_deployments()
    await cluster.list_pods(KEY)
    await cluster.list_replica_sets(KEY)
    await cluster.list_children(KEY)
    await cluster.get_remediation("llm", "x")
    await cluster.list_remediation_names(KEY)
    await cluster.list_nodes()
    await cluster.list_gpu_pods()
    await cluster.get_secret_value("llm", "x", "y")
    await cluster.get_config_map("llm", "x")
    await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", **META})
    await cluster.write_status(KEY, {}, "1")
    await cluster.write_remediation_status("llm", "x", {}, "1")
    for api_version, kind in WRITTEN:
        await cluster.create({"apiVersion": api_version, "kind": kind, **META})
        await cluster.apply({"apiVersion": api_version, "kind": kind, **META})
        await cluster.delete(api_version, kind, "llm", "x", "u")
    await cluster.create(REMEDIATION)
    await cluster.delete(names.API_VERSION, names.REMEDIATION_KIND, "llm", "x", "u")
    await cluster.scale_replica_set("llm", "x", 1, "1")
    await cluster.list_disruption_budgets("llm")
    await cluster.list_quotas("llm")
    await cluster.patch_replica_set("llm", "x", {"metadata": {}}, "1")
    await cluster.patch_node("x", {"metadata": {}}, "1")
    await cluster.patch_pod("llm", "x", "u", {"metadata": {}})
    await cluster.evict("llm", "x", "u", None)
    await cluster.create_event({"namespace": "llm", "name": "x"}, "Normal", "R", "m", "a")
    await cluster.pod_log_tail("llm", "x", 5)
    await cluster.list_pod_events("llm", "x", "u")
    await cluster.get_lease("llm", "x")
    await cluster.create(LEASE)
    await cluster.replace_lease(LEASE)


async def ask_of_the_webhook(objects: WebhookObjects) -> None:
    await objects.get_configuration("x")
    await objects.get_secret("ops", "x")
    await objects.create_secret("ops", "x", {}, None)
    await objects.replace_secret({"metadata": {"namespace": "ops", "name": "x"}}, {}, None)
    await objects.trust({"metadata": {"name": "x", "uid": "u"}, "webhooks": []}, b"")


async def test_the_table_is_what_the_calls_need_no_more_and_no_less() -> None:
    recorder = Recorder()
    await ask_everything(KubeCluster(recorder, lambda: 0.0))  # type: ignore[arg-type]
    await ask_of_the_webhook(WebhookObjects(recorder))  # type: ignore[arg-type]
    granted = {(row.group, row.resource, verb) for row in PERMISSIONS for verb in row.verbs}
    assert granted - OF_KOPF == recorder.needed


def test_this_test_asks_every_call_of_the_webhook() -> None:
    asked = inspect.getsource(ask_of_the_webhook)
    calls = [
        name for name, _ in inspect.getmembers(WebhookObjects, inspect.isfunction) if not name.startswith("_")
    ]
    assert [name for name in calls if f"objects.{name}(" not in asked] == []


def test_this_test_asks_every_call_of_the_port() -> None:
    asked = inspect.getsource(ask_everything)
    calls = [
        name for name, _ in inspect.getmembers(ClusterPort, inspect.isfunction) if not name.startswith("_")
    ]
    assert [name for name in calls if f"cluster.{name}(" not in asked] == []


def test_no_right_is_asked_for_that_would_end_a_pod_unasked_or_read_more_than_needed() -> None:
    asked_for = [row for row in PERMISSIONS if row.scope is not Scope.NODES]
    granted = {(row.resource, verb) for row in asked_for for verb in row.verbs}
    assert not granted & {
        ("pods", "delete"),
        ("secrets", "list"),
        ("secrets", "watch"),
        (names.DEPLOYMENT_PLURAL, "update"),
        (names.DEPLOYMENT_PLURAL, "patch"),
        ("nodes", "patch"),
    }
    assert not any("*" in (row.group, row.resource, *row.verbs) for row in PERMISSIONS)


def test_only_reading_is_allowed_beyond_the_fleets_own_namespaces() -> None:
    assert {verb for row in PERMISSIONS if row.scope is Scope.CLUSTER for verb in row.verbs} == {"list"}
    assert all(row.why for row in PERMISSIONS)


def test_beyond_its_own_namespace_the_webhook_needs_one_object_by_name_and_secrets_are_read_by_name() -> None:
    rows = [row for row in PERMISSIONS if row.scope in (Scope.WEBHOOK, Scope.WEBHOOK_CLUSTER)]
    unnamed = {(row.scope, row.resource, verb) for row in rows if not row.named for verb in row.verbs}
    assert unnamed == {(Scope.WEBHOOK, "secrets", "create")}
