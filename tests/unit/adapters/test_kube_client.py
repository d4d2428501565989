"""The client against an HTTP server on loopback that answers as an API server would, or does not."""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import kubernetes.client
import pytest
from aiohttp import web

from kintsugi import __version__
from kintsugi.adapters.kube.client import KubeClient, Request, load_configuration, path
from kintsugi.adapters.kube.cluster import KubeCluster
from kintsugi.core import names
from kintsugi.core.snapshot import Key
from kintsugi.ports.audit import ATTEMPT
from kintsugi.ports.errors import Conflict, Forbidden, Refused, Unavailable

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
KEY = Key("llm", "chat")


class Server:
    """Answers everything by `handler` and remembers what it was asked."""

    def __init__(self) -> None:
        self.handler: Handler = self._empty
        self.seen: list[tuple[str, str, dict[str, str], dict[str, str], bytes]] = []
        self.url = ""

    async def _empty(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"items": []})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append((request.method, request.path, dict(request.query), dict(request.headers), body))
        return await self.handler(request)

    @property
    def last(self) -> tuple[str, str, dict[str, str], dict[str, str], bytes]:
        return self.seen[-1]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", made.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def configuration(url: str) -> kubernetes.client.Configuration:
    made = kubernetes.client.Configuration()
    made.host = url
    made.api_key = {"authorization": "Bearer token-1"}
    return made


@pytest.fixture
async def client(server: Server) -> AsyncIterator[KubeClient]:
    made = KubeClient(configuration(server.url), timeout=2.0)
    yield made
    await made.close()


@pytest.fixture
def cluster(client: KubeClient) -> KubeCluster:
    return KubeCluster(client, lambda: 1_767_225_600.25, instance="kintsugi-0")


async def test_who_asks_is_in_every_request(server: Server, cluster: KubeCluster) -> None:
    await cluster.list_pods(KEY)
    method, where, query, headers, _ = server.last
    assert (method, where) == ("GET", "/api/v1/namespaces/llm/pods")
    assert query == {
        "labelSelector": "app.kubernetes.io/managed-by=kintsugi,kintsugi.dev/deployment=chat,kintsugi.dev/pool"
    }
    assert headers["User-Agent"] == f"kintsugi/{__version__}"
    assert headers["Authorization"] == "Bearer token-1"


async def test_a_status_is_put_with_the_version_that_was_read(server: Server, cluster: KubeCluster) -> None:
    async def written(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"resourceVersion": "8"}})

    server.handler = written
    assert await cluster.write_status(KEY, {"why": "x"}, "7") == "8"
    method, where, query, _, body = server.last
    assert (method, where) == (
        "PUT",
        "/apis/kintsugi.dev/v1alpha1/namespaces/llm/deepseekv4deployments/chat/status",
    )
    assert query == {"fieldManager": "kintsugi"}
    assert json.loads(body) == {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"namespace": "llm", "name": "chat", "resourceVersion": "7"},
        "status": {"why": "x"},
    }


async def test_an_apply_is_forced_strict_and_by_our_manager(server: Server, cluster: KubeCluster) -> None:
    manifest = {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "llm", "name": "s"}}
    await cluster.apply(manifest)
    method, where, query, headers, body = server.last
    assert (method, where) == ("PATCH", "/api/v1/namespaces/llm/services/s")
    assert query == {"fieldManager": "kintsugi", "force": "true", "fieldValidation": "Strict"}
    assert headers["Content-Type"] == "application/apply-patch+yaml"
    assert json.loads(body) == manifest


async def test_an_eviction_carries_uid_and_grace(server: Server, cluster: KubeCluster) -> None:
    await cluster.evict("llm", "p", "u-1", 10)
    _, where, _, _, body = server.last
    assert where == "/api/v1/namespaces/llm/pods/p/eviction"
    assert json.loads(body)["deleteOptions"] == {"preconditions": {"uid": "u-1"}, "gracePeriodSeconds": 10}


