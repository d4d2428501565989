"""`kintsugi explain` as people call it: on saved objects, and on a cluster that answers over HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from kintsugi.__main__ import main
from tests.unit.api_stub import ApiStub
from tests.unit.explain.fleets import active, event, healthy, instance, remediation


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["explain", *words], catch_exceptions=False)


def saved(folder: Path, *objects: Any) -> str:
    path = folder / "saved.yaml"
    path.write_text(yaml.safe_dump({"kind": "List", "items": list(objects)}), encoding="utf-8")
    return str(path)


def test_a_saved_fleet_is_explained_as_text_and_as_json(tmp_path: Path) -> None:
    path = saved(tmp_path, healthy(), remediation("chat-old"), event("chat-a"))
    text = run("-f", path, "chat")
    assert text.exit_code == 0
    assert "llm/chat: nothing is wrong: 2 instances are well" in text.output
    assert "What is watched" in text.output
    (found,) = json.loads(run("-f", path, "-o", "json").output)["deployments"]
    assert found["past"][0]["instance"] == "chat-old"
    assert [each["about"] for each in found["events"]] == ["chat-a"]


def test_an_instance_that_has_gone_is_explained_by_its_remediation(tmp_path: Path) -> None:
    path = saved(tmp_path, healthy(), remediation("chat-old"))
    result = run("-f", path, "chat", "chat-old")
    assert result.exit_code == 0
    assert "why: no step for 300 s" in result.output


@pytest.mark.parametrize(
    ("objects", "words", "said"),
    [
        ([], (), "there is no DeepSeekV4Deployment in it"),
        ([healthy()], ("other",), "there is no DeepSeekV4Deployment other in it"),
        ([healthy()], ("chat", "-n", "elsewhere"), "there is no DeepSeekV4Deployment chat"),
        ([healthy()], ("chat", "chat-z"), "nothing is known of an instance chat-z"),
    ],
)
def test_what_is_not_there_is_said_so(
    objects: list[Any], words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    result = run("-f", saved(tmp_path, *objects), *words)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("text", ["{", "\x00", "a: [1", "- 1\n- x", "kind: [1]", "[" * 5000])
def test_a_file_that_is_no_object_is_refused_in_a_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_text(text, encoding="utf-8")
    result = run("-f", str(path))
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_texts_that_no_terminal_can_write_are_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    head = 'kind: DeepSeekV4Deployment\nmetadata: {name: "a\\ud800", namespace: 7}\n'
    path.write_text(head + "spec: {healing: {mode: .nan}}\nstatus: [1]\n", encoding="utf-8")
    for command in ("explain", "diagnose"):
        for output in ("table", "json"):
            result = CliRunner().invoke(
                main, [command, "-f", str(path), "-o", output], catch_exceptions=False
            )
            assert result.exit_code == 0, result.output


def test_no_cluster_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("{}", encoding="utf-8")
    result = run("--kubeconfig", str(tmp_path / "config"))
    assert result.exit_code == 2
    assert "no cluster to read" in result.output


class Server(ApiStub):
    """An API server with one fleet, on a thread and loop of its own. Only GET is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.deployment = healthy()
        self.deployment["status"]["instances"].append(instance("chat-b2", "Sick", "Stalled"))
        self.deployment["status"]["remediations"] = {"active": [active("chat-b2", "Quarantined")]}
        self.forbidden: set[str] = set()
        self.seen: list[tuple[str, str]] = []
        self.queries: set[str] = set()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.path))
        kind = request.path.rsplit("/", 1)[-1]
        if kind in self.forbidden:
            status = {"kind": "Status", "message": f"cannot list {kind}", "code": 403}
            return web.json_response(status, status=403)
        record = remediation("chat-old")
        if kind == "remediations":
            return web.json_response({"items": [{"metadata": record["metadata"]}]})
        if kind == "chat-x-1":
            return web.json_response(record)
        if kind == "events":
            self.queries.add(request.query["fieldSelector"])
            about = "chat-b2" if "uid-chat-b2" in request.query_string else "chat"
            return web.json_response({"items": [event(about)]})
        return web.json_response({"items": [self.deployment]})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def ask(server: Server, folder: Path, *words: str) -> Result:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server.url}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    (folder / "config").write_text(yaml.safe_dump(config), encoding="utf-8")
    return run("--kubeconfig", str(folder / "config"), *words)


def test_a_live_fleet_is_read_with_its_records_and_nothing_is_written(server: Server, tmp_path: Path) -> None:
    result = ask(server, tmp_path, "chat", "chat-b2", "-o", "json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.output)["deployments"]
    assert found["attempts"][0]["phase"] == "Quarantined"
    assert found["events"]
    assert {method for method, _ in server.seen} == {"GET"}
    text = ask(server, tmp_path, "chat")
    assert "why: no step for 300 s" in text.output
    assert " (" in text.output.split("since", 1)[1], "ages are said of a live cluster"


def test_events_of_an_instance_that_has_gone_are_asked_for_by_its_uid(server: Server, tmp_path: Path) -> None:
    assert ask(server, tmp_path, "chat", "chat-old").exit_code == 0
    assert "involvedObject.uid=uid-chat-old" in server.queries


def test_records_that_may_not_be_read_take_nothing_else_away(server: Server, tmp_path: Path) -> None:
    server.forbidden = {"remediations", "events"}
    result = ask(server, tmp_path, "chat")
    assert result.exit_code == 0
    assert "1 of 3 Sick" in result.output
    assert "not read: Remediations: " in result.output
    assert "not read: Events: " in result.output


def test_a_fleet_that_may_not_be_read_is_an_error(server: Server, tmp_path: Path) -> None:
    server.forbidden = {"deepseekv4deployments"}
    result = ask(server, tmp_path)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
