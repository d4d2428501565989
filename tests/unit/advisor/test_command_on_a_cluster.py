"""`kintsugi advise` against an API server that answers over HTTP: pods are reached through its proxy, and only read."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from kintsugi.__main__ import main
from kintsugi.testing.engine import SimulatedEngine
from tests.unit.advisor.test_watching import pod
from tests.unit.api_stub import ApiStub

DEPLOYMENT: dict[str, Any] = {
    "metadata": {"namespace": "llm", "name": "chat", "resourceVersion": "1", "uid": "u"},
    "spec": {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash-0731"}},
}


class Server(ApiStub):
    """An API server with one fleet of one pod, on a thread and loop of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []
        self.proxy_status = 200
        self.deployments = [DEPLOYMENT]
        self._engine, self._began = SimulatedEngine(), time.monotonic()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.path))
        if request.path.endswith("/proxy/metrics"):
            if self.proxy_status != 200:
                status = {
                    "kind": "Status",
                    "message": 'cannot get resource "pods/proxy"',
                    "code": self.proxy_status,
                }
                return web.json_response(status, status=self.proxy_status)
            return web.Response(text=self._engine.page(time.monotonic() - self._began))
        if request.path.endswith("/pods"):
            return web.json_response({"items": [pod("chat-main-r1-abcde")]})
        return web.json_response({"items": self.deployments})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def run(server: Server, tmp_path: Path, *words: str) -> Result:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server.url}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config), encoding="utf-8")
    options = ["--kubeconfig", str(tmp_path / "config"), "--window", "1", "--every", "0.5", "-o", "json"]
    return CliRunner().invoke(main, ["advise", *options, *words])


def test_a_fleet_is_read_through_the_proxy_and_nothing_is_written(server: Server, tmp_path: Path) -> None:
    result = run(server, tmp_path, "-n", "llm", "chat", "--save", str(tmp_path / "pages"))
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["deployments"]
    assert found["deployment"] == "llm/chat"
    assert found["pools"]["main"]["instances"] == 1
    assert any("the window is 1 s" in each["why"] for each in found["missing"])
    assert {method for method, _ in server.seen} == {"GET"}
    assert ("GET", "/api/v1/namespaces/llm/pods/chat-main-r1-abcde:8000/proxy/metrics") in server.seen
    again = CliRunner().invoke(main, ["advise", "--from", str(tmp_path / "pages"), "-o", "json"])
    assert json.loads(again.stdout)["deployments"][0]["pools"]["main"]["samples"] == 3


def test_a_fleet_that_is_not_there_is_said_so(server: Server, tmp_path: Path) -> None:
    result = run(server, tmp_path, "-n", "llm", "other")
    assert result.exit_code == 2
    assert "no DeepSeekV4Deployment other in namespace llm" in result.output


def test_a_missing_permission_is_named(server: Server, tmp_path: Path) -> None:
    server.proxy_status = 403
    result = run(server, tmp_path)
    assert result.exit_code == 2
    assert "pods/proxy" in result.output


def test_a_fleet_that_cannot_be_read_keeps_nobody_else_from_advice(server: Server, tmp_path: Path) -> None:
    broken = {"metadata": {"namespace": "llm", "name": "broken"}, "spec": {"model": {}}}
    server.deployments = [broken, DEPLOYMENT]
    result = run(server, tmp_path)
    assert result.exit_code == 0, result.output
    first, second = json.loads(result.stdout)["deployments"]
    assert [(each["path"], each["why"]) for each in first["missing"]] == [
        ("spec.model.id", "is required: set it")
    ]
    assert second["deployment"] == "llm/chat"
