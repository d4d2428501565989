"""How a native server ends, with its engine and without."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.engine.native.served import (
    START_SECONDS,
    Served,
    serve,
    start,
    until,
)

pytestmark = pytest.mark.timeout(600)
SLOTS = ("--max-num-seqs", "2", "--max-model-len", "2K")


def asked(server: Served, answers: list[Any], tokens: int) -> threading.Thread:
    """A long request in a thread of its own."""
    body = {"prompt": "x", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    thread = threading.Thread(target=lambda: answers.append(server.post("/v1/completions", body)))
    thread.start()
    until(lambda: server.sum("vllm:num_requests_running") == 1, 60, "the request runs")
    return thread


def refused(server: Served) -> bool:
    """Whether a new request is."""
    status, _ = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
    return bool(status == 503)


def test_it_ends_cleanly_when_told_to_and_lets_what_runs_end_first(
    engine_python: Path, package: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    with serve(engine_python, package, tiny_llama, tmp_path, *SLOTS, "--shutdown-timeout", "120") as server:
        answers: list[Any] = []
        thread = asked(server, answers, 2000)
        engine = server.engine()
        os.kill(server.process.pid, signal.SIGTERM)
        until(lambda: refused(server), 10, "new requests are refused while the old one runs")
        assert not answers
        assert server.process.wait(timeout=150) == 0
        thread.join()
    assert answers[0][1]["usage"]["completion_tokens"] == 2000
    assert not Path(f"/proc/{engine}").exists()


def test_without_a_timeout_running_requests_end_as_aborted(
    engine_python: Path, package: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    with serve(engine_python, package, tiny_llama, tmp_path, *SLOTS) as server:
        answers: list[Any] = []
        thread = asked(server, answers, 2000)
        began = time.monotonic()
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.process.wait(timeout=30) == 0
        thread.join()
    assert time.monotonic() - began < 15
    status, answer = answers[0]
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "abort")


def test_the_server_ends_with_its_engine_and_the_engine_with_its_server(
    engine_python: Path, package: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    with serve(engine_python, package, tiny_llama, tmp_path, *SLOTS) as server:
        answers: list[Any] = []
        thread = asked(server, answers, 2000)
        os.kill(server.engine(), signal.SIGKILL)
        assert server.process.wait(timeout=20) == 1
        thread.join()
        assert answers[0][0] == 500
    again = start(engine_python, package, tiny_llama, tmp_path, *SLOTS)
    try:
        until(again.ready, START_SECONDS, "the server is ready")
        engine = again.engine()
        os.kill(again.process.pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{engine}").exists(), 20, "the engine is gone, too")
    finally:
        again.stop()


def test_a_stopped_engine_leaves_health_and_page_as_vllms_does(
    engine_python: Path, package: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    with serve(engine_python, package, tiny_llama, tmp_path, *SLOTS) as server:
        answers: list[Any] = []
        thread = asked(server, answers, 1500)
        engine = server.engine()
        os.kill(engine, signal.SIGSTOP)
        time.sleep(2)
        first = server.page()
        time.sleep(2)
        second = server.page()
        assert server.get("/health")[0] == 200
        steps = 'vllm:iteration_tokens_total_count{engine="0",model_name="tiny"}'
        assert first[steps] == second[steps]
        assert second['vllm:num_requests_running{engine="0",model_name="tiny"}'] == 1
        assert second['kintsugi_sample_age_seconds{engine="0",rank="pool"}'] > 2
        os.kill(engine, signal.SIGCONT)
        thread.join()
        assert answers[0][1]["usage"]["completion_tokens"] == 1500


def test_a_key_is_asked_for_where_one_is_set(
    engine_python: Path, package: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    with serve(engine_python, package, tiny_llama, tmp_path, *SLOTS, "--api-key", "s3cret") as server:
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 401
        given = {"Authorization": "Bearer s3cret"}
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, **given)[0] == 200
        assert server.get("/metrics")[0] == 200
