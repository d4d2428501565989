"""`kintsugi record` against an API server on loopback: what it writes can be replayed, even after it was killed."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from click.testing import CliRunner, Result

from kintsugi.__main__ import main
from kintsugi.cli.recordfile import RecordFile
from kintsugi.runtime.recording import Recording
from tests.backtest.recorded import fleet, policy_manifest

PAGE = 'process_start_time_seconds 1767225600\nvllm:num_requests_running{engine="0"} 1.0\n'


class Api(BaseHTTPRequestHandler):
    """A deployment, its pods, and their pages through the proxy."""

    pods: ClassVar[list[dict[str, Any]]] = []
    deployments: ClassVar[list[dict[str, Any]]] = []
    forbidden = False
    broken = False

    def do_GET(self) -> None:
        where = self.path.partition("?")[0]
        if where.endswith("/proxy/metrics"):
            self._say(PAGE, "text/plain", 403 if self.forbidden else 503 if self.broken else 200)
        elif where.endswith("/pods"):
            self._say(json.dumps({"items": self.pods, "metadata": {}}))
        elif where.endswith("/deepseekv4deployments"):
            self._say(json.dumps({"items": self.deployments, "metadata": {}}))
        else:
            self._say(json.dumps({"items": [], "metadata": {}}))

    def _say(self, text: str, kind: str = "application/json", status: int = 200) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def pods() -> list[dict[str, Any]]:
    return asyncio.run(fleet(replicas=2, seconds=120.0)).pods()


@pytest.fixture
def kubeconfig(tmp_path: Path, pods: list[dict[str, Any]]) -> Iterator[Path]:
    Api.pods, Api.forbidden, Api.broken = pods, False, False
    Api.deployments = [policy_manifest()]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {"name": "a", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}
                ],
                "users": [{"name": "a", "user": {"token": "t"}}],
                "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                "current-context": "a",
            }
        )
    )
    yield path
    server.shutdown()
    server.server_close()
    thread.join()


def record(kubeconfig: Path, *words: str | Path) -> Result:
    said = ["record", "--kubeconfig", str(kubeconfig), *map(str, words)]
    return CliRunner().invoke(main, said, catch_exceptions=False)


def test_what_it_writes_can_be_replayed(kubeconfig: Path, tmp_path: Path) -> None:
    kept = tmp_path / "a.gz"
    result = record(kubeconfig, "chat", "-n", "llm", "-o", kept, "--for", "2", "--every", "1")
    assert result.exit_code == 0, result.output
    assert f"{kept}: 6 pages" in result.output
    looks = list(RecordFile(kept).looks())
    assert len(looks) == 6
    assert all(look.text == PAGE and look.pool == "short" and "uid" in look.facts for look in looks)
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy_manifest()))
    words = ["backtest", "-f", str(tmp_path / "policy.yaml"), "--from", str(kept), "-o", "json"]
    replayed = CliRunner().invoke(main, words, catch_exceptions=False)
    assert json.loads(replayed.stdout)["pages"] == 6


def test_the_deployment_may_be_left_out_where_there_is_one(kubeconfig: Path, tmp_path: Path) -> None:
    assert record(kubeconfig, "-o", tmp_path / "a.gz", "--for", "1").exit_code == 0


def test_one_of_several_has_to_be_named(kubeconfig: Path, tmp_path: Path) -> None:
    other = policy_manifest()
    other["metadata"]["name"] = "code"
    Api.deployments = [policy_manifest(), other]
    result = record(kubeconfig, "-o", tmp_path / "a.gz")
    assert (result.exit_code, "there are 2 (llm/chat, llm/code)" in result.output) == (2, True)
    assert not (tmp_path / "a.gz").exists()


def test_one_that_is_not_there_is_said_not_to_be(kubeconfig: Path, tmp_path: Path) -> None:
    result = record(kubeconfig, "-n", "llm", "other", "-o", tmp_path / "a.gz")
    assert result.exit_code == 2
    assert "no DeepSeekV4Deployment other in namespace llm" in result.output


def test_a_missing_permission_is_named(kubeconfig: Path, tmp_path: Path) -> None:
    Api.forbidden = True
    result = record(kubeconfig, "-o", tmp_path / "a.gz")
    assert result.exit_code == 2
    assert "`get` on pods/proxy" in result.output


def test_a_file_that_is_there_is_not_written_over(kubeconfig: Path, tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_text("precious")
    result = record(kubeconfig, "-o", tmp_path / "a.gz")
    assert result.exit_code == 2
    assert (tmp_path / "a.gz").read_text() == "precious"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_recording_that_was_ended_can_be_read(
    kubeconfig: Path, tmp_path: Path, how: signal.Signals
) -> None:
    kept = tmp_path / "a.gz"
    words = [sys.executable, "-m", "kintsugi", "record", "--kubeconfig", str(kubeconfig), "-o", str(kept)]
    # Where the tests run in the background of a shell, they and what they start would ignore SIGINT.
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [*words, "--every", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        signal.signal(signal.SIGINT, heard)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (not kept.exists() or len(list(RecordFile(kept).looks())) < 4):
            time.sleep(0.2)
        process.send_signal(how)
        process.communicate(timeout=30)
    assert (process.returncode == 0) is (how is signal.SIGINT)
    file = RecordFile(kept)
    looks = list(file.looks())
    assert len(looks) >= 4
    assert all(look.text == PAGE for look in looks)
    assert file.cut is (how is signal.SIGKILL)


def test_a_recording_without_a_page_is_none_and_says_why(kubeconfig: Path, tmp_path: Path) -> None:
    Api.broken = True
    result = record(kubeconfig, "-o", tmp_path / "a.gz", "--for", "1", "--every", "1")
    assert result.exit_code == 2
    assert "not one page was read in 1 s: chat-short-" in result.output
    assert "Next:" not in result.output
    assert result.stderr.count("trouble, and it goes on trying") == 1


def test_a_recording_of_no_pods_leaves_no_file(kubeconfig: Path, tmp_path: Path) -> None:
    Api.pods = []
    for _ in range(2):
        result = record(kubeconfig, "-o", tmp_path / "a.gz", "--for", "1")
        assert result.exit_code == 2
        assert "not one page was read in 1 s: the deployment has no pods" in result.output
        assert not (tmp_path / "a.gz").exists()


def test_a_start_that_failed_leaves_no_file_in_the_way(kubeconfig: Path, tmp_path: Path) -> None:
    Api.forbidden = True
    assert record(kubeconfig, "-o", tmp_path / "a.gz").exit_code == 2
    Api.forbidden = False
    assert record(kubeconfig, "-o", tmp_path / "a.gz", "--for", "1").exit_code == 0


def test_stopped_before_any_page_it_claims_none(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recording, "run", stopped)
    result = record(kubeconfig, "-o", tmp_path / "a.gz")
    assert (result.exit_code, "stopped before any page was read" in result.output) == (2, True)
    assert "holds" not in result.output
    assert not (tmp_path / "a.gz").exists()
