"""The engine over HTTP: the protocol, streams, aborts, keys, limits; on loopback, in real time."""

import asyncio
import time
from typing import Any

import aiohttp
import pytest

from kintsugi.testing.engine import EngineShape, ServerSettings, StepCost, serve_engine
from tests.unit.testing_engine.asking import FAST, PATHS, body, eventually, frames, until
from tests.unit.testing_engine.pages import samples


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_gives_each_token_a_reason_the_usage_and_done(
    client: aiohttp.ClientSession, path: str
) -> None:
    async with serve_engine(cost=FAST) as server:
        ask = body(path, stream=True, stream_options={"include_usage": True})
        async with client.post(server.url + path, json=ask, headers={"X-Request-Id": "r-1"}) as response:
            assert response.status == 200
            assert response.headers["X-Request-Id"] == "r-1"
            assert response.content_type == "text/event-stream"
            got = await frames(response)
    assert got[-1] == "[DONE]"
    assert got[-2]["usage"]["completion_tokens"] == 8
    choices = [frame["choices"][0] for frame in got[:-2]]
    text = "".join(c["delta"].get("content", "") if "chat" in path else c["text"] for c in choices)
    assert len(text.split()) == 8
    assert [c["finish_reason"] for c in choices][-1] == "length"
    assert all(c["finish_reason"] is None for c in choices[:-1])
    assert got[0]["id"].endswith("-r-1")


@pytest.mark.parametrize("path", PATHS)
async def test_a_whole_answer_equals_the_stream_and_repeats_for_the_same_prompt(
    client: aiohttp.ClientSession, path: str
) -> None:
    async with serve_engine(cost=FAST) as server:
        texts = []
        for stream in (False, True, False):
            async with client.post(server.url + path, json=body(path, stream=stream)) as response:
                if stream:
                    parts = [f["choices"][0] for f in await frames(response) if f != "[DONE]"]
                    texts.append(
                        "".join(p["delta"].get("content", "") if "chat" in path else p["text"] for p in parts)
                    )
                else:
                    answer = await response.json()
                    assert answer["usage"]["completion_tokens"] == 8
                    choice = answer["choices"][0]
                    texts.append(choice["message"]["content"] if "chat" in path else choice["text"])
    assert texts[0] == texts[1] == texts[2]


async def test_tokens_arrive_while_they_are_made(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=StepCost(noise_sigma=0.0)) as server:
        ask = body(PATHS[0], stream=True, max_tokens=20)
        loop = asyncio.get_running_loop()
        async with client.post(server.url + PATHS[0], json=ask) as response:
            times = [loop.time() async for line in response.content if line.startswith(b"data: {")]
    assert times[-1] - times[0] > 0.3  # 19 steps of 22 ms


async def test_the_page_counts_what_was_served(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST) as server:
        for _ in range(3):
            async with client.post(server.url + PATHS[0], json=body(PATHS[0])) as response:
                assert response.status == 200
        async with client.post(server.url + PATHS[0], json={"prompt": ""}) as response:
            assert response.status == 400
        async with client.get(server.url + "/metrics") as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            page = samples(await response.text())
    assert page["vllm:generation_tokens_total"] == 24
    assert page["vllm:request_success_total|finished_reason=length"] == 3
    assert page["http_requests_total|handler=/v1/completions|method=POST|status=2xx"] == 3
    assert page["http_requests_total|handler=/v1/completions|method=POST|status=4xx"] == 1
    latency = page["vllm:inter_token_latency_seconds_sum"] / page["vllm:inter_token_latency_seconds_count"]
    assert latency == pytest.approx(0.002, rel=0.05)


async def test_a_client_that_disconnects_aborts_its_request(client: aiohttp.ClientSession) -> None:
    async with serve_engine() as server:
        ask = body(PATHS[0], stream=True, max_tokens=5000)
        response = await client.post(server.url + PATHS[0], json=ask, headers={"X-Request-Id": "gone"})
        await response.content.readline()
        assert server.engine.in_flight == 1
        response.close()
        (entry,) = await until(server, "aborted")
        assert entry["request_id"] == "gone"
        await eventually(lambda: server.engine.counters[0].running == 0)
    assert server.engine.in_flight == 0
    assert server.engine.counters[0].finished == dict.fromkeys(server.engine.counters[0].finished, 0)


async def test_the_journal_accounts_for_every_request_and_marks_canaries(
    client: aiohttp.ClientSession,
) -> None:
    async with serve_engine(cost=FAST) as server:
        for request_id in ("user-1", "kintsugi-canary-0-1"):
            headers = {"X-Request-Id": request_id}
            async with client.post(server.url + PATHS[0], json=body(PATHS[0]), headers=headers) as response:
                assert response.status == 200
        for event in ("accepted", "finished"):
            plain, canary = await until(server, event, 2)
            assert (plain["request_id"], "canary" in plain) == ("user-1", False)
            assert (canary["request_id"], canary["canary"]) == ("kintsugi-canary-0-1", True)


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"model": "other"}, 404, "does not exist"),
        ({"prompt": []}, 400, "prompt"),
        ({"prompt": 7}, 400, "prompt"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": 600}, 400, "maximum context length is 512"),
        ({"model": 3}, 400, "model"),
    ],
)
async def test_a_wrong_request_is_told_why(
    client: aiohttp.ClientSession, fields: dict[str, Any], status: int, words: str
) -> None:
    async with (
        serve_engine(shape=EngineShape(max_model_len=512)) as server,
        client.post(server.url + PATHS[0], json=body(PATHS[0], **fields)) as response,
    ):
        assert response.status == status
        error = (await response.json())["error"]
    assert words in error["message"]
    assert error["code"] == status


