"""Compaction in vLLM: an HTTP path in the API process, and workers that give cached memory back when it is asked.
Beside it a path that tells what each rank measured last, which the API process of an engine that hangs still answers.

Both ends come in through public doors: vLLM's `--middleware` takes `Endpoint`, and the general plugin's thread in each
worker calls `Desk.attend`. They meet in files, so every rank is reached whatever the parallelism, also while a step
hangs. Workers on other nodes don't share the folder and are not reached.
"""

import asyncio
import contextlib
import hmac
import json
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kintsugi_engine import clock
from kintsugi_engine.contract import COMPACT_PATH, RECORD_PATH
from kintsugi_engine.telemetry.rankfile import folder, last_records

ANSWER_SECONDS: Final = 20.0
"""What the workers get: they look every five seconds, and freeing takes well below one."""
POLL_SECONDS: Final = 0.25
FRESH_SECONDS: Final = 16.0
"""A worker that has not looked for three of its periods is gone, or was before this container."""
_REQUEST: Final = "compact.request"
_METHODS: Final = {
    COMPACT_PATH: ("POST", "asks for a compaction"),
    RECORD_PATH: ("GET", "asks for what the ranks measured last"),
}

Json = dict[str, Any]
Receive = Callable[[], Awaitable[Json]]
Send = Callable[[Json], Awaitable[None]]
App = Callable[[Json, Receive, Send], Awaitable[None]]


class Desk:
    """One worker's part. Everything in here runs in the plugin's own thread."""

    def __init__(self, where: Path | None = None) -> None:
        self._folder = where or folder()
        self._done = self._asked()  # what was asked before this process is not meant for it
        self._said: Json | None = None

    def attend(self, torch: Any, rank: str) -> None:
        """Say that this worker is there, and do what was asked since. Raises OSError where the folder can't be written."""
        asked = self._asked()
        if asked and asked != self._done:
            self._done, self._said = asked, {"request": asked, **_emptied(torch)}
        self._write({"rank": rank, **(self._said or {})})

    def _asked(self) -> str:
        with contextlib.suppress(OSError):
            return (self._folder / _REQUEST).read_text()
        return ""

    def _write(self, told: Mapping[str, Any]) -> None:
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = self._folder / f"compact-{os.getpid()}.worker"
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(told))
        scratch.replace(path)


def _emptied(torch: Any) -> Json:
    """Bytes reserved on this process' devices, before and after."""
    devices = range(torch.cuda.device_count())
    before = sum(torch.cuda.memory_reserved(device) for device in devices)
    torch.cuda.empty_cache()  # of every device that this process uses; blocks until they are idle
    return {
        "reservedBefore": before,
        "reservedAfter": sum(torch.cuda.memory_reserved(each) for each in devices),
    }


class Endpoint:
    """ASGI middleware with two paths of its own; everything else goes through untouched."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, scope: Json, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in _METHODS:
            await self._app(scope, receive, send)
            return
        status, body = await self._answer(scope)
        text = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    async def _answer(self, scope: Json) -> tuple[int, Json]:
        method, why = _METHODS[scope["path"]]
        if scope["method"] != method:
            return 405, {"error": f"{method} {why}"}
        if not _allowed(dict(scope["headers"]).get(b"authorization", b"")):
            return 401, {"error": "the Authorization header carries no valid key"}
        if scope["path"] == RECORD_PATH:
            return 200, {"ranks": await asyncio.to_thread(last_records, folder(), clock.wall())}
        async with self._one_at_a_time:
            try:
                return await _compacted(folder(), ANSWER_SECONDS)
            except OSError as error:
                return 500, {"error": f"the folder of the telemetry can't be used: {error}"}


def _allowed(given: bytes) -> bool:
    key = os.environ.get("VLLM_API_KEY", "")
    return not key or hmac.compare_digest(given, f"Bearer {key}".encode())


async def _compacted(where: Path, patience: float) -> tuple[int, Json]:
    workers = [path for path, _ in _workers(where)]
    if not workers:
        return 200, {"ranks": []}
    asked = uuid.uuid4().hex
    scratch = where / f"{_REQUEST}.new"
    scratch.write_text(asked)
    scratch.replace(where / _REQUEST)
    deadline = clock.mono() + patience
    while clock.mono() < deadline:
        answers = [told for path, told in _workers(where) if path in workers and told.get("request") == asked]
        if len(answers) == len(workers):
            break
        await asyncio.sleep(POLL_SECONDS)
    ranks = [
        {name: told[name] for name in ("rank", "reservedBefore", "reservedAfter")}
        for told in sorted(answers, key=lambda told: str(told["rank"]))
    ]
    if not ranks:
        return 504, {"error": f"none of {len(workers)} workers answered within {patience:g} s"}
    return 200, {"ranks": ranks}


def _workers(where: Path) -> list[tuple[Path, Json]]:
    """The workers that looked lately, with what they say."""
    found = []
    for path in sorted(where.glob("compact-*.worker")):
        with contextlib.suppress(OSError, ValueError):
            if path.stat().st_mtime > clock.wall() - FRESH_SECONDS:
                found.append((path, json.loads(path.read_text())))
    return found
