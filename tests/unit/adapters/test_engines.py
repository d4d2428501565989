"""Engines over real sockets on loopback: answering, refusing, silent, slow, failing, too talkative."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kintsugi.adapters.engines import PAGE_BYTES, HttpEngines
from kintsugi.core.snapshot import Canary, CanaryOutcome, CanaryResult, Failed, Failure, Page, ProcessKey
from kintsugi.ports.engines import Address

PAGE = 'vllm:num_requests_running{engine="0"} 1.0\n'
TWO_RANKS = PAGE + 'vllm:num_requests_running{engine="1"} 0.0\n'
COMPLETION = {"choices": [{"text": "a", "finish_reason": "length"}]}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[Address]:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Address("127.0.0.1", runner.addresses[0][1], "key-1", "deepseek-v4")
    finally:
        await runner.cleanup()


@asynccontextmanager
async def listening(accept: bool) -> AsyncIterator[Address]:
    """A port that connects and never answers: the kernel's backlog, or a handler that only reads."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(-1)
        finally:
            writer.close()

    if accept:
        server = await asyncio.start_server(swallow, "127.0.0.1", 0)
        async with server:
            yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
    else:
        with socket.create_server(("127.0.0.1", 0)) as bound:
            yield Address("127.0.0.1", bound.getsockname()[1])


def unused_address() -> Address:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return Address("127.0.0.1", bound.getsockname()[1])


async def text_page(request: web.Request) -> web.StreamResponse:
    return web.Response(text=PAGE)


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.Response()


async def failure_of(engines: HttpEngines, address: Address, timeout: float = 0.5) -> Failed:
    (scrape,) = await engines.scrape([address], timeout)
    assert isinstance(scrape, Failed), scrape
    return scrape


def canary(number: int = 1, rank: str = "0") -> Canary:
    return Canary(f"kintsugi-canary-{rank}-{number}", ProcessKey("u", 1.0), rank, time.monotonic())


async def result_of(engines: HttpEngines) -> CanaryResult:
    for _ in range(300):
        found = engines.canary_results()
        if found:
            return found[0]
        await asyncio.sleep(0.01)
    raise AssertionError("the canary did not end")


async def test_a_page_is_read_with_its_time(engines: HttpEngines) -> None:
    async with serving(text_page) as address:
        before = time.monotonic()
        (scrape,) = await engines.scrape([address], 2.0)
    assert isinstance(scrape, Page)
    assert scrape.text == PAGE
    assert before <= scrape.mono <= time.monotonic()


