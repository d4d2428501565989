"""S19: a request of each length class before the engine counts as started, over HTTP, as `kintsugi-engine warm` sends it."""

import asyncio
from pathlib import Path
from typing import Self

import pytest
from aiohttp import web

from kintsugi_engine import warm


class Cold:
    """An engine that compiles for the first request of each length, and has no kernels before it is healthy."""

    def __init__(self) -> None:
        self.healthy = True
        self.longest = 10_000
        self.breaks_at: int | None = None
        self.asked: list[int] = []
        self.compiled: set[int] = set()
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_post("/v1/completions", self._complete)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)

    async def _complete(self, request: web.Request) -> web.Response:
        length = len((await request.json())["prompt"])
        self.asked.append(length)
        if length == self.breaks_at:
            return web.Response(status=500)
        if length > self.longest:
            return web.Response(status=400)
        if length not in self.compiled:
            await asyncio.sleep(0.1)
        self.compiled.add(length)
        return web.json_response({"choices": [{"index": 0, "text": "x", "finish_reason": "length"}]})

    async def probed(self, mark: Path, *more: str) -> int:
        """What the kubelet's start-up probe gets."""
        return await asyncio.to_thread(warm.main, ["--url", self.url, "--mark", str(mark), *more])


async def test_s19_a_start_counts_only_once_each_length_class_was_asked(tmp_path: Path) -> None:
    async with Cold() as engine:
        engine.healthy = False
        assert await engine.probed(tmp_path / "mark") == 1
        assert engine.asked == []
        engine.healthy = True
        assert await engine.probed(tmp_path / "mark") == 0
        assert engine.asked == list(warm.LENGTHS)
        assert engine.compiled == set(warm.LENGTHS), "no user waits for kernels"
        assert await engine.probed(tmp_path / "mark") == 0
        assert len(engine.asked) == len(warm.LENGTHS), "once a process"


async def test_s19_a_class_that_the_engine_does_not_serve_holds_up_nobody(tmp_path: Path) -> None:
    async with Cold() as engine:
        engine.longest = 2_048
        assert await engine.probed(tmp_path / "mark") == 0
        assert engine.compiled == {1, 128, 1024}


@pytest.mark.parametrize("length", [1, 1024])
async def test_s19_an_engine_that_fails_in_one_class_has_not_started(tmp_path: Path, length: int) -> None:
    async with Cold() as engine:
        engine.breaks_at = length
        assert await engine.probed(tmp_path / "mark") == 1
        engine.breaks_at = None
        assert await engine.probed(tmp_path / "mark") == 0
        assert set(engine.asked) == set(warm.LENGTHS)


async def test_s19_compilation_that_outlasts_one_probe_goes_on_in_the_next(tmp_path: Path) -> None:
    async with Cold() as engine:
        assert await engine.probed(tmp_path / "mark", "--timeout", "0.02") == 1
        await asyncio.sleep(0.3)
        assert await engine.probed(tmp_path / "mark", "--timeout", "5") == 0


async def test_s19_pools_may_name_their_own_classes(tmp_path: Path) -> None:
    async with Cold() as engine:
        assert await engine.probed(tmp_path / "mark", "--lengths", "16,8192") == 0
        assert engine.asked == [16, 8192]
