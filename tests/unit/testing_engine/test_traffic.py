"""The load generator against simulated engines: what it counts as failed, and its report."""

import asyncio
import json
import re
import signal
import sys
from pathlib import Path

import pytest
from aiohttp import web

from kintsugi.testing.engine import ServerSettings, serve_engine
from kintsugi.testing.engine.faults import Crash, ErrorFrames, Hang, HttpErrors, SlowStart
from kintsugi.testing.traffic import Plan, Record, Target, Traffic, generate
from tests.unit.testing_engine.asking import FAST, eventually


def plan(url: str, rate: float = 40.0, **fields: object) -> Plan:
    return Plan(targets=(Target("short", url, rate),), **fields)  # type: ignore[arg-type]


async def test_a_well_engine_fails_nothing_and_every_id_reaches_it_once() -> None:
    records: list[Record] = []
    async with serve_engine(cost=FAST) as server:
        summary = await generate(plan(server.url), 1.5, on_record=records.append)
        accepted = [str(entry["request_id"]) for entry in server.journal.of("accepted")]
    assert (summary.failed, summary.unfinished, summary.in_flight) == (0, 0, 0)
    assert summary.succeeded == summary.requests == len(records) > 20
    assert sorted(accepted) == sorted(record.id for record in records)
    assert len(set(accepted)) == len(accepted)
    for record in records:
        assert (record.error, record.status, record.finish_reason) == ("", 200, "length")
        assert record.got == record.expected
        assert record.first_token is not None
        assert record.ended is not None
        assert record.started <= record.first_token <= record.ended


async def test_departures_do_not_wait_for_answers() -> None:
    async with serve_engine(faults=[Hang()]) as server:
        summary = await generate(plan(server.url, rate=50.0), 1.0, grace=0.1)
        assert len(server.journal.of("swallowed")) == summary.requests
    assert summary.requests > 20
    assert summary.unfinished == summary.requests
    assert (summary.succeeded, summary.in_flight) == (0, 0)


async def test_evenly_spaced_departures_are_as_many_as_the_rate_says() -> None:
    async with serve_engine(cost=FAST) as server:
        summary = await generate(plan(server.url, rate=20.0, poisson=False), 1.0)
    assert summary.requests == 19  # at 0.05, 0.10 ... 0.95 s


@pytest.mark.parametrize(
    ("fault", "words"),
    [(HttpErrors(percent=100, status=503), "HTTP 503"), (ErrorFrames(after_tokens=2), "error frame")],
)
async def test_errors_of_the_engine_are_failures(fault: HttpErrors | ErrorFrames, words: str) -> None:
    records: list[Record] = []
    async with serve_engine(cost=FAST, faults=[fault]) as server:
        summary = await generate(plan(server.url, 20.0), 0.5, on_record=records.append)
    assert summary.failed == summary.requests > 0
    assert summary.failed_by_target == {"short": summary.failed}
    assert all(record.error.startswith(words) for record in records)


async def test_a_stream_cut_by_a_crash_and_a_refused_connection_are_failures() -> None:
    records: list[Record] = []
    async with serve_engine() as server:
        traffic = Traffic(plan(server.url, 10.0, output_tokens=(500, 500)), records.append)
        running = asyncio.ensure_future(traffic.run(1.5))
        await eventually(lambda: traffic.summary.in_flight >= 3)
        server.inject(Crash())
        await server.ended()
        await asyncio.sleep(0.6)
        summary = await running
    assert summary.failed == summary.requests
    assert any("payload" in r.error.lower() or "disconnected" in r.error.lower() for r in records if r.status)
    assert any("ClientConnectorError" in r.error for r in records if r.status is None)


async def test_a_request_that_takes_too_long_is_a_failure() -> None:
    async with serve_engine(faults=[Hang()]) as server:
        summary = await generate(plan(server.url, 10.0, total_timeout=0.3), 0.5)
    assert summary.failed == summary.requests > 0


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (b'data: {"choices":[{"text":" a","finish_reason":null}]}\n\n', "truncated"),
        (b'data: {"choices":[{"text":" a","finish_reason":"stop"}]}\n\n', r"without \[DONE\]"),
        (b'data: {"choices":[{"text":" a","finish_reason":"abort"}]}\n\ndata: [DONE]\n\n', "ended by abort"),
        (b'data: {"choices":[{"text":" a","finish_reason":"length"}]}\n\ndata: [DONE]\n\n', "1 tokens of 20"),
        (b"data: {nonsense\n\n", "unreadable"),
    ],
)
async def test_a_stream_that_is_not_whole_is_a_failure(events: bytes, words: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=events, content_type="text/event-stream")

    application = web.Application()
    application.router.add_post("/v1/completions", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    records: list[Record] = []
    wanted = plan(f"http://{host}:{port}", 20.0, output_tokens=(20, 20))
    try:
        await generate(wanted, 0.3, on_record=records.append)
    finally:
        await runner.cleanup()
    assert records
    assert all(re.search(words, record.error) for record in records)


async def test_chat_a_key_and_several_targets_are_served() -> None:
    settings = ServerSettings(api_key="k")
    async with serve_engine(cost=FAST, settings=settings) as server:
        targets = (Target("short", server.url, 20.0), Target("long", server.url, 10.0))
        wanted = Plan(targets=targets, chat=True, api_key="k", model="deepseek-v4")
        records: list[Record] = []
        summary = await generate(wanted, 1.0, on_record=records.append)
    assert summary.failed == 0
    assert {record.target for record in records} == {"short", "long"}


async def test_above_the_limit_in_flight_departures_are_skipped_and_counted() -> None:
    async with serve_engine(faults=[Hang()]) as server:
        summary = await generate(plan(server.url, 50.0, max_in_flight=3), 0.6, grace=0.0)
    assert summary.requests == 3
    assert summary.skipped > 5


@pytest.mark.parametrize("bad", [("127.0.0.1:80", 1.0), ("http://127.0.0.1", 0.0)])
def test_a_target_that_makes_no_sense_is_refused(bad: tuple[str, float]) -> None:
    with pytest.raises(ValueError, match="target 'short'"):
        Target("short", *bad)


async def test_the_process_reports_each_record_as_it_ends_and_stops_on_sigterm(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    async with serve_engine(cost=FAST) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kintsugi.testing.traffic", "--target", f"short={server.url}"),
            *(
                "--rate",
                "short=20",
                "--duration",
                "120",
                "--report",
                str(report),
                "--progress-seconds",
                "0.2",
            ),
        )
        try:
            await eventually(lambda: report.exists() and report.read_text().count('"request"') > 5, 60.0)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 30.0) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    requests = [line for line in lines if line["type"] == "request"]
    assert any(line["type"] == "progress" for line in lines)
    assert lines[-1]["type"] == "summary"
    assert lines[-1]["requests"] == lines[-1]["succeeded"] == len(requests)


async def test_the_process_exits_with_1_when_a_request_failed() -> None:
    async with serve_engine(faults=[SlowStart(seconds=60)]) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kintsugi.testing.traffic", "--target", f"short={server.url}"),
            *("--rate", "20", "--duration", "0.5"),
            stdout=asyncio.subprocess.DEVNULL,
        )
        assert await asyncio.wait_for(process.wait(), 60.0) == 1
