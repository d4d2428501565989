"""What engines list: asked with the key, and whatever else comes back is no list."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kintsugi.adapters.engines import HttpEngines
from kintsugi.ports.engines import Address

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, key: str | None = "key-1") -> AsyncIterator[Address]:
    app = web.Application()
    app.router.add_get("/v1/models", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Address("127.0.0.1", runner.addresses[0][1], key, "v4")
    finally:
        await runner.cleanup()


async def guarded(request: web.Request) -> web.StreamResponse:
    if request.headers.get("Authorization") != "Bearer key-1":
        return web.json_response({"error": "Unauthorized"}, status=401)
    return web.json_response({"object": "list", "data": [{"id": "v4"}, {"id": "tax", "parent": "v4"}]})


async def test_models_and_adapters_are_listed_with_the_key_and_not_without(engines: HttpEngines) -> None:
    async with serving(guarded) as address:
        assert await engines.models(address, 2.0) == frozenset({"v4", "tax"})
    async with serving(guarded, key=None) as address:
        assert await engines.models(address, 2.0) is None


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", '{"data": 7}', '{"data": null}', "\ud7ff"])
async def test_what_is_no_list_says_nothing(engines: HttpEngines, body: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=body)

    async with serving(answer) as address:
        assert await engines.models(address, 2.0) is None


async def test_odd_entries_are_passed_over(engines: HttpEngines) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=json.dumps({"data": [{"id": "v4"}, {"name": "x"}, 7, None]}))

    async with serving(answer) as address:
        assert await engines.models(address, 2.0) == frozenset({"v4"})


async def test_nobody_there_says_nothing(engines: HttpEngines) -> None:
    async with serving(guarded) as address:
        pass
    assert await engines.models(address, 1.0) is None
    assert await engines.models(Address("127.0.0.1", address.port, "a\nb"), 1.0) is None
