"""Each fault as a client sees it: over HTTP, on loopback, in real time."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from kintsugi.testing.engine import EngineServer, Fault, StepCost, serve_engine
from kintsugi.testing.engine.faults import (
    CorruptedOutput,
    Crash,
    EngineDead,
    ErrorFrames,
    Hang,
    HttpErrors,
    MemoryGrowth,
    MetricsError,
    MetricsTimeout,
    SilentServer,
    SlowStart,
    ThroughputDrop,
)
from tests.unit.testing_engine.asking import FAST, PATHS, body, eventually, frames, until
from tests.unit.testing_engine.pages import samples

BRIEF = aiohttp.ClientTimeout(total=0.4)


async def status_of(client: aiohttp.ClientSession, url: str) -> int:
    async with client.get(url) as response:
        return response.status


async def complete(client: aiohttp.ClientSession, server: EngineServer, **fields: Any) -> tuple[int, Any]:
    async with client.post(server.url + PATHS[0], json=body(PATHS[0], **fields)) as response:
        return response.status, await response.json()


async def test_a_hang_keeps_health_and_metrics_at_200_while_requests_are_swallowed(
    client: aiohttp.ClientSession,
) -> None:
    async with serve_engine(cost=FAST) as server:
        assert (await complete(client, server))[0] == 200
        held = await client.post(
            server.url + PATHS[0],
            json=body(PATHS[0], stream=True, max_tokens=3000),
            headers={"X-Request-Id": "held"},
        )
        await held.content.readline()
        server.inject(Hang())
        (hung,) = server.journal.of("hung")
        assert hung["in_flight"] == ["held"]
        before = samples(server.live.page())
        for number in range(2):
            headers = {"X-Request-Id": f"kintsugi-canary-0-{number}"}
            with pytest.raises(TimeoutError):
                await client.post(
                    server.url + PATHS[0], json=body(PATHS[0], max_tokens=1), headers=headers, timeout=BRIEF
                )
        assert await status_of(client, server.url + "/health") == 200
        async with client.get(server.url + "/metrics", timeout=aiohttp.ClientTimeout(total=5)) as response:
            after = samples(await response.text())
        assert {k: v for k, v in after.items() if k.startswith("vllm:")} == {
            k: v for k, v in before.items() if k.startswith("vllm:")
        }
        assert after["vllm:num_requests_running"] == 1.0
        swallowed = server.journal.of("swallowed")
        assert [one["request_id"] for one in swallowed] == ["kintsugi-canary-0-0", "kintsugi-canary-0-1"]
        assert all(one["canary"] for one in swallowed)
        server.clear("hang")
        got = await frames(held)  # the stream goes on whole
        assert got[-1] == "[DONE]"
        assert got[-2]["choices"][0]["finish_reason"] == "length"


async def test_a_request_sent_into_a_hang_is_answered_when_it_ends(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST, faults=[Hang()]) as server:
        waiting = asyncio.ensure_future(complete(client, server))
        await until(server, "swallowed")
        server.clear()
        assert (await waiting)[0] == 200


async def test_a_throughput_drop_shows_in_the_time_between_tokens(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST) as server:
        server.inject(ThroughputDrop(percent=75))
        await complete(client, server, max_tokens=40)
        page = samples(server.live.page())
    mean = page["vllm:inter_token_latency_seconds_sum"] / page["vllm:inter_token_latency_seconds_count"]
    assert mean == pytest.approx(0.008, rel=0.05)


async def test_http_errors_hit_their_share_and_nothing_runs_for_them(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST, seed=3) as server:
        server.inject(HttpErrors(percent=50, status=502))
        got = [(await complete(client, server, max_tokens=1))[0] for _ in range(60)]
        page = samples(server.live.page())
    assert 15 <= got.count(502) <= 45
    assert got.count(200) + got.count(502) == 60
    assert page["vllm:request_success_total|finished_reason=length"] == got.count(200)
    assert page["http_requests_total|handler=/v1/completions|method=POST|status=5xx"] == got.count(502)


async def test_error_frames_end_a_200_stream_and_count_as_errors(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST) as server:
        server.inject(ErrorFrames(after_tokens=3))
        async with client.post(server.url + PATHS[0], json=body(PATHS[0], stream=True)) as response:
            assert response.status == 200
            got = await frames(response)
        assert got[-1] == "[DONE]"
        assert got[-2]["error"]["code"] == 500
        text = "".join(frame["choices"][0]["text"] for frame in got[:-2])
        assert len(text.split()) == 3
        assert (await complete(client, server))[0] == 500
        await until(server, "failed", 2)
        page = samples(server.live.page())
    assert page["vllm:request_success_total|finished_reason=error"] == 2
    assert page["http_requests_total|handler=/v1/completions|method=POST|status=2xx"] == 1
    assert page["http_requests_total|handler=/v1/completions|method=POST|status=5xx"] == 1


async def test_corrupted_output_differs_from_a_well_engines_answer(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST) as server:
        well = (await complete(client, server))[1]["choices"][0]["text"]
        server.inject(CorruptedOutput())
        sick = (await complete(client, server))[1]["choices"][0]["text"]
    assert well.split()[0] != sick.split()[0]


async def test_metrics_can_fail_while_inference_works(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST) as server:
        server.inject(MetricsError(status=500))
        assert await status_of(client, server.url + "/metrics") == 500
        assert await status_of(client, server.url + "/health") == 200
        assert (await complete(client, server))[0] == 200
        server.clear()
        assert await status_of(client, server.url + "/metrics") == 200


async def test_metrics_can_stay_silent_while_inference_works(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST) as server:
        server.inject(MetricsTimeout())
        with pytest.raises(TimeoutError):
            await client.get(server.url + "/metrics", timeout=BRIEF)
        assert (await complete(client, server))[0] == 200


async def test_a_silent_server_takes_connections_and_answers_nothing_while_steps_go_on(
    client: aiohttp.ClientSession,
) -> None:
    async with serve_engine(cost=FAST) as server:
        held = await client.post(server.url + PATHS[0], json=body(PATHS[0], stream=True, max_tokens=800))
        await held.content.readline()
        server.inject(SilentServer())
        steps = server.engine.counters[0].steps
        for path in ("/health", "/metrics", "/v1/models"):
            with pytest.raises(TimeoutError):
                await client.get(server.url + path, timeout=BRIEF)
        host, port = server.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        assert server.engine.counters[0].steps > steps + 100
        server.clear()
        assert (await frames(held))[-1] == "[DONE]"
        assert await status_of(client, server.url + "/health") == 200


async def test_a_slow_start_refuses_connections_and_then_serves(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST, faults=[SlowStart(seconds=0.5)]) as server:
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(server.url + "/health")
        assert await status_of(client, server.admin_url + "/simulator/state") == 200
        await until(server, "ready")
        assert (await complete(client, server))[0] == 200


async def test_a_slow_start_with_an_open_port_answers_503(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST, faults=[SlowStart(seconds=9, port_open=True)]) as server:
        assert await status_of(client, server.url + "/health") == 503
        server.clear()
        assert await status_of(client, server.url + "/health") == 200


async def test_a_slow_start_with_an_open_port_ends_by_itself(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST, faults=[SlowStart(seconds=0.3, port_open=True)]) as server:
        assert await status_of(client, server.url + "/health") == 503
        await asyncio.sleep(0.5)
        assert await status_of(client, server.url + "/health") == 200


async def test_a_dead_engine_behind_a_living_server_fails_requests_and_health_alone(
    client: aiohttp.ClientSession,
) -> None:
    async with serve_engine(cost=FAST) as server:
        held = await client.post(server.url + PATHS[0], json=body(PATHS[0], stream=True, max_tokens=3000))
        await held.content.readline()
        server.inject(EngineDead())
        got = await frames(held)
        assert got[-2]["error"]["code"] == 500
        assert await status_of(client, server.url + "/health") == 503
        assert await status_of(client, server.url + "/metrics") == 200
        assert (await complete(client, server))[0] == 500


async def test_a_crash_cuts_streams_and_closes_the_port(client: aiohttp.ClientSession) -> None:
    async with serve_engine() as server:
        held = await client.post(server.url + PATHS[0], json=body(PATHS[0], stream=True, max_tokens=3000))
        await held.content.readline()
        server.inject(Crash(exit_code=1))
        with pytest.raises(aiohttp.ClientError):
            await held.content.read()
        held.close()
        await server.ended()
        assert server.exit_code == 1
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(server.url + "/health")


async def test_memory_growth_can_take_real_memory_and_gives_it_back() -> None:
    async with serve_engine() as server:
        server.inject(MemoryGrowth(bytes_per_second=2e6, allocate=True, most_bytes=1.5e6))
        await eventually(lambda: server.live.ballast.size == 1_500_000)
        server.clear()
        assert server.live.ballast.size == 0


async def test_a_fault_with_a_time_ends_without_any_request(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST) as server:
        server.inject(Hang(for_seconds=0.4))
        assert (await complete(client, server))[0] == 200


# -- the admin port ----------------------------------------------------------------------------------------------


async def test_faults_are_switched_and_seen_on_the_admin_port(client: aiohttp.ClientSession) -> None:
    async with serve_engine(cost=FAST) as server:
        faults = server.admin_url + "/simulator/faults"
        async with client.post(faults, json={"fault": "hang"}) as response:
            assert (await response.json())["ranks"][0]["hung"] is True
        async with client.post(faults, json={"fault": "fragmentation", "percent": 60}) as response:
            named = {one["fault"]: one for one in (await response.json())["faults"]}
        assert named["fragmentation"]["percent"] == 60
        async with client.delete(faults + "/hang") as response:
            assert await response.json() == {"cleared": ["hang"]}
        async with client.delete(faults) as response:
            assert await response.json() == {"cleared": ["fragmentation"]}
        async with client.get(server.admin_url + "/simulator/state") as response:
            state = await response.json()
        assert state["faults"] == []
        assert state["inFlight"] == []
        async with client.post(server.admin_url + "/simulator/compact") as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ('{"fault": "hang", "rank": "x"}', "'rank'"),
        ('{"fault": "no"}', "'fault' must be one of"),
        ("{", "not JSON"),
    ],
)
async def test_a_wrong_fault_is_refused_naming_the_field(
    client: aiohttp.ClientSession, sent: str, words: str
) -> None:
    async with serve_engine() as server:
        async with client.post(server.admin_url + "/simulator/faults", data=sent) as response:
            assert response.status == 400
            assert words in (await response.json())["error"]
        async with client.delete(server.admin_url + "/simulator/faults/no") as response:
            assert response.status == 404


async def test_the_api_port_knows_no_fault_paths_and_the_admin_port_no_api(
    client: aiohttp.ClientSession,
) -> None:
    async with serve_engine() as server:
        assert await status_of(client, server.url + "/simulator/state") == 404
        assert await status_of(client, server.admin_url + "/metrics") == 404


def test_documents_of_faults_are_json() -> None:
    fault: Fault = Hang(rank=1)
    assert json.loads(json.dumps(fault.document())) == {"fault": "hang", "afterSeconds": 0.0, "rank": 1}
    assert StepCost().mean(1) == pytest.approx(0.0222)
