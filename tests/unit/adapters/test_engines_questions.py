"""Known-answer questions over real sockets: what is sent, and what is taken for an answer."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from kintsugi.adapters.engines import HttpEngines
from kintsugi.core.known_answers import NAMES, QUESTIONS, SURE_NATS, WITH_MARGIN
from kintsugi.core.snapshot import Answer, Canary, CanaryOutcome, CanaryResult, ProcessKey, Question
from kintsugi.ports.engines import Address
from kintsugi.testing.engine import serve_engine
from kintsugi.testing.engine.faults import CorruptedOutput
from kintsugi_engine.contract import CANARY_REQUEST_ID_PREFIX


@asynccontextmanager
async def answering(choice: Any, seen: list[tuple[dict[str, str], dict[str, Any]]]) -> AsyncIterator[Address]:
    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(({name.lower(): said for name, said in request.headers.items()}, await request.json()))
        if isinstance(choice, str):
            return web.Response(text=choice, content_type="application/json")
        return web.json_response({"choices": [choice]} if isinstance(choice, dict) else choice)

    app = web.Application()
    app.router.add_post("/v1/completions", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Address("127.0.0.1", runner.addresses[0][1], "key-1", "deepseek-v4")
    finally:
        await runner.cleanup()


async def ask(engines: HttpEngines, address: Address, question: Question) -> CanaryResult:
    id_ = f"{CANARY_REQUEST_ID_PREFIX}0-u-{question.name}"
    engines.send_canary(address, Canary(id_, ProcessKey("u", 1.0), "0", time.monotonic(), question), 5.0)
    for _ in range(500):
        if found := engines.canary_results():
            return found[0]
        await asyncio.sleep(0.01)
    raise AssertionError("the question did not end")


async def test_a_question_is_greedy_one_token_long_salted_and_sent_with_the_engines_key(
    engines: HttpEngines,
) -> None:
    seen: list[tuple[dict[str, str], dict[str, Any]]] = []
    async with answering({"text": " g", "finish_reason": "length"}, seen) as address:
        await ask(engines, address, QUESTIONS[0])
        await ask(engines, address, WITH_MARGIN[0])
    (headers, plain), (_, first) = seen
    assert headers["authorization"] == "Bearer key-1"
    assert headers["x-request-id"].startswith(CANARY_REQUEST_ID_PREFIX)
    assert plain["prompt"] == list(QUESTIONS[0].prompt)
    assert (plain["max_tokens"], plain["temperature"], plain["priority"]) == (1, 0, -100)
    assert (plain["cache_salt"], "logprobs" in plain) == (headers["x-request-id"], False)
    assert (first["logprobs"], first["return_tokens_as_token_ids"]) == (2, True)


@pytest.mark.parametrize(
    ("choice", "answer"),
    [
        ({"text": " g"}, Answer(" g")),
        ({"text": " g", "token_ids": [71]}, Answer("id 71")),
        (
            {"token_ids": [71], "logprobs": {"top_logprobs": [{"token_id:71": -0.1, "token_id:8": -7.1}]}},
            Answer("id 71", 7.0),
        ),
        ({"token_ids": [71], "logprobs": {"top_logprobs": [{"token_id:71": -0.1}]}}, Answer("id 71")),
        ({"token_ids": [71], "logprobs": {"top_logprobs": [{"a": None, "b": -1.0}]}}, Answer("id 71")),
        ({"token_ids": [71], "logprobs": {"top_logprobs": []}}, Answer("id 71")),
        ({"token_ids": [71], "logprobs": {"top_logprobs": [{"a": 0, "b": -(10**400)}]}}, Answer("id 71")),
        ({"token_ids": [], "text": ""}, None),
        ({"token_ids": [None], "text": None}, None),
        ({}, None),
        ([], None),
        ("[" * 30_000, None),
        ({"text": ["a"]}, None),
    ],
)
async def test_what_is_taken_for_an_answer(engines: HttpEngines, choice: Any, answer: Answer | None) -> None:
    async with answering(choice, []) as address:
        result = await ask(engines, address, WITH_MARGIN[1])
    assert (result.outcome, result.answer) == (CanaryOutcome.ANSWERED, answer)


async def test_a_canary_has_no_answer(engines: HttpEngines) -> None:
    async with answering({"text": " g", "token_ids": [71]}, []) as address:
        engines.send_canary(address, Canary("kintsugi-canary-0-1", ProcessKey("u", 1.0), "0", 0.0), 5.0)
        found: list[CanaryResult] = []
        while not found:
            await asyncio.sleep(0.01)
            found = engines.canary_results()
    assert found[0].answer is None


async def test_two_simulated_engines_agree_surely_and_a_corrupted_one_does_not(engines: HttpEngines) -> None:
    async with serve_engine(seed=1) as well, serve_engine(seed=2) as other:
        said: list[dict[str, Answer | None]] = []
        for server in (well, other):
            host, port = server.url.removeprefix("http://").split(":")
            address = Address(host, int(port))
            said.append({q.name: (await ask(engines, address, q)).answer for q in WITH_MARGIN})
        assert said[0] == said[1]
        assert all(a is not None and a.margin is not None and a.margin >= SURE_NATS for a in said[0].values())
        other.inject(CorruptedOutput())
        corrupted = {q.name: (await ask(engines, address, q)).answer for q in QUESTIONS}
    right = {name: answer.token for name, answer in said[0].items() if answer is not None}
    assert set(corrupted) == set(NAMES)
    assert all(answer is not None and answer.token != right[name] for name, answer in corrupted.items())
