"""Two clusters behind one face, so that one suite says what both of them do."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import kubernetes.client

from kintsugi.adapters.clock import SystemClock
from kintsugi.adapters.kube.client import MERGE_PATCH, KubeClient, Request, path
from kintsugi.adapters.kube.cluster import KubeCluster
from kintsugi.adapters.kube.permissions import PERMISSIONS
from kintsugi.core import names
from kintsugi.core.snapshot import Key
from kintsugi.ports.clock import Clock
from kintsugi.ports.errors import AlreadyExists, PortError
from kintsugi.testing.cluster import FakeApi, FakeCluster, Start

Json = dict[str, Any]
PATIENCE_SECONDS = 60.0
_PLURALS = {
    "Secret": "secrets",
    "Service": "services",
    names.DEPLOYMENT_KIND: names.DEPLOYMENT_PLURAL,
}


class Bench(Protocol):
    """A cluster, the port under test, and a person's own access beside it."""

    namespace: str

    @property
    def port(self) -> KubeCluster | FakeApi: ...

    @property
    def clock(self) -> Clock: ...

    async def put(self, manifest: Json) -> Json:
        """Create an object as a person would."""
        ...

    async def edit(self, api_version: str, plural: str, kind: str, name: str, patch: Json) -> Json:
        """Merge-patch an object as a person would."""
        ...

    async def look(self, api_version: str, plural: str, kind: str, name: str) -> Json:
        """The object as it is."""
        ...

    async def wait(self, seconds: float) -> None:
        """Let the cluster's controllers work for a while."""
        ...

    async def close(self) -> None: ...


@dataclass
class FakeBench:
    """The cluster in memory; waiting costs nothing."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    namespace: str = "contract"

    def __post_init__(self) -> None:
        self.cluster.add_node("n1", gpus=4)
        self.cluster.on_start(_as_probed)

    @property
    def clock(self) -> Clock:
        return self.cluster.clock

    @property
    def port(self) -> FakeApi:
        return self.cluster

    async def put(self, manifest: Json) -> Json:
        return self.cluster.put(manifest)

    async def edit(self, api_version: str, plural: str, kind: str, name: str, patch: Json) -> Json:
        return self.cluster.edit(kind, self.namespace, name, patch)

    async def look(self, api_version: str, plural: str, kind: str, name: str) -> Json:
        return self.cluster.get(kind, self.namespace, name)

    async def wait(self, seconds: float) -> None:
        await self.cluster.advance(seconds)

    async def close(self) -> None:
        assert self.cluster.pruned in ([], ["DeepSeekV4Deployment.status.noSuchField"])


@dataclass
class RealBench:
    """A namespace of a real cluster. `client` may do anything; the port has the permissions of our table alone."""

    port: KubeCluster
    client: KubeClient
    namespace: str
    clock: SystemClock = field(default_factory=SystemClock)

    async def put(self, manifest: Json) -> Json:
        plural = _PLURALS[manifest["kind"]]
        where = path(manifest["apiVersion"], plural, self.namespace)
        return await self.client.call(Request("POST", where, "create", plural, self.namespace, body=manifest))

    async def edit(self, api_version: str, plural: str, kind: str, name: str, patch: Json) -> Json:
        where = path(api_version, plural, self.namespace, name)
        return await self.client.call(
            Request(
                "PATCH", where, "patch", plural, self.namespace, name, body=patch, content_type=MERGE_PATCH
            )
        )

    async def look(self, api_version: str, plural: str, kind: str, name: str) -> Json:
        where = path(api_version, plural, self.namespace, name)
        return await self.client.call(Request("GET", where, "get", plural, self.namespace, name))

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.3))

    async def close(self) -> None:
        where = path("v1", "namespaces", "", self.namespace)
        await self.client.call(Request("DELETE", where, "delete", "namespaces", name=self.namespace))
        await self.client.close()
        await self.port.close()


_numbers = itertools.count(1)


async def real_bench(
    client: KubeClient, operator: KubeClient, now: Callable[[], float], run: str
) -> RealBench:
    """A new namespace, with the default account that pods need."""
    namespace = f"contract-{run}-{next(_numbers)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await client.call(
        Request("POST", path("v1", "namespaces"), "create", "namespaces", name=namespace, body=body)
    )
    account = Request("GET", path("v1", "serviceaccounts", namespace, "default"), "get", "serviceaccounts")
    await eventually(lambda: _exists(client, account), lambda: asyncio.sleep(0.1))
    return RealBench(KubeCluster(operator, now, (namespace,), "contract"), client, namespace)


async def install_crds(client: KubeClient, documents: list[Json]) -> None:
    """Create our CRDs and wait until their API is served."""
    where = path("apiextensions.k8s.io/v1", "customresourcedefinitions")
    for document in documents:
        try:
            await client.call(Request("POST", where, "create", "customresourcedefinitions", body=document))
        except AlreadyExists:
            continue
    for plural in (names.DEPLOYMENT_PLURAL, names.REMEDIATION_PLURAL):
        listing = Request("GET", path(names.API_VERSION, plural), "list", plural)
        await eventually(lambda listing=listing: _exists(client, listing), lambda: asyncio.sleep(0.2))  # type: ignore[misc]


async def operator_configuration(
    client: KubeClient, admin: kubernetes.client.Configuration
) -> kubernetes.client.Configuration:
    """Credentials of a ServiceAccount that may do what `PERMISSIONS` says and nothing else."""
    rules = [{"apiGroups": [p.group], "resources": [p.resource], "verbs": list(p.verbs)} for p in PERMISSIONS]
    name = "contract-operator"
    rbac = "rbac.authorization.k8s.io/v1"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    meta = {"metadata": {"name": name}}
    for where, body in (
        (path("v1", "serviceaccounts", "default"), meta),
        (path(rbac, "clusterroles"), {**meta, "rules": rules}),
        (path(rbac, "clusterrolebindings"), {**meta, "roleRef": reference, "subjects": [subject]}),
    ):
        try:
            await client.call(Request("POST", where, "create", "rbac", body=body))
        except AlreadyExists:
            continue
    where = path("v1", "serviceaccounts", "default", name, "token")
    token = await client.call(
        Request("POST", where, "create", "token", body={"spec": {"expirationSeconds": 3600}})
    )
    configuration = kubernetes.client.Configuration()
    configuration.host, configuration.ssl_ca_cert = admin.host, admin.ssl_ca_cert
    configuration.api_key = {"authorization": f"Bearer {token['status']['token']}"}
    return configuration


async def eventually(
    holds: Callable[[], Awaitable[bool]],
    wait: Callable[[], Awaitable[None]],
    patience: float = PATIENCE_SECONDS,
) -> None:
    """Ask until it holds; AssertionError once patience (real seconds) is at its end."""
    end = monotonic() + patience
    for _ in range(1000):
        if await holds():
            return
        assert monotonic() < end, "what was waited for did not happen"
        await wait()
    raise AssertionError("what was waited for did not happen")


async def _exists(client: KubeClient, request: Request) -> bool:
    try:
        await client.call(request)
    except PortError:
        return False
    return True


def _as_probed(pod: Json) -> Start:
    """A pod with a readiness probe (which always fails here) never becomes Ready."""
    probed = any("readinessProbe" in each for each in pod["spec"]["containers"])
    return Start(boot_seconds=float("inf") if probed else 1.0)


def key_of(bench: Bench) -> Key:
    return Key(bench.namespace, "chat")
