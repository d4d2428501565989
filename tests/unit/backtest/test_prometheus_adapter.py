"""Servers that are no Prometheus, or do not want to be asked: each is told in words, none by a traceback."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from click.testing import CliRunner

from kintsugi.__main__ import main
from kintsugi.adapters.prometheus import PrometheusHistory
from kintsugi.ports.errors import Forbidden, Invalid, PortError, Unavailable
from tests.backtest.recorded import policy_manifest


class Server(BaseHTTPRequestHandler):
    """Answers everything alike, and remembers what it was asked."""

    status: ClassVar[int] = 200
    body: ClassVar[str] = ""
    seen: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization", "")))
        text = self.body.encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    Server.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def answer(status: int, body: str) -> None:
    Server.status, Server.body = status, body


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (401, "who are you", Forbidden, "give --token-file"),
        (403, "no", Forbidden, "give --token-file"),
        (422, "too many samples", Invalid, "too many samples"),
        (500, "broken", Unavailable, "broken"),
        (200, "<html>hello</html>", Unavailable, "no answer that Prometheus would give"),
        (200, '{"status": "fine"}', Unavailable, "no answer that Prometheus would give"),
    ],
)
def test_each_refusal_is_told(url: str, status: int, body: str, kind: type[PortError], said: str) -> None:
    answer(status, body)
    with pytest.raises(kind, match=said):
        list(PrometheusHistory(url).looks(0.0, 10.0, "llm", ""))


def test_a_long_time_is_asked_for_stretch_by_stretch_with_the_token(url: str) -> None:
    answer(200, '{"data": {"result": []}}')
    assert list(PrometheusHistory(url + "/", token="t0ken").looks(1000.0, 2000.0, "llm", "", 400.0)) == []
    times = [path.rpartition("time=")[2] for path, _ in Server.seen]
    assert times == ["1400.000", "1800.000", "2000.000"]
    assert {token for _, token in Server.seen} == {"Bearer t0ken"}
    assert all("/api/v1/query?" in path and "//api" not in path for path, _ in Server.seen)


def test_no_server_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy_manifest()))
    words = ["backtest", "-f", str(tmp_path / "policy.yaml"), "--prometheus", "http://127.0.0.1:9"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "gives no answer" in result.output
    assert len(result.output) < 500, "the query hides the cause"
    assert "Traceback" not in result.output
