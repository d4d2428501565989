"""`kintsugi approve`, `reset`, `pause` and `resume` against an API server that answers over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from kintsugi.__main__ import main

Json = dict[str, Any]
from tests.unit.api_stub import ApiStub


def deployment(namespace: str = "llm", **more: Any) -> Json:
    return {"metadata": {"namespace": namespace, "name": "chat", "annotations": {}}, "spec": {}, **more}


def mend(phase: str, **status: Any) -> Json:
    return {
        "metadata": {"namespace": "llm", "name": "chat-0a1b2c3d-1"},
        "spec": {"instance": {"name": "chat-short-x1"}, "remedy": "Recreate", "trigger": "fragmentation"},
        "status": {"phase": phase, "why": "fragmentation 40 % above 25 %", **status},
    }


class Server(ApiStub):
    """An API server with some objects, by plural; what is patched is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, list[Json]] = {"deepseekv4deployments": [deployment()], "remediations": []}
        self.patches: list[tuple[str, Json]] = []
        self.forbidden = False

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.forbidden:
            return self._status(403, "user alice cannot patch resource remediations")
        parts = request.path.strip("/").split("/")
        plural = next(part for part in parts if part in self.objects)
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else None
        found = [o for o in self.objects[plural] if namespace in (None, o["metadata"]["namespace"])]
        if parts[-1] == plural:
            wanted = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
            items = [each for each in found if wanted in ("", each["metadata"]["name"])]
            return web.json_response({"items": items, "metadata": {}})
        named = [each for each in found if each["metadata"]["name"] == parts[-1]]
        if not named:
            return self._status(404, "not found")
        if request.method == "PATCH":
            assert request.content_type == "application/merge-patch+json"
            self.patches.append((request.path, await request.json()))
        return web.json_response(named[0])

    def _status(self, code: int, message: str) -> web.Response:
        return web.json_response({"kind": "Status", "message": message, "code": code}, status=code)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Any:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server.url}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config), encoding="utf-8")

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--kubeconfig", str(tmp_path / "config")])

    return invoke


def annotations(server: Server) -> Json:
    ((_, patch),) = server.patches
    assert set(patch) == {"metadata"}
    assert set(patch["metadata"]) == {"annotations"}
    found: Json = patch["metadata"]["annotations"]
    return found


def test_an_approval_is_an_annotation_of_that_one_attempt(server: Server, run: Any) -> None:
    server.objects["remediations"] = [mend("AwaitingApproval")]
    result = run("approve", "chat-0a1b2c3d-1", "--by", "alice")
    assert result.exit_code == 0, result.output
    assert annotations(server) == {"kintsugi.dev/approve": "alice"}
    assert server.patches[0][0].endswith("/namespaces/llm/remediations/chat-0a1b2c3d-1")
    assert "approved by alice" in result.output


def test_an_approval_can_be_taken_back(server: Server, run: Any) -> None:
    server.objects["remediations"] = [mend("AwaitingApproval")]
    assert run("approve", "chat-0a1b2c3d-1", "-n", "llm", "--revoke").exit_code == 0
    assert annotations(server) == {"kintsugi.dev/approve": None}


def test_what_does_not_wait_is_not_approved_and_how_it_stands_is_said(server: Server, run: Any) -> None:
    server.objects["remediations"] = [mend("Done", outcome="Cancelled", message="the trigger cleared")]
    result = run("approve", "chat-0a1b2c3d-1")
    assert (result.exit_code, server.patches) == (2, [])
    assert "it is Done (Cancelled): the trigger cleared" in result.output


@pytest.mark.parametrize("who", ["", "no", "x" * 64])
def test_an_approver_is_a_name(server: Server, run: Any, who: str) -> None:
    server.objects["remediations"] = [mend("AwaitingApproval")]
    assert run("approve", "chat-0a1b2c3d-1", "--by", who).exit_code == 2
    assert server.patches == []


