"""The engine as a process with vLLM's command line: flags, signals, exit codes, the log."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from kintsugi.api.effective import pools_of
from kintsugi.api.spec import DeploymentSpec
from kintsugi.cli.simulate_engine import simulate_engine
from kintsugi.core.command.render import engine_command
from tests.unit.testing_engine.asking import PATHS, body, frames
from tests.unit.testing_engine.pages import samples

PROGRAM = "from kintsugi.cli.simulate_engine import simulate_engine; simulate_engine()"
START = 60.0  # seconds; a busy machine needs several to import


@dataclass(slots=True)
class Running:
    """A simulated engine in a process of its own."""

    process: asyncio.subprocess.Process
    url: str = ""
    admin: str = ""
    log: list[dict[str, Any]] = field(default_factory=list)

    async def read_until(self, event: str) -> dict[str, Any]:
        assert self.process.stdout
        while line := await asyncio.wait_for(self.process.stdout.readline(), START):
            self.log.append(json.loads(line))
            if self.log[-1]["event"] == event:
                return self.log[-1]
        raise AssertionError(f"the process ended without '{event}': {self.log}")

    async def ended(self) -> int:
        assert self.process.stdout
        while line := await asyncio.wait_for(self.process.stdout.readline(), START):
            self.log.append(json.loads(line))
        return await asyncio.wait_for(self.process.wait(), START)

    def events(self) -> list[str]:
        return [one["event"] for one in self.log]


@asynccontextmanager
async def started(*arguments: str, event: str = "ready", **environment: str) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        *arguments,
        *("--host", "127.0.0.1", "--port", "0", "--admin-host", "127.0.0.1", "--admin-port", "0"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    running = Running(process)
    try:
        entry = await running.read_until("starting")
        running.url, running.admin = entry["url"], entry["admin_url"]
        if event != "starting":
            await running.read_until(event)
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_command_of_a_vllm_pod_works_and_what_means_nothing_is_named(
    client: aiohttp.ClientSession,
) -> None:
    arguments = (
        *("--model", "deepseek-ai/DeepSeek-V4-Flash", "--served-model-name", "dsv4", "chat"),
        *("--tensor-parallel-size", "1", "--block-size", "256", "--kv-cache-dtype", "fp8"),
        *("--enable-expert-parallel", "--max_num_batched_tokens=8192", "--max-model-len", "64k"),
        *("--speculative-config", '{"method": "dspark", "num_speculative_tokens": 7}'),
    )
    async with started(*arguments) as engine:
        ignored = engine.log[0]
        assert ignored["event"] == "ignored"
        assert ignored["flags"][:3] == ["--kv-cache-dtype", "fp8", "--enable-expert-parallel"]
        async with client.get(engine.url + "/v1/models") as response:
            models = (await response.json())["data"]
        assert [one["id"] for one in models] == ["dsv4", "chat"]
        assert models[0]["max_model_len"] == 64_000
        async with client.get(engine.url + "/metrics") as response:
            page = await response.text()
        assert 'model_name="dsv4"' in page
        engine.process.send_signal(signal.SIGTERM)
        assert await engine.ended() == 0


async def test_sigterm_lets_running_streams_finish_and_refuses_new_ones(
    client: aiohttp.ClientSession,
) -> None:
    async with started("--served-model-name", "deepseek-v4", "--shutdown-timeout", "30") as engine:
        ask = body(PATHS[0], stream=True, max_tokens=60)
        held = await client.post(engine.url + PATHS[0], json=ask, headers={"X-Request-Id": "held"})
        await held.content.readline()
        engine.process.send_signal(signal.SIGTERM)
        await engine.read_until("terminating")
        assert engine.log[-1]["in_flight"] == ["held"]
        async with client.get(engine.url + "/health") as response:
            assert response.status == 200
        async with client.post(engine.url + PATHS[0], json=ask) as response:
            assert response.status == 500
            assert "after shutdown" in (await response.json())["error"]["message"]
        got = await frames(held)
        assert got[-1] == "[DONE]"
        assert got[-2]["choices"][0]["finish_reason"] == "length"
        assert await engine.ended() == 0
    assert engine.log[-1]["event"] == "stopped"
    assert engine.log[-1]["all_finished"] is True


async def test_sigterm_without_a_timeout_aborts_what_runs(client: aiohttp.ClientSession) -> None:
    async with started("--served-model-name", "deepseek-v4") as engine:
        held = await client.post(engine.url + PATHS[0], json=body(PATHS[0], stream=True, max_tokens=5000))
        await held.content.readline()
        engine.process.send_signal(signal.SIGTERM)
        got = await frames(held)
        assert got[-2]["choices"][0]["finish_reason"] == "abort"
        assert await engine.ended() == 0
    assert engine.log[-1]["all_finished"] is False


@pytest.mark.parametrize("fault", ["hangOnSigterm", "hang:afterSeconds=0.2"])
async def test_a_hung_engine_outlives_sigterm_until_its_client_leaves(
    client: aiohttp.ClientSession, fault: str
) -> None:
    async with started("--served-model-name", "deepseek-v4", "--fault", fault) as engine:
        held = await client.post(engine.url + PATHS[0], json=body(PATHS[0], stream=True, max_tokens=5000))
        await held.content.readline()
        if fault.startswith("hang:"):
            await engine.read_until("hung")
        engine.process.send_signal(signal.SIGTERM)
        await engine.read_until("terminating")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.process.wait(), 1.5)
        held.close()
        assert await engine.ended() == 0


@pytest.mark.parametrize("code", [0, 1])
async def test_a_crash_ends_the_process_with_its_exit_code(client: aiohttp.ClientSession, code: int) -> None:
    async with started("--served-model-name", "deepseek-v4") as engine:
        held = await client.post(engine.url + PATHS[0], json=body(PATHS[0], stream=True, max_tokens=5000))
        await held.content.readline()
        faults = engine.admin + "/simulator/faults"
        with pytest.raises(aiohttp.ClientError):
            await client.post(faults, json={"fault": "crash", "exitCode": code})
        assert await engine.ended() == code
        with pytest.raises(aiohttp.ClientError):
            await held.content.read()
        held.close()
    assert "crashed" in engine.events()


async def test_a_pod_template_can_begin_sick_by_its_environment(client: aiohttp.ClientSession) -> None:
    async with started(
        event="starting", KINTSUGI_SIMULATOR_FAULTS="slowStart=600 fragmentation=55"
    ) as engine:
        async with client.get(engine.admin + "/simulator/state") as response:
            named = {one["fault"] for one in (await response.json())["faults"]}
        assert named == {"slowStart", "fragmentation"}
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(engine.url + "/health")
        engine.process.send_signal(signal.SIGTERM)
        assert await engine.ended() == 0


async def test_the_step_time_is_what_was_asked_for(client: aiohttp.ClientSession) -> None:
    async with started("vllm", "serve", "m", "--step-ms", "5", "--step-noise", "0") as engine:
        ask = body(PATHS[0], model="m", max_tokens=50)
        async with client.post(engine.url + PATHS[0], json=ask) as response:
            assert response.status == 200
        async with client.get(engine.url + "/metrics") as response:
            page = samples(await response.text())
        mean = page["vllm:inter_token_latency_seconds_sum"] / page["vllm:inter_token_latency_seconds_count"]
        assert mean == pytest.approx(0.005, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-num-seqs", "abc"], "not a whole number"),
        (["--block-size", "0"], "greater than 0"),
        (["--fault", "hangs"], "'fault' must be one of"),
        (["--fault", "slowStart=-3"], "'seconds'"),
        (["--port", "70000"], "--port"),
    ],
)
def test_wrong_arguments_exit_with_2_and_say_why(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(simulate_engine, arguments)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(
    "model", ["deepseek-ai/DeepSeek-V4-Flash-0731", "deepseek-ai/DeepSeek-V4-Pro", "mine/own"]
)
def test_every_command_that_the_operator_renders_is_taken(model: str) -> None:
    document = {
        "model": {"id": model, "servedNames": ["a", "b"]},
        "engine": {
            "args": {
                "tensorParallelSize": 4,
                "dataParallelSize": 2,
                "enableExpertParallel": True,
                "blockSize": 256,
                "maxNumSeqs": 48,
                "maxNumBatchedTokens": 32768,
                "gpuMemoryUtilization": 0.9,
                "kvCacheDtype": "fp8",
                "enforceEager": False,
                "speculative": {"method": "DSpark", "numTokens": 7},
            },
            "extraArgs": ["--max_num_queued_reqs=9", "--attention_config.use_fp4_indexer_cache=True"],
        },
        "pools": [{"name": "short", "context": {"maxTokens": 8192}}],
    }
    spec = DeploymentSpec.model_validate(document)
    (pool,) = pools_of(spec)
    context = simulate_engine.make_context("simulate-engine", engine_command(spec, pool).words())
    taken = context.params
    assert taken["served_model_name"] == ("a", "b")
    assert (taken["tensor_parallel_size"], taken["data_parallel_size"]) == (4, 2)
    assert (taken["max_num_seqs"], taken["max_model_len"], taken["max_num_queued_reqs"]) == (48, 8192, 9)
    assert "--kv-cache-dtype" in context.args


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8192", 8192), ("8k", 8000), ("8K", 8192), ("1M", 2**20), ("auto", 2**20), ("-1", 2**20)],
)
def test_lengths_are_read_as_vllm_reads_them(text: str, tokens: int) -> None:
    context = simulate_engine.make_context("x", ["--max-model-len", text])
    assert context.params["max_model_len"] == tokens


def test_an_answers_file_that_holds_no_texts_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "answers.json"
    wrong.write_text('{"a": 1}')
    result = CliRunner().invoke(simulate_engine, ["--answers", str(wrong)])
    assert result.exit_code == 2
    assert "object of texts" in result.output
