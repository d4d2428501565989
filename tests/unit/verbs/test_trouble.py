"""An API server that can't be reached, or that does not know our kinds, is told in one short line with the cure."""

import socket
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from kintsugi.__main__ import main
from tests.unit.api_stub import ApiStub

COMMANDS = [
    ["explain"],
    ["diagnose", "--window", "1"],
    ["record", "-o", "RECORD"],
    ["advise", "--window", "1"],
]
VERBS = [["pause", "chat", "--reason", "me"], ["reset", "chat"]]


class Bare(ApiStub):
    """An API server without our kinds."""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text="404 page not found\n")


def run(server: str, folder: Path, words: list[str]) -> Result:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    (folder / "config").write_text(yaml.safe_dump(config), encoding="utf-8")
    written = [str(folder / "record.gz") if word == "RECORD" else word for word in words]
    return CliRunner().invoke(main, [*written, "--kubeconfig", str(folder / "config")])


def said(result: Result) -> str:
    """The line of the error; before it a command may say how long it watches."""
    assert result.exit_code == 2, result.output
    return result.output.splitlines()[-1]


@pytest.fixture
def closed() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("words", [*COMMANDS, *VERBS], ids=lambda each: each[0])
def test_a_refused_connection_names_server_cause_and_cure_only(
    words: list[str], closed: str, tmp_path: Path
) -> None:
    line = said(run(closed, tmp_path, words))
    assert line.startswith(f"Error: {closed} can't be reached: Connection refused.")
    assert "--kubeconfig" in line
    assert len(line) < 200
    assert "Max retries" not in line


def test_a_server_that_nobody_knows_is_named(tmp_path: Path) -> None:
    line = said(run("https://nowhere.invalid:6443", tmp_path, ["explain"]))
    assert line.startswith("Error: https://nowhere.invalid:6443 can't be reached: ")
    assert "HTTPSConnection" not in line


@pytest.mark.parametrize("words", COMMANDS, ids=lambda each: each[0])
def test_a_cluster_without_our_kinds_is_asked_whether_kintsugi_is_installed(
    words: list[str], tmp_path: Path
) -> None:
    with Bare() as server:
        line = said(run(server.url, tmp_path, words))
    assert "is Kintsugi installed in this cluster?" in line