async def test_a_long_list_is_read_page_by_page(server: Server, cluster: KubeCluster) -> None:
    async def pages(request: web.Request) -> web.StreamResponse:
        if request.query.get("continue") == "more":
            return web.json_response({"metadata": {}, "items": [{"metadata": {"name": "b"}}]})
        return web.json_response({"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "a"}}]})

    server.handler = pages
    assert [node["metadata"]["name"] for node in await cluster.list_nodes()] == ["a", "b"]
    assert server.last[2] == {"continue": "more", "limit": "500"}


async def test_a_list_that_expires_between_two_pages_is_unavailable_not_gone(
    server: Server, cluster: KubeCluster
) -> None:
    async def pages(request: web.Request) -> web.StreamResponse:
        if "continue" in request.query:
            return web.json_response({"reason": "Expired", "message": "too old"}, status=410)
        return web.json_response({"metadata": {"continue": "more"}, "items": []})

    server.handler = pages
    with pytest.raises(Unavailable, match="expired"):
        await cluster.list_nodes()


async def test_only_pods_with_devices_are_kept_and_cut_down(server: Server, cluster: KubeCluster) -> None:
    def pod(name: str, resource: str) -> dict[str, Any]:
        container = {"name": "c", "image": "large", "resources": {"limits": {resource: "1"}}}
        return {
            "metadata": {"name": name, "namespace": "x", "managedFields": [{}]},
            "spec": {"nodeName": "n", "containers": [container]},
            "status": {"phase": "Running", "conditions": [{}]},
        }

    async def listed(request: web.Request) -> web.StreamResponse:
        return web.json_response(
            {"items": [pod("gpu", "nvidia.com/gpu"), pod("amd", "amd.com/gpu"), pod("web", "cpu")]}
        )

    server.handler = listed
    found = await cluster.list_gpu_pods()
    assert [each["metadata"]["name"] for each in found] == ["gpu", "amd"]
    assert found[0]["spec"]["containers"] == [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    assert server.last[2]["fieldSelector"] == "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


async def test_names_of_remediations_are_asked_for_without_their_bodies(
    server: Server, cluster: KubeCluster
) -> None:
    async def listed(request: web.Request) -> web.StreamResponse:
        meta = {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"}
        return web.json_response({"items": [{"metadata": meta}]})

    server.handler = listed
    assert await cluster.list_remediation_names(KEY) == [("r", "2026-01-01T00:00:00Z")]
    assert server.last[3]["Accept"].startswith("application/json;as=PartialObjectMetadataList")


async def test_watched_namespaces_are_listed_one_by_one(server: Server, client: KubeClient) -> None:
    await KubeCluster(client, lambda: 0.0, ("a", "b")).list_deployments()
    assert [seen[1].split("/")[5] for seen in server.seen] == ["a", "b"]


async def test_an_event_has_everything_that_the_server_asks_for(server: Server, cluster: KubeCluster) -> None:
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": "llm", "name": "p", "uid": "u"}
    await cluster.create_event(regarding, "Warning", "Stalled", "ö" * 1000, "")
    event = json.loads(server.last[4])
    assert event["involvedObject"] == regarding
    assert len(event["message"].encode()) <= 1024
    assert event["message"].endswith("…")
    assert event["eventTime"] == "2026-01-01T00:00:00.250000Z"
    assert (event["reportingInstance"], event["action"], event["count"]) == ("kintsugi-0", "Observe", 1)


async def test_a_server_that_says_nothing_is_unavailable(server: Server) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1)
        return web.Response()

    server.handler = silent
    client = KubeClient(configuration(server.url), timeout=0.3)
    with pytest.raises(Unavailable, match="list pods"):
        await KubeCluster(client, lambda: 0.0).list_pods(KEY)
    assert len(server.seen) <= 2
    await client.close()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = KubeClient(configuration(f"http://127.0.0.1:{port}"), timeout=1.0)
    with pytest.raises(Unavailable):
        await KubeCluster(client, lambda: 0.0).get_deployment(KEY)
    await client.close()


async def test_an_answer_that_is_no_object_is_unavailable(server: Server, cluster: KubeCluster) -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>a proxy</html>")

    server.handler = page
    with pytest.raises(Unavailable, match="JSON"):
        await cluster.get_deployment(KEY)


async def test_a_throttled_write_is_not_repeated_and_says_when_to_ask_again(
    server: Server, cluster: KubeCluster
) -> None:
    async def throttled(request: web.Request) -> web.StreamResponse:
        return web.json_response({"reason": "TooManyRequests"}, status=429, headers={"Retry-After": "7"})

    server.handler = throttled
    with pytest.raises(Refused) as refused:
        await cluster.evict("llm", "p", "u", None)
    assert refused.value.retry_after == 7.0
    with pytest.raises(Unavailable):
        await cluster.list_pods(KEY)
    assert len(server.seen) == 2


async def test_sixteen_slow_calls_go_side_by_side(server: Server, cluster: KubeCluster) -> None:
    together = asyncio.Barrier(16)

    async def slow(request: web.Request) -> web.StreamResponse:
        await together.wait()
        return web.json_response({"items": []})

    server.handler = slow
    await asyncio.gather(*(cluster.list_pods(KEY) for _ in range(16)))
    assert len(server.seen) == 16


async def test_each_write_is_one_log_line_with_attempt_and_outcome(
    server: Server, cluster: KubeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def conflict(request: web.Request) -> web.StreamResponse:
        return web.json_response({"reason": "Conflict"}, status=409)

    caplog.set_level(logging.INFO, "kintsugi.kube")
    ATTEMPT.set("chat-0b6c1f3e-1")
    await cluster.patch_pod("llm", "p", "u", {"metadata": {"labels": {"a": "b"}}})
    server.handler = conflict
    with pytest.raises(Conflict):
        await cluster.scale_replica_set("llm", "rs", 2, "1")
    ATTEMPT.set("")
    await asyncio.gather(cluster.get_deployment(KEY), return_exceptions=True)
    lines = [
        {
            key: getattr(record, key)
            for key in ("verb", "resource", "namespace", "object", "attempt", "outcome")
        }
        for record in caplog.records
    ]
    common = {"verb": "patch", "namespace": "llm", "attempt": "chat-0b6c1f3e-1"}
    assert lines == [
        {**common, "resource": "pods", "object": "p", "outcome": "ok"},
        {**common, "resource": "replicasets", "object": "rs", "outcome": "Conflict"},
    ]


async def test_the_attempt_of_an_annotation_is_logged_too(
    server: Server, cluster: KubeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kintsugi.kube")
    await cluster.patch_pod("llm", "p", "u", {"metadata": {"annotations": {names.ATTEMPT_ANNOTATION: "a-1"}}})
    assert [getattr(record, "attempt", None) for record in caplog.records] == ["a-1"]


async def test_a_warning_of_the_server_is_logged_once(
    server: Server, cluster: KubeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def warns(request: web.Request) -> web.StreamResponse:
        headers = {"Warning": '299 - "unknown field \\"status.new\\""'}
        return web.json_response({"metadata": {"resourceVersion": "2"}}, headers=headers)

    server.handler = warns
    for _ in range(3):
        await cluster.write_status(KEY, {"new": 1}, "1")
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "the API server warns"
    ]


async def test_an_observer_hears_of_every_call(server: Server) -> None:
    heard: list[tuple[str, str, str]] = []
    client = KubeClient(
        configuration(server.url), observer=lambda verb, what, how, _: heard.append((verb, what, how))
    )
    await client.call(Request("GET", path("v1", "nodes"), "list", "nodes"))
    await client.close()
    assert heard == [("list", "nodes", "ok")]


@pytest.mark.parametrize(
    ("date", "status", "heard"),
    [
        ("Thu, 01 Jan 2026 00:00:00 GMT", 200, [1_767_225_600.0]),
        ("Thu, 01 Jan 2026 00:00:00 GMT", 403, [1_767_225_600.0]),
        ("Thu, 01 Jan 2026 00:00:00 GMT", 502, []),
        ("Thu, 01 Jan 2026 00:00:00 -0000", 200, []),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999", 200, []),
        ("yesterday", 200, []),
        ("", 200, []),
    ],
)
async def test_the_server_s_time_is_heard_with_each_answer_of_its_own(
    server: Server, date: str, status: int, heard: list[float]
) -> None:
    async def answers(request: web.Request) -> web.StreamResponse:
        return web.json_response({}, status=status, headers={"Date": date})

    server.handler = answers
    said: list[float] = []
    client = KubeClient(configuration(server.url), listener=lambda epoch, took: said.append(epoch))
    with contextlib.suppress(Forbidden, Unavailable):
        await client.call(Request("GET", path("v1", "nodes"), "list", "nodes"))
    await client.close()
    assert said == heard


def test_names_are_quoted_in_paths() -> None:
    assert path("v1", "pods", "a/b", "c d", "log") == "/api/v1/namespaces/a%2Fb/pods/c%20d/log"
    assert path("apps/v1", "replicasets", "llm") == "/apis/apps/v1/namespaces/llm/replicasets"
    assert path("v1", "namespaces", "", "llm") == "/api/v1/namespaces/llm"


def test_a_kubeconfig_gives_host_and_token(tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:7777"}}],
        "users": [{"name": "u", "user": {"token": "t-1"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    loaded = load_configuration(str(file))
    assert loaded.host == "https://127.0.0.1:7777"
    assert loaded.auth_settings()["BearerToken"]["value"] == "Bearer t-1"
