"""Starts that the simulated engine ends as vLLM does: unknown flags, and adapters that are not there."""

import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from kintsugi.core.classify import StartFacts, classify
from kintsugi.testing.engine import serve_engine
from kintsugi.testing.engine.adapters import AdapterError, load, read_adapters
from kintsugi.testing.engine.faults import ForgottenAdapters
from kintsugi.testing.engine.settings import ServerSettings


def started(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kintsugi", "simulate-engine", "--port=0", "--admin-port=0", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_flag_that_its_version_does_not_know_ends_it_with_2_where_that_is_asked() -> None:
    done = started("--only-known-flags", "--max-num-seqs=8", "--trust-remote-code", "--disable-log-requests")
    assert done.returncode == 2
    found = classify(
        StartFacts(exit_code=2, waiting_reason="CrashLoopBackOff", log=tuple(done.stderr.splitlines()))
    )
    assert found is not None
    assert (found.kind, found.field) == ("ConfigInvalid", "spec.engine.extraArgs")
    assert "--disable-log-requests" in found.reason
    assert "--trust-remote-code" not in found.reason


def test_an_adapter_that_is_not_there_ends_the_start_and_is_named(tmp_path: Path) -> None:
    done = started(f"--lora-modules=tax={tmp_path}/tax")
    assert done.returncode == 1
    found = classify(
        StartFacts(exit_code=1, waiting_reason="CrashLoopBackOff", log=tuple(done.stderr.splitlines()))
    )
    assert found is not None
    assert (found.kind, found.field) == ("AdapterFailed", "spec.model.loraAdapters")
    assert "tax" in found.reason


def test_adapters_are_read_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    adapters = read_adapters([f"a={tmp_path}", f'{{"name": "b", "path": "{tmp_path}"}}', "c=org/hub"])
    assert [adapter.name for adapter in adapters] == ["a", "b", "c"]
    load(adapters)


@pytest.mark.parametrize("module", ["tax", "=x", "tax=", "{", '{"name": "x"}', "[]"])
def test_what_is_no_adapter_is_refused(module: str) -> None:
    with pytest.raises(AdapterError):
        read_adapters([module])


async def test_adapters_are_listed_and_served_until_they_are_forgotten(client: aiohttp.ClientSession) -> None:
    async with serve_engine(settings=ServerSettings(adapters=("tax",))) as server:

        async def listed() -> list[str]:
            async with client.get(f"{server.url}/v1/models") as response:
                return [model["id"] for model in (await response.json())["data"]]

        assert "tax" in await listed()
        body = {"model": "tax", "prompt": "hello", "max_tokens": 1}
        async with client.post(f"{server.url}/v1/completions", json=body) as response:
            assert response.status == 200
        server.inject(ForgottenAdapters())
        assert "tax" not in await listed()
