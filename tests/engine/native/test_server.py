"""The native server as clients, the kubelet and the operator meet it."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from kintsugi.core.page import PageReader
from kintsugi.core.sample import sample_of
from kintsugi.core.series import EXPECTED
from tests.engine.native.served import Served, until

pytestmark = pytest.mark.timeout(400)
GREEDY = {"model": "tiny", "temperature": 0, "ignore_eos": True}


def body(prompt: Any, tokens: int, **more: Any) -> dict[str, Any]:
    return {**GREEDY, "prompt": prompt, "max_tokens": tokens, **more}


async def streamed(
    session: aiohttp.ClientSession, server: Served, asked: dict[str, Any], leave_after: int = 0
) -> tuple[int, str, str]:
    """(status, text, finish reason) of a stream; left in its middle after so many frames."""
    text, finish, frames = "", "", 0
    async with session.post(server.url("/v1/completions"), json=asked | {"stream": True}) as answer:
        if answer.status != 200:
            return answer.status, "", ""
        async for line in answer.content:
            if not line.startswith(b"data: ") or line == b"data: [DONE]\n":
                continue
            choice = json.loads(line[6:])["choices"][0]
            text, finish, frames = text + choice["text"], choice["finish_reason"] or "", frames + 1
            if leave_after and frames == leave_after:
                break
    return 200, text, finish


async def test_fifty_streams_at_once_are_answered_and_one_that_leaves_frees_its_slot(server: Served) -> None:
    alone = [
        server.post("/v1/completions", body("x" * size, 12))[1]["choices"][0]["text"] for size in (3, 90)
    ]
    before = server.page()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        leaver = asyncio.create_task(streamed(session, server, body("y" * 40, 3000), leave_after=5))
        others = [
            asyncio.create_task(streamed(session, server, body("x" * (3, 90)[number % 2], 12)))
            for number in range(49)
        ]
        ended = await asyncio.gather(*others)
        assert (await leaver)[2] == ""
    assert {(status, finish) for status, _, finish in ended} == {(200, "length")}
    assert {text for _, text, _ in ended[0::2]} == {alone[0]}
    assert {text for _, text, _ in ended[1::2]} == {alone[1]}
    await asyncio.to_thread(
        until, lambda: server.sum("vllm:num_requests_running") == 0, 30, "the slot is free"
    )
    after = server.page()
    key = 'vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}'
    assert after[key] - before[key] == 49
    assert server.sum("kintsugi_kv_orphaned_blocks") == 0
    assert server.sum("vllm:kv_cache_usage_perc") == 0


async def test_more_requests_than_may_wait_are_refused_with_503(server: Served) -> None:
    refused = server.sum("vllm:admission_rejections_total")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks = [asyncio.create_task(streamed(session, server, body("z", 400))) for _ in range(80)]
        await asyncio.sleep(0)
        done, _ = await asyncio.wait(tasks, timeout=20)
        statuses = [task.result()[0] for task in done]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert statuses.count(503) == 80 - 56
    assert server.sum("vllm:admission_rejections_total") - refused == 80 - 56
    await asyncio.to_thread(until, lambda: server.sum("vllm:num_requests_running") == 0, 60, "all are gone")
    assert server.sum("vllm:num_requests_waiting") == 0


def test_the_operator_reads_its_page_as_one_of_vllms(server: Served) -> None:
    server.post("/v1/completions", body("hello", 3))
    values = PageReader().read(server.get("/metrics")[1])
    assert values.recognised
    assert values.garbage == 0
    assert {target.signal for target in values.numbers} >= EXPECTED
    sample = sample_of(values.numbers, 0.0)
    rank = sample.rank("0")
    assert rank is not None
    assert (rank.running, rank.waiting, rank.kv_usage, rank.awake, rank.failed) == (0, 0, 0, 1, 0)
    assert rank.steps is not None
    assert rank.mixed_prefill is not None
    assert (rank.count_age or 99.0) < 10
    assert server.sum("kintsugi_prefill_tokens") == rank.prompt_tokens
    assert sample.max_concurrency == 12
    assert sample.http_good is not None


def test_series_of_a_gpu_are_absent_without_one(server: Served) -> None:
    page = server.page()
    assert not [series for series in page if series.startswith("kintsugi_gpu_")]
    assert page['kintsugi_native_slots{engine="0",rank="pool"}'] == 12
    size = page['kintsugi_native_slot_bytes{engine="0",rank="pool"}']
    assert f"12 slots of 4096 tokens, {size:.0f} bytes each" in server.log.read_text()


def test_a_canary_of_token_ids_is_answered(server: Served) -> None:
    asked = {"prompt": [11, 12, 13, 14], "max_tokens": 1, "temperature": 0, "stream": False, "priority": -100}
    status, answer = server.post("/v1/completions", asked, **{"X-Request-Id": "kintsugi-canary-0-x"})
    assert (status, answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]) == (
        200,
        "length",
        1,
    )


def test_a_chat_is_answered_whole_and_streamed_alike(server: Served) -> None:
    asked = {**GREEDY, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 6}
    status, whole = server.post("/v1/chat/completions", asked)
    assert (status, whole["object"]) == (200, "chat.completion")
    assert whole["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert whole["choices"][0]["message"]["role"] == "assistant"


def test_a_stop_ends_the_answer_before_its_text(server: Served) -> None:
    text = server.post("/v1/completions", body("abc", 40))[1]["choices"][0]["text"]
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    ended = 'vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"}'
    before = server.page()[ended]
    choice = server.post("/v1/completions", body("abc", 40, stop=[stop]))[1]["choices"][0]
    assert server.page()[ended] == before + 1
    assert choice["finish_reason"] == "stop"
    assert choice["text"] == text[: text.index(stop)]


def test_the_same_seed_draws_the_same_text_and_another_one_another(server: Served) -> None:
    def drawn(seed: int) -> str:
        asked = body("abc", 20, temperature=1.0, top_p=0.9, top_k=50, seed=seed)
        return str(server.post("/v1/completions", asked)[1]["choices"][0]["text"])

    assert drawn(1) == drawn(1) != drawn(2)


def test_log_probabilities_come_with_the_tokens_that_were_likeliest(server: Served) -> None:
    told = server.post("/v1/completions", body("abc", 3, logprobs=2))[1]["choices"][0]["logprobs"]
    assert len(told["tokens"]) == len(told["token_logprobs"]) == 3
    assert all(
        max(top.values()) == value
        for top, value in zip(told["top_logprobs"], told["token_logprobs"], strict=True)
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"prompt": "a" * 4096, "max_tokens": 1}, "a slot holds 4096"),
        ({"prompt": "a", "max_tokens": 4096}, "room for 4095 more tokens"),
        ({"prompt": "a", "tools": [{"type": "function"}]}, "tools: the native runtime can't do this"),
        ({"prompt": [320], "max_tokens": 1}, "token ids below 320"),
        ({"prompt": "a", "temperature": -1}, "temperature: -1 is no number from 0 to 100"),
        ({"max_tokens": 1}, "prompt: must be a text"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(server: Served, asked: dict[str, Any], said: str) -> None:
    status, answer = server.post("/v1/completions", asked)
    assert status == 400
    assert said in answer["error"]["message"]


def test_an_unknown_model_is_404_and_the_known_one_is_listed(server: Served) -> None:
    assert server.post("/v1/completions", {"model": "other", "prompt": "a"})[0] == 404
    listed = json.loads(server.get("/v1/models")[1])["data"]
    assert [(each["id"], each["max_model_len"]) for each in listed] == [("tiny", 4096)]


def test_compaction_has_no_rank_to_speak_of_without_a_gpu(server: Served) -> None:
    assert server.post("/kintsugi/compact", {}) == (200, {"ranks": []})
    assert server.get("/kintsugi/compact")[0] == 405
