"""`kintsugi diagnose` as people call it: on saved pages and objects, and on a cluster that answers over HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from kintsugi.__main__ import main
from kintsugi.cli.recordfile import RecordWriter
from kintsugi.core.advisor.saved import saved_head
from tests.unit.advisor.stage import Load, Stage, fixed
from tests.unit.advisor.test_command_on_a_cluster import Server as OneFleet
from tests.unit.explain.fleets import finding, healthy


class Server(OneFleet):
    """The same, with no Remediation and no Event in it."""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith(("/remediations", "/events")):
            self.seen.append((request.method, request.path))
            return web.json_response({"items": []})
        return await super()._answer(request)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["diagnose", *words], catch_exceptions=False)


def only(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["deployments"]
    assert isinstance(found, dict)
    return found


def states(found: dict[str, Any]) -> dict[str, str]:
    return {step["step"]: step["state"] for each in found["symptoms"] for step in each["steps"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    stage = Stage(Load(2, fixed(1200, 60)))
    text = "".join(saved_head("main", "main-0", page.mono) + page.text for page in stage.pages(0))
    (folder / "pages").write_text(text, encoding="utf-8")
    fleet = healthy()
    fleet["status"]["instances"][0] |= {"verdict": "Sick", "findings": [finding("stall", "Stalled", "SICK")]}
    (folder / "fleet.yaml").write_text(yaml.safe_dump(fleet), encoding="utf-8")
    return folder


def test_saved_pages_and_saved_objects_answer_together(folder: Path) -> None:
    found = only(run("--from", str(folder / "pages"), "-f", str(folder / "fleet.yaml"), "-o", "json"))
    assert found["deployment"] == "llm/chat"
    assert found["seen"]["instancesRead"] == 1
    assert states(found)["stalled"] == "suspect"
    assert states(found)["preemptions"] == "ok"
    assert states(found)["rope"] == "ok"


def test_what_record_writes_is_read_as_the_same_pages_in_plain_text(folder: Path, tmp_path: Path) -> None:
    plain = (folder / "pages").read_text(encoding="utf-8")
    with RecordWriter(tmp_path / "hour.gz") as writer:
        writer.write(plain + saved_head("main", "main-1", 1e6, {"uid": "u", "failed": "refused"}))
    assert only(run("--from", str(tmp_path / "hour.gz"), "-o", "json")) == only(
        run("--from", str(folder / "pages"), "-o", "json")
    )


def test_pages_alone_leave_the_spec_unknown(folder: Path) -> None:
    found = only(run("--from", str(folder / "pages"), "-o", "json", "--symptom", "wrong"))
    assert set(states(found).values()) == {"unknown"}
    assert "nan" in states(found)


def test_the_text_names_state_evidence_truth_and_cure(folder: Path) -> None:
    result = run("-f", str(folder / "fleet.yaml"))
    assert result.exit_code == 0
    assert "SUSPECT  A18 Does an engine hang?" in result.output
    assert "true: " in result.output
    assert "cure: " in result.output
    assert "to know it: " in result.output
    assert "Nothing was changed." in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "there is no page in it"), ("vllm:x 1\n", "says whose it is"), ("\xff", "is no text")],
)
def test_pages_that_cannot_be_read_are_refused_in_a_sentence(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "pages"
    path.write_bytes(text.encode("latin-1"))
    result = run("--from", str(path))
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


def test_a_file_of_several_deployments_asks_for_a_name(tmp_path: Path) -> None:
    other = healthy()
    other["metadata"]["name"] = "code"
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump_all([healthy(), other]), encoding="utf-8")
    result = run("-f", str(path))
    assert result.exit_code == 2
    assert "llm/chat, llm/code" in result.output
    assert only(run("-f", str(path), "code", "-o", "json"))["deployment"] == "llm/code"


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
    return run(
        "--kubeconfig", str(folder / "config"), "--window", "1", "--every", "0.5", "-o", "json", *words
    )


def test_a_live_fleet_is_read_through_the_proxy_and_nothing_is_written(tmp_path: Path) -> None:
    with Server() as server:
        found = only(ask(server, tmp_path, "chat", "-n", "llm"))
        assert found["seen"]["pages"] == 3
        assert found["seen"]["status"] is False
        assert {method for method, _ in server.seen} == {"GET"}


def test_a_fleet_whose_pages_may_not_be_read_is_diagnosed_by_its_status(tmp_path: Path) -> None:
    with Server() as server:
        server.proxy_status = 403
        server.deployments = [healthy()]
        found = only(ask(server, tmp_path, "chat"))
        assert states(found)["stalled"] == "ok"
        assert states(found)["preemptions"] == "unknown"
        assert any("pods/proxy" in trouble for trouble in found["troubles"])


def test_a_fleet_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with Server() as server:
        result = ask(server, tmp_path, "other")
    assert result.exit_code == 2
    assert "no DeepSeekV4Deployment other in any namespace" in result.output