async def test_the_engines_key_is_not_shown_to_its_metrics_page(engines: HttpEngines) -> None:
    seen: list[web.Request] = []

    async def remember(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        return web.Response(text=PAGE)

    async with serving(remember) as address:
        await engines.scrape([address], 2.0)
    assert seen[0].path == "/metrics"
    assert "Authorization" not in seen[0].headers


async def test_a_closed_port_is_refused(engines: HttpEngines) -> None:
    assert (await failure_of(engines, unused_address())).failure is Failure.REFUSED


@pytest.mark.parametrize("accept", [True, False])
async def test_a_port_that_connects_and_says_nothing_is_silent(engines: HttpEngines, accept: bool) -> None:
    async with listening(accept) as address:
        assert (await failure_of(engines, address)).failure is Failure.SILENT


async def test_a_page_that_trickles_is_silent(engines: HttpEngines) -> None:
    async def trickle(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(20):
            await answer.write(b"a 1\n")
            await asyncio.sleep(0.1)
        return answer

    async with serving(trickle) as address:
        assert (await failure_of(engines, address, 0.4)).failure is Failure.SILENT


async def test_a_port_whose_backlog_is_full_is_a_connect_timeout(engines: HttpEngines) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(0)
        address = Address("127.0.0.1", bound.getsockname()[1])
        crowd = [socket.socket() for _ in range(4)]
        for each in crowd:
            each.setblocking(False)
            each.connect_ex((address.ip, address.port))
        try:
            assert (await failure_of(engines, address, 0.6)).failure is Failure.CONNECT_TIMEOUT
        finally:
            for each in crowd:
                each.close()


async def test_an_error_page_is_an_http_error(engines: HttpEngines) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        return web.Response(status=500, text="boom")

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("http://127.0.0.1:1/")

    async with serving(broken) as address:
        failed = await failure_of(engines, address)
        assert failed.failure is Failure.HTTP_ERROR
        assert failed.why.startswith("status 500, as where PROMETHEUS_MULTIPROC_DIR")
    async with serving(elsewhere) as address:
        assert (await failure_of(engines, address)).failure is Failure.HTTP_ERROR


async def test_a_connection_that_breaks_is_an_http_error(engines: HttpEngines) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with serving(cut) as address:
        assert (await failure_of(engines, address)).failure is Failure.HTTP_ERROR


async def test_a_huge_page_is_not_read_to_its_end(engines: HttpEngines) -> None:
    sent = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(64):
            await answer.write(b"x" * (1024 * 1024))
            sent += 1
        return answer

    async with serving(flood) as address:
        failed = await failure_of(engines, address, 10.0)
    assert failed.failure is Failure.HTTP_ERROR
    assert f"more than {PAGE_BYTES} bytes" in failed.why
    assert sent < 30


async def test_a_pod_without_an_address_is_not_asked(engines: HttpEngines) -> None:
    assert (await failure_of(engines, Address(""))).failure is Failure.NO_ADDRESS


async def test_pages_are_read_side_by_side_and_answers_keep_their_order(engines: HttpEngines) -> None:
    async with listening(True) as silent, serving(text_page) as good:
        began = time.monotonic()
        scrapes = await engines.scrape([silent, good, unused_address(), silent, good], 0.5)
        took = time.monotonic() - began
    kinds = [each.failure if isinstance(each, Failed) else None for each in scrapes]
    assert kinds == [Failure.SILENT, None, Failure.REFUSED, Failure.SILENT, None]
    assert took < 0.9


async def test_an_engine_that_restarted_between_two_readings_is_read_again(engines: HttpEngines) -> None:
    async with serving(text_page) as address:
        await engines.scrape([address], 2.0)
    assert (await failure_of(engines, address)).failure is Failure.REFUSED


async def test_a_canary_is_one_short_request_as_the_protocol_says(engines: HttpEngines) -> None:
    seen: list[tuple[str, Mapping[str, str], bytes]] = []

    async def complete(request: web.Request) -> web.StreamResponse:
        seen.append((request.path, request.headers, await request.read()))
        return web.json_response(COMPLETION)

    async with serving(complete) as address:
        engines.send_canary(address, canary(7), 5.0)
        result = await result_of(engines)
    assert (result.outcome, result.status) == (CanaryOutcome.ANSWERED, 200)
    assert result.mono >= result.canary.sent
    where, headers, raw = seen[0]
    body = json.loads(raw)
    assert where == "/v1/completions"
    assert headers["X-Request-Id"] == "kintsugi-canary-0-7"
    assert headers["Authorization"] == "Bearer key-1"
    assert "X-data-parallel-rank" not in headers
    assert len(body["prompt"]) == 4
    assert {key: body[key] for key in ("model", "max_tokens", "temperature", "priority", "stream")} == {
        "model": "deepseek-v4",
        "max_tokens": 1,
        "temperature": 0,
        "priority": -100,
        "stream": False,
    }


async def test_a_rank_is_asked_for_only_where_the_page_shows_several(engines: HttpEngines) -> None:
    ranks: list[str | None] = []

    async def two(request: web.Request) -> web.StreamResponse:
        if request.path == "/metrics":
            return web.Response(text=TWO_RANKS)
        ranks.append(request.headers.get("X-data-parallel-rank"))
        return web.json_response(COMPLETION)

    async with serving(two) as address:
        await engines.scrape([address], 2.0)
        for rank in ("0", "1", "1\r\nX-Evil: 1", "a", "²"):
            engines.send_canary(address, Canary("kintsugi-canary-x", ProcessKey("u", 1.0), rank, 0.0), 5.0)
            await result_of(engines)
    assert ranks == ["0", "1", None, None, None]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (401, CanaryOutcome.REFUSED_BY_ENGINE),
        (404, CanaryOutcome.REFUSED_BY_ENGINE),
        (422, CanaryOutcome.REFUSED_BY_ENGINE),
        (429, CanaryOutcome.REFUSED_BY_ENGINE),
        (500, CanaryOutcome.SERVER_ERROR),
        (503, CanaryOutcome.ADMISSION_FULL),
    ],
)
async def test_a_canary_ends_by_its_status(engines: HttpEngines, status: int, outcome: CanaryOutcome) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status)

    async with serving(refuse) as address:
        engines.send_canary(address, canary(), 5.0)
        result = await result_of(engines)
        assert not await engines.ask(address, 2.0)
    assert (result.outcome, result.status) == (outcome, status)


async def test_an_unanswered_canary_is_abandoned_at_its_deadline_and_not_before(engines: HttpEngines) -> None:
    async with serving(hang) as address:
        engines.send_canary(address, canary(), 0.6)
        await asyncio.sleep(0.3)
        assert engines.canary_results() == []
        result = await result_of(engines)
    assert result.outcome is CanaryOutcome.ABANDONED
    assert result.mono - result.canary.sent >= 0.55


async def test_canaries_without_a_connection_are_told_apart(engines: HttpEngines) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    engines.send_canary(unused_address(), canary(), 5.0)
    assert (await result_of(engines)).outcome is CanaryOutcome.CONNECTION_REFUSED
    async with serving(cut) as address:
        engines.send_canary(address, canary(), 5.0)
        assert (await result_of(engines)).outcome is CanaryOutcome.CONNECTION_REFUSED


async def test_a_key_that_is_no_header_is_no_evidence_against_the_engine(
    engines: HttpEngines, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(text_page) as address:
        odd = Address(address.ip, address.port, "two\nlines")
        engines.send_canary(odd, canary(), 5.0)
        assert (await result_of(engines)).outcome is CanaryOutcome.REFUSED_BY_ENGINE
        assert not await engines.ask(odd, 1.0)
    assert "canary not sent" in caplog.text


async def test_closing_ends_open_canaries(engines: HttpEngines) -> None:
    async with serving(hang) as address:
        engines.send_canary(address, canary(), 30.0)
        await asyncio.sleep(0.05)
        await engines.close()
    assert engines.canary_results() == []


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        (json.dumps(COMPLETION), True),
        (json.dumps({"choices": []}), False),
        (json.dumps({"choices": [{"text": "", "finish_reason": None}]}), False),
        (json.dumps({"choices": [None]}), False),
        ("[]", False),
        ("<html>", False),
    ],
)
async def test_only_a_whole_completion_is_an_answer(engines: HttpEngines, body: str, whole: bool) -> None:
    async def say(request: web.Request) -> web.StreamResponse:
        return web.Response(text=body, content_type="application/json")

    async with serving(say) as address:
        assert await engines.ask(address, 2.0) is whole


async def test_no_answer_is_no_answer(engines: HttpEngines) -> None:
    assert not await engines.ask(unused_address(), 1.0)
    async with listening(True) as address:
        assert not await engines.ask(address, 0.3)
