"""Servers that are no Prometheus, or a bad one: every answer is bounded, and none of it is ever shown."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kintsugi.adapters import prometheus_live
from kintsugi.adapters.prometheus_live import PrometheusLive
from kintsugi.ports.errors import Forbidden, Invalid, PortError, Unavailable
from kintsugi.ports.measurements import Source

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SECRET = "what only the inside of a network should read"


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """The address of a server that answers everything so."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def ask(url: str, token: str = "") -> object:
    port = PrometheusLive()
    try:
        return await port.measure(Source(url, token), "llm", "chat", {"chat-main-a"})
    finally:
        await port.close()


def answer(status: int, body: str, **headers: str) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body, headers=headers)

    return handle


EMPTY = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}})


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, SECRET, Forbidden),
        (403, SECRET, Forbidden),
        (400, SECRET, Invalid),
        (500, SECRET, Unavailable),
        (503, SECRET, Unavailable),
        (200, SECRET, Unavailable),
        (200, "", Unavailable),
        (200, "[]", Unavailable),
        (200, '{"data": []}', Unavailable),
        (200, '{"data": {"result": "x"}}', Unavailable),
        (200, "null", Unavailable),
    ],
)
async def test_an_answer_that_is_none_is_told_in_our_own_words(
    status: int, body: str, error: type[PortError]
) -> None:
    async with serving(answer(status, body)) as url:
        with pytest.raises(error) as raised:
            await ask(url)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


async def test_an_address_that_leads_elsewhere_is_not_followed() -> None:
    led: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        led.append(request.path)
        return web.Response(status=302, headers={"Location": "/latest/meta-data"})

    async with serving(handle) as url:
        with pytest.raises(Unavailable, match="302"):
            await ask(url)
    assert led == ["/api/v1/query"]


async def test_nobody_listens() -> None:
    with pytest.raises(Unavailable, match="gives no answer"):
        await ask("http://127.0.0.1:9")


@pytest.mark.parametrize("url", ["http://", "http://[", "https://a b", "http://no.such.host.invalid:9090"])
async def test_an_address_that_is_none_is_an_outage_like_any_other(url: str) -> None:
    with pytest.raises(Unavailable):
        await ask(url)


async def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_live, "MOST_BYTES", 100_000)

    async def handle(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        try:
            while True:
                await stream.write(b"x" * 50_000)
        except (ConnectionResetError, asyncio.CancelledError):
            return stream

    async with serving(handle) as url:
        with pytest.raises(Unavailable):
            await asyncio.wait_for(ask(url), 20)


@pytest.mark.parametrize("block", [1, 70_000])
async def test_an_answer_that_drips_is_given_up(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_live, "READ_SECONDS", 1.0)

    async def handle(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        try:
            for _ in range(300):
                await stream.write(b"x" * block)
                await asyncio.sleep(0.3)
        except (ConnectionResetError, asyncio.CancelledError):
            pass
        return stream

    async with serving(handle) as url:
        with pytest.raises(Unavailable):
            await asyncio.wait_for(ask(url), 20)


async def test_the_token_goes_along_where_there_is_one() -> None:
    seen: list[str | None] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(text=EMPTY)

    async with serving(handle) as url:
        assert await ask(url, "secret") == {}
        assert await ask(url) == {}
    assert seen == ["Bearer secret", None]
