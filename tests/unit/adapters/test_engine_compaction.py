"""Cached memory given back: who can is learned without doing it, and only an engine that says so has done it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kintsugi.adapters.engines import HttpEngines
from kintsugi.ports.engines import Address
from kintsugi_engine.contract import COMPACT_PATH


@asynccontextmanager
async def serving(status: int | None, done: list[str]) -> AsyncIterator[Address]:
    """An engine that answers POST with `status`; None: it has no such path."""

    async def compact(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer key-1":
            return web.json_response({"error": "Unauthorized"}, status=401)
        done.append(request.method)
        return web.json_response({"ranks": []}, status=status or 500)

    app = web.Application()
    if status is not None:
        app.router.add_post(COMPACT_PATH, compact)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Address("127.0.0.1", runner.addresses[0][1], "key-1", "v4")
    finally:
        await runner.cleanup()


async def test_asking_who_can_does_nothing(engines: HttpEngines) -> None:
    done: list[str] = []
    async with serving(200, done) as address:
        assert await engines.can_compact(address, 2.0) is True
        assert done == []
        assert await engines.compact(address, 2.0) is True
    assert done == ["POST"]


async def test_an_engine_without_the_path_says_so_and_one_that_is_gone_says_nothing(
    engines: HttpEngines,
) -> None:
    async with serving(None, []) as address:
        assert await engines.can_compact(address, 2.0) is False
        assert await engines.compact(address, 2.0) is False
    assert await engines.can_compact(address, 2.0) is None
    assert await engines.compact(address, 2.0) is False


@pytest.mark.parametrize("status", [500, 503, 504, 202])
async def test_any_other_answer_is_no_deed(engines: HttpEngines, status: int) -> None:
    async with serving(status, []) as address:
        assert await engines.compact(address, 2.0) is False


async def test_without_the_key_nothing_is_done(engines: HttpEngines) -> None:
    done: list[str] = []
    async with serving(200, done) as address:
        assert await engines.compact(Address(address.ip, address.port, None, "v4"), 2.0) is False
    assert done == []
