"""The proxy itself, before a server that is not an API server."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp import web

from tests.chaos.proxy import Proxy, Trouble, new_session, parse_trouble, runner_of


@dataclass(slots=True)
class Bench:
    """A server, the proxy before it, and a client."""

    proxy: Proxy
    url: str
    client: aiohttp.ClientSession
    asked: list[str]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(f"{request.method} {request.raw_path} {(await request.read()).decode()}".rstrip())
        if "watch" not in request.query:
            return web.json_response({"kind": "Pod"}, headers={"Warning": "old"})
        response = web.StreamResponse()
        await response.prepare(request)
        for number in range(100):
            await response.write(f"{number}\n".encode())
            await asyncio.sleep(0.05)
        return response

    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with new_session() as session, aiohttp.ClientSession() as client:
        proxy = Proxy(f"http://127.0.0.1:{runner.addresses[0][1]}", session, random.Random(1))
        front = await runner_of(proxy)
        await web.TCPSite(front, "127.0.0.1", 0).start()
        yield Bench(proxy, f"http://127.0.0.1:{front.addresses[0][1]}", client, asked)
        proxy.make(Trouble())
        await client.close()
        await front.cleanup()
    await runner.cleanup()


async def test_without_trouble_everything_passes_as_it_is(bench: Bench) -> None:
    path = "/api/v1/pods?labelSelector=a%3Db"
    async with bench.client.post(bench.url + path, data=b"{}") as answer:
        assert answer.status == 200
        assert answer.headers["Warning"] == "old"
        assert await answer.json() == {"kind": "Pod"}
    assert bench.asked == [f"POST {path} {{}}"]
    assert bench.proxy.counts.passed == 1


async def test_a_watch_arrives_piece_by_piece(bench: Bench) -> None:
    async with bench.client.get(bench.url + "/pods?watch=true") as answer:
        assert await answer.content.readline() == b"0\n"
        assert await answer.content.readline() == b"1\n"


async def test_a_share_is_refused_with_a_time_to_wait(bench: Bench) -> None:
    bench.proxy.make(Trouble(refused_share=0.5, retry_after_seconds=7))
    seen = []
    for _ in range(60):
        async with bench.client.get(bench.url + "/pods") as answer:
            seen.append(answer.status)
            if answer.status == 429:
                assert answer.headers["Retry-After"] == "7"
                assert (await answer.json())["reason"] == "TooManyRequests"
    assert 15 <= seen.count(429) <= 45
    assert bench.proxy.counts.refused == seen.count(429)
    assert len(bench.asked) == seen.count(200), "what was refused never arrived"


async def test_resets_meet_new_requests_and_watches_that_stand(bench: Bench) -> None:
    async with bench.client.get(bench.url + "/pods?watch=true") as answer:
        await answer.content.readline()
        bench.proxy.make(Trouble(reset_share=1.0))
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
    with pytest.raises(aiohttp.ClientError):
        await bench.client.get(bench.url + "/pods")
    assert len(bench.asked) == 1


async def test_a_black_hole_answers_nobody_and_what_was_asked_arrives_late(bench: Bench) -> None:
    async with bench.client.get(bench.url + "/pods?watch=true") as answer:
        await answer.content.readline()
        bench.proxy.make(Trouble(black_hole=True))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer.read(), 0.5)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bench.client.post(bench.url + "/evict", data=b"late"), 0.3)
    assert len(bench.asked) == 1
    bench.proxy.make(Trouble())
    await asyncio.sleep(0.5)
    assert bench.asked[1] == "POST /evict late"


async def test_watches_are_told_that_their_version_is_gone_in_both_ways(bench: Bench) -> None:
    bench.proxy.make(Trouble(gone=True))
    async with bench.client.get(bench.url + "/pods?watch=true") as answer:
        assert answer.status == 410
    async with bench.client.get(bench.url + "/pods?watch=true") as answer:
        event = json.loads(await answer.content.readline())
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    async with bench.client.get(bench.url + "/pods") as answer:
        assert answer.status == 200, "a list is served"


def test_a_trouble_that_is_not_known_is_refused() -> None:
    assert parse_trouble('{"black_hole": true}') == Trouble(black_hole=True)
    with pytest.raises(ValueError, match="expected an object"):
        parse_trouble('{"blackhole": true}')
    with pytest.raises(ValueError, match="between 0 and 1"):
        parse_trouble('{"reset_share": 2}')
