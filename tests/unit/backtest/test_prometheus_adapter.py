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
        (200, "<html>hello</html>", Unavailable, "a web page, not JSON: is that the Prometheus server's own"),
        (200, "[1, 2]", Unavailable, "something else than a query's result"),
        (200, "null", Unavailable, "something else than a query's result"),
        (200, '{"data": null}', Unavailable, "something else than a query's result"),
        (200, '{"data": {"resultType": "scalar", "result": [5, "1"]}}', Unavailable, "no list of series"),
        (200, '{"data": {"result": ["x", null]}}', Unavailable, "no list of series"),
        (200, '{"data": {"result": {}}}', Unavailable, "no list of series"),
        (200, '{"data": {"result": [{"metric": {}, "value": [1, "1"]}]}}', Unavailable, "no list of series"),
        (200, '{"data": {"result": [{"metric": {"a": 1}, "values": []}]}}', Unavailable, "no list of series"),
        (
            200,
            '{"data": {"result": [{"metric": {}, "values": [1, 2, 3]}]}}',
            Unavailable,
            "no list of series",
        ),
        (200, '{"data": {"result": [{"metric": {}, "values": [[5, 1]]}]}}', Unavailable, "no list of series"),
        (
            200,
            '{"data": {"result": [{"metric": {}, "values": [[NaN, "1"]]}]}}',
            Unavailable,
            "no list of series",
        ),
        (
            200,
            '{"data": {"result": [{"metric": {"__name__": "up"}, "values": [[5, "abc"]]}]}}',
            Unavailable,
            "no list of series",
        ),
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


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_is_refused_is_said_to_be_refused_and_not_shown(url: str, status: int) -> None:
    answer(status, "t0ken is not known")
    with pytest.raises(Forbidden, match="refuses this token") as raised:
        list(PrometheusHistory(url, token="t0ken").looks(0.0, 10.0, "llm", ""))
    assert "t0ken" not in str(raised.value)


def test_what_the_server_warns_of_is_noted_once(url: str) -> None:
    answer(200, '{"data": {"result": []}, "warnings": ["a shard is missing"]}')
    history = PrometheusHistory(url)
    assert list(history.looks(1000.0, 2000.0, "llm", "", 400.0)) == []
    assert history.notes == [f"{url} warns: a shard is missing"]


def test_series_of_native_histograms_are_left_out(url: str) -> None:
    answer(200, '{"data": {"result": [{"metric": {"__name__": "x"}, "histograms": []}]}}')
    assert list(PrometheusHistory(url).looks(0.0, 10.0, "llm", "")) == []


def said(tmp_path: Path, *words: str) -> str:
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy_manifest()))
    result = CliRunner(env={"COLUMNS": "200"}).invoke(
        main, ["backtest", "-f", str(tmp_path / "policy.yaml"), *words]
    )
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit), result.exception
    return " ".join(result.output.split())


def test_no_password_of_an_url_is_shown(url: str, tmp_path: Path) -> None:
    host = url.removeprefix("http://")
    for status, body in ((401, "no"), (200, "<html>"), (500, "broken"), (200, '{"data": {"result": []}}')):
        answer(status, body)
        words = said(tmp_path, "--prometheus", f"http://user:pa55@{host}")
        assert host in words
        assert "pa55" not in words
    for odd in ("user:pa55@host", "ftp://user:pa55@host", "http://user:pa/55@host:90"):
        assert "55" not in said(tmp_path, "--prometheus", odd)


@pytest.mark.parametrize(
    "odd", ["http://[::1", "http://", "http://host:port", "http://host:99999", "http://:9090"]
)
def test_an_url_that_is_none_is_said_to_be_none(tmp_path: Path, odd: str) -> None:
    assert "is no whole URL" in said(tmp_path, "--prometheus", odd)


@pytest.mark.parametrize(
    "content", [b"s3cret more", b"s3cret\nmore", b"\xff\x00s3cret", b"", "s3cret€".encode()]
)
def test_a_token_that_can_not_be_sent_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    words = said(tmp_path, "--prometheus", "http://127.0.0.1:9", "--token-file", str(tmp_path / "token"))
    assert "holds no token" in words
    assert "s3cret" not in words