def test_without_a_name_those_that_wait_are_listed_with_why(server: Server, run: Any) -> None:
    server.objects["remediations"] = [mend("AwaitingApproval"), mend("Draining", why="other")]
    result = run("approve")
    assert (result.exit_code, server.patches) == (0, [])
    assert "fragmentation 40 % above 25 %" in result.output
    assert "other" not in result.output


def test_a_reset_writes_both_marks_with_the_time_and_says_what_it_resets(server: Server, run: Any) -> None:
    held = {
        "breakers": [{"pool": "short", "reason": "NotCured", "message": "its replacement is sick too"}],
        "lineages": [{"uid": "u1", "attempts": 3, "exhausted": True}, {"uid": "u2", "exhausted": False}],
    }
    server.objects["deepseekv4deployments"] = [deployment(status={"remediations": held})]
    result = run("reset", "chat")
    assert result.exit_code == 0, result.output
    said = annotations(server)
    assert set(said) == {"kintsugi.dev/reset-breakers", "kintsugi.dev/reset-ladders"}
    assert all(str(at).endswith("Z") for at in said.values())
    assert "its replacement is sick too" in result.output
    assert "u1" in result.output
    assert "u2" not in result.output


def test_a_reset_of_one_kind_leaves_the_other(server: Server, run: Any) -> None:
    held = {
        "breakers": [{"pool": "short", "reason": "NotCured"}],
        "lineages": [{"uid": "u1", "exhausted": True}],
    }
    server.objects["deepseekv4deployments"] = [deployment(status={"remediations": held})]
    assert run("reset", "chat", "--breakers").exit_code == 0
    assert set(annotations(server)) == {"kintsugi.dev/reset-breakers"}


def test_nothing_to_reset_writes_nothing(server: Server, run: Any) -> None:
    result = run("reset", "chat")
    assert (result.exit_code, server.patches) == (0, [])
    assert "nothing to reset" in result.output


def test_a_pause_has_a_name_and_only_its_own_resume_ends_it(server: Server, run: Any) -> None:
    assert run("pause", "chat", "--reason", "audit-7").exit_code == 0
    (name,) = annotations(server)
    assert name == "kintsugi.dev/pause.audit-7"
    server.patches.clear()
    held = deployment(spec={"healing": {"pauseRequests": ["freeze"]}})
    held["metadata"]["annotations"] = {
        "kintsugi.dev/pause.audit-7": "by alice",
        "kintsugi.dev/pause.night": "",
    }
    server.objects["deepseekv4deployments"] = [held]
    result = run("resume", "chat", "--reason", "audit-7")
    assert annotations(server) == {"kintsugi.dev/pause.audit-7": None}
    assert "still paused: night, freeze" in result.output
    assert "freeze" in run("resume", "chat", "--reason", "other").output
    written = run("resume", "chat", "--reason", "freeze")
    assert written.exit_code == 2
    assert "spec.healing.pauseRequests" in written.output
    assert len(server.patches) == 1
    assert "paused for night" in run("resume", "chat").output


@pytest.mark.parametrize("reason", ["two words", "slash/ed", "", "-x", "x" * 58])
def test_a_reason_that_no_annotation_can_have_is_refused(server: Server, run: Any, reason: str) -> None:
    assert run("pause", "chat", "--reason", reason).exit_code == 2
    assert server.patches == []


def test_a_name_in_two_namespaces_must_be_told_apart(server: Server, run: Any) -> None:
    server.objects["deepseekv4deployments"] = [deployment("llm"), deployment("test")]
    result = run("pause", "chat", "--reason", "x")
    assert (result.exit_code, server.patches) == (2, [])
    assert "llm, test" in result.output
    assert run("pause", "chat", "--reason", "x", "-n", "test").exit_code == 0


def test_what_is_not_there_or_not_allowed_is_told_in_one_line(server: Server, run: Any) -> None:
    missing = run("reset", "other", "-n", "llm")
    assert missing.exit_code == 2
    assert "there is no DeepSeekV4Deployment other in namespace llm" in missing.output
    server.forbidden = True
    refused = run("approve", "chat-0a1b2c3d-1")
    assert refused.exit_code == 2
    assert "cannot patch" in refused.output