async def test_a_body_that_is_not_json_and_messages_that_are_none_are_refused(
    client: aiohttp.ClientSession,
) -> None:
    async with serve_engine() as server:
        async with client.post(server.url + PATHS[0], data=b"{") as response:
            assert response.status == 400
        async with client.post(server.url + PATHS[1], json={"messages": [{"content": "x"}]}) as response:
            assert response.status == 400


async def test_the_key_is_asked_for_on_v1_alone(client: aiohttp.ClientSession) -> None:
    settings = ServerSettings(api_key="secret")
    async with serve_engine(cost=FAST, settings=settings) as server:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer no"}, 401),
            ({"Authorization": "Bearer secret"}, 200),
        ):
            async with client.post(server.url + PATHS[0], json=body(PATHS[0]), headers=headers) as response:
                assert response.status == status
        for path in ("/health", "/metrics", "/version"):
            async with client.get(server.url + path) as response:
                assert response.status == 200


async def test_models_and_version_are_told(client: aiohttp.ClientSession) -> None:
    settings = ServerSettings(served_names=("other",))
    async with serve_engine(model_name="dsv4", settings=settings) as server:
        async with client.get(server.url + "/v1/models") as response:
            models = (await response.json())["data"]
        async with client.get(server.url + "/version") as response:
            version = (await response.json())["version"]
    assert [model["id"] for model in models] == ["dsv4", "other"]
    assert version.count(".") == 2


async def test_a_repeated_long_prompt_hits_the_prefix_cache_in_whole_blocks(
    client: aiohttp.ClientSession,
) -> None:
    shape = EngineShape(block_size=32)
    async with serve_engine(cost=FAST, shape=shape) as server:
        cached = []
        for _ in range(2):
            ask = body(
                PATHS[0], prompt="a bowl in pieces " * 40
            )  # 680 bytes = 170 tokens = 5 blocks and a rest
            async with client.post(server.url + PATHS[0], json=ask) as response:
                details = (await response.json())["usage"]["prompt_tokens_details"]
                cached.append(details["cached_tokens"] if details else 0)
    assert cached == [0, 160]
    assert server.engine.counters[0].prefix_hits == 160


async def test_a_prompt_of_token_ids_counts_as_many_tokens(client: aiohttp.ClientSession) -> None:
    async with (
        serve_engine(cost=FAST) as server,
        client.post(server.url + PATHS[0], json=body(PATHS[0], prompt=[1, 2, 3])) as response,
    ):
        assert (await response.json())["usage"]["prompt_tokens"] == 3


async def test_known_answers_are_given(client: aiohttp.ClientSession) -> None:
    settings = ServerSettings(answers={"2 + 2 =": "4"})
    async with serve_engine(cost=FAST, settings=settings) as server:
        ask = body(PATHS[0], prompt="Say what 2 + 2 = ", max_tokens=1)
        async with client.post(server.url + PATHS[0], json=ask) as response:
            assert (await response.json())["choices"][0]["text"] == " 4"


async def test_without_a_limit_the_model_stops_by_itself(client: aiohttp.ClientSession) -> None:
    settings = ServerSettings(natural_tokens=12)
    async with serve_engine(cost=FAST, settings=settings) as server:
        ask = body(PATHS[1])
        del ask["max_tokens"]
        async with client.post(server.url + PATHS[1], json=ask) as response:
            answer = await response.json()
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["choices"][0]["finish_reason"] == "stop"


async def test_a_full_queue_refuses_with_503_and_counts_it(client: aiohttp.ClientSession) -> None:
    shape = EngineShape(max_num_queued_reqs=2)
    async with serve_engine(shape=shape) as server:
        ask = body(PATHS[0], stream=True, max_tokens=500)
        held = [await client.post(server.url + PATHS[0], json=ask) for _ in range(2)]
        async with client.post(server.url + PATHS[0], json=ask) as response:
            assert response.status == 503
        page = samples(server.live.page())
        assert page["vllm:admission_rejections_total|reason=max_num_queued_reqs"] == 1
        for one in held:
            one.close()


async def test_the_rank_header_chooses_the_rank(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST, ranks=2) as server:
        for rank, status in (("1", 200), ("1", 200), ("2", 400), ("x", 400)):
            headers = {"X-data-parallel-rank": rank}
            async with client.post(server.url + PATHS[0], json=body(PATHS[0]), headers=headers) as response:
                assert response.status == status
    assert [c.finished["length"] for c in server.engine.counters] == [0, 2]


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with serve_engine() as server:
        port = int(server.url.rsplit(":", 1)[1])
        with pytest.raises(OSError, match="in use"):
            async with serve_engine(settings=ServerSettings(port=port)):
                pass


async def test_a_request_that_ends_while_another_is_handled_late_is_still_answered() -> None:
    # A busy event loop fires the step timer late; whoever calls into the engine first then runs the step.
    async with serve_engine(cost=FAST) as server:
        first, second = (server.live.submit(f"r{n}", 4, 2, 2, 0, None) for n in range(2))
        waiting = asyncio.ensure_future(server.live.further(second))
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251 - the loop must not get the chance to tick
        server.live.done_with(first)
        assert server.engine.wake_at is None
        assert await asyncio.wait_for(waiting, 5.0) == (2, "length")
