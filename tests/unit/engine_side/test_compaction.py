"""The way from an HTTP request to every worker's allocator and back, in files."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kintsugi_engine import compaction
from kintsugi_engine.compaction import Desk, Endpoint
from kintsugi_engine.contract import COMPACT_PATH, RECORD_PATH, TELEMETRY_DIR_VARIABLE
from kintsugi_engine.telemetry.rankfile import RankFile


class Cuda:
    """An allocator that holds 900 bytes on each of two devices, of which 300 can be given back."""

    def __init__(self) -> None:
        self.held = 900

    def device_count(self) -> int:
        return 2

    def memory_reserved(self, device: int) -> int:
        return self.held

    def empty_cache(self) -> None:
        self.held = 600


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which both ends meet."""
    monkeypatch.setenv(TELEMETRY_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setattr(compaction, "POLL_SECONDS", 0.01)
    return tmp_path


async def asked(method: str = "POST", path: str = COMPACT_PATH, key: bytes = b"") -> tuple[int, Any]:
    """(status, body) of a request through the middleware; 299 is the application behind it."""
    sent: list[dict[str, Any]] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 299})
        await send({"type": "http.response.body", "body": b"{}"})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [(b"authorization", key)]}
    await Endpoint(behind)(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_every_worker_is_asked_once_and_says_what_it_gave_back(where: Path) -> None:
    desk, torch = Desk(), SimpleNamespace(cuda=Cuda())
    desk.attend(torch, "3")
    request = asyncio.create_task(asked())
    for _ in range(500):
        await asyncio.sleep(0.01)
        if (where / "compact.request").exists():
            break
    desk.attend(torch, "3")
    assert await request == (200, {"ranks": [{"rank": "3", "reservedBefore": 1800, "reservedAfter": 1200}]})
    torch.cuda.held = 900
    desk.attend(torch, "3")
    assert torch.cuda.held == 900, "one request was served twice"


async def test_without_a_worker_on_a_gpu_there_is_nothing_to_do(where: Path) -> None:
    assert await asked() == (200, {"ranks": []})
    assert not (where / "compact.request").exists()


async def test_a_worker_that_does_not_answer_is_said(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "ANSWER_SECONDS", 0.05)
    Desk().attend(SimpleNamespace(cuda=Cuda()), "0")
    status, body = await asked()
    assert (status, body["error"]) == (504, "none of 1 workers answered within 0.05 s")


def test_a_worker_that_starts_after_a_request_does_not_serve_it(where: Path) -> None:
    (where / "compact.request").write_text("before")
    cuda = Cuda()
    Desk().attend(SimpleNamespace(cuda=cuda), "0")
    assert cuda.held == 900


async def test_other_paths_and_methods_and_keys(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await asked(path="/v1/completions"))[0] == 299
    assert (await asked(method="GET"))[0] == 405
    monkeypatch.setenv("VLLM_API_KEY", "s3cret")
    assert (await asked())[0] == 401
    assert (await asked(key=b"Bearer s3cret"))[0] == 200


async def test_the_ranks_own_record_is_told_to_who_has_the_key(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await asked("GET", RECORD_PATH) == (200, {"ranks": []})
    RankFile(where, "abc", "pool", "0").write({"at": 1.0, "steps": 4711, "engine": "0"})
    status, body = await asked("GET", RECORD_PATH)
    (told,) = body["ranks"]
    assert (status, told["kind"], told["steps"]) == (200, "pool", 4711)
    assert told["age"] > 1e9
    assert (await asked("POST", RECORD_PATH))[0] == 405
    monkeypatch.setenv("VLLM_API_KEY", "s3cret")
    assert (await asked("GET", RECORD_PATH))[0] == 401
    assert (await asked("GET", RECORD_PATH, b"Bearer s3cret"))[0] == 200
