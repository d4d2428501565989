"""The ranks' own record over HTTP: what a list is, what no record is, and what is no answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kintsugi.adapters.engines import ANSWER_BYTES, HttpEngines
from kintsugi.ports.engines import Address
from kintsugi.testing.engine import serve_engine
from kintsugi.testing.engine.faults import Hang
from kintsugi_engine.contract import RECORD_PATH


@asynccontextmanager
async def serving(body: bytes, status: int = 200) -> AsyncIterator[Address]:
    """An engine that answers so to who has the key."""

    async def record(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer key-1":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return web.Response(body=body, status=status, content_type="application/json")

    app = web.Application()
    app.router.add_get(RECORD_PATH, record)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Address("127.0.0.1", runner.addresses[0][1], "key-1", "v4")
    finally:
        await runner.cleanup()


async def test_the_ranks_are_read_with_the_engines_key(engines: HttpEngines) -> None:
    async with serving(b'{"ranks": [{"kind": "pool", "age": 3.5}, "odd"]}') as address:
        assert await engines.record(address, 2.0) == ({"kind": "pool", "age": 3.5},)
        assert await engines.record(Address(address.ip, address.port, None, "v4"), 2.0) is None


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, b"{}", ()),
        (200, b'{"ranks": []}', ()),
        (200, b"half a docu", None),
        (200, b"[]", None),
        (200, b'{"ranks": 5}', None),
        (200, b"[" * 100_000, None),
        (200, b" " * (ANSWER_BYTES + 1), None),
        (500, b'{"ranks": []}', None),
    ],
)
async def test_no_record_is_told_from_no_answer(
    engines: HttpEngines, status: int, body: bytes, expected: tuple[()] | None
) -> None:
    async with serving(body, status) as address:
        assert await engines.record(address, 2.0) == expected
    assert await engines.record(address, 2.0) is None, "nobody listens any more"


async def test_the_simulated_engine_tells_its_record_also_while_it_hangs_and_none_without_telemetry(
    engines: HttpEngines,
) -> None:
    def at(url: str) -> Address:
        return Address("127.0.0.1", int(url.rpartition(":")[2]))

    async with serve_engine(ranks=2) as server:
        server.inject(Hang())
        told = await engines.record(at(server.url), 2.0)
        assert told is not None
        assert [(one["kind"], one["rank"]) for one in told] == [
            ("allocator", "0-0"),
            ("pool", "0"),
            ("allocator", "1-1"),
            ("pool", "1"),
        ]
        await asyncio.sleep(0.1)
        later = await engines.record(at(server.url), 2.0)
        assert later is not None
        assert all(then["age"] > now["age"] for then, now in zip(later, told, strict=True)), "nobody measures"
    async with serve_engine(telemetry=False) as server:
        assert await engines.record(at(server.url), 2.0) == ()
