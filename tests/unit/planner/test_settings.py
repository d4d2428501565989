import json

import pytest

from kintsugi.core.command.argument import Command
from kintsugi.core.command.read import read_words
from kintsugi.core.planner.settings import Settings, read_settings


def settings(*words: str) -> Settings:
    return read_settings(Command(read_words(words, lambda index: f"spec.engine.extraArgs[{index}]")))


def test_sizes_are_read_as_the_engine_reads_them_and_the_last_one_counts() -> None:
    made = settings("-tp", "4", "--data_parallel_size=2", "-pp=2", "--tensor-parallel-size", "8")
    assert (made.tensor_parallel, made.pipeline_parallel, made.data_parallel) == (8, 2, 2)
    assert made.gpus == 32
    assert made.layout == "TP8 x PP2 x DP2"


@pytest.mark.parametrize(("word", "tokens"), [("8192", 8192), ("8k", 8000), ("8K", 8192), ("1M", 2**20)])
def test_lengths_take_units(word: str, tokens: int) -> None:
    assert settings("--max-model-len", word).max_model_len == tokens


@pytest.mark.parametrize("word", ["auto", "-1"])
def test_a_context_that_the_engine_chooses_is_no_number(word: str) -> None:
    made = settings("--max-model-len", word)
    assert made.max_model_len is None


@pytest.mark.parametrize(
    "words",
    [
        ("--attention_config.use_fp4_indexer_cache=True",),
        ("--attention_config.use_fp4_indexer_cache", "True"),
        ("--attention-config", '{"use_fp4_indexer_cache": true}'),
        ("--attention-config.indexer_kv_dtype", "mxfp4"),
        ("-ac", '{"indexer_kv_dtype": "mxfp4"}'),
    ],
)
def test_the_fp4_indexer_cache_is_seen_however_it_is_written(words: tuple[str, ...]) -> None:
    assert settings(*words).fp4_indexer


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--attention_config.use_fp4_indexer_cache=False",),
        ("--attention-config", "{"),
        ("--attention-config",),
    ],
)
def test_no_fp4_indexer_cache_otherwise(words: tuple[str, ...]) -> None:
    assert not settings(*words).fp4_indexer


@pytest.mark.parametrize(
    ("words", "size"),
    [
        (("--kv-offloading-size", "32"), 32 * 2**30),
        (
            ("--kv-transfer-config", json.dumps({"kv_connector_extra_config": {"cpu_bytes_to_use": 10**9}})),
            10**9,
        ),
        (
            (
                "-tp",
                "4",
                "--kv-transfer-config",
                json.dumps({"kv_connector_extra_config": {"cpu_bytes_to_use_per_rank": 10**9}}),
            ),
            4 * 10**9,
        ),
        (("--kv-offloading-size", "lots"), 0),
        (("--kv-offloading-size", "nan"), 0),
        (("--kv-transfer-config", "[]"), 0),
        (("--kv-transfer-config", '{"kv_connector_extra_config": 3}'), 0),
        (("--kv-transfer-config", "[" * 100_000), 0),
    ],
)
def test_offloaded_bytes_are_those_of_one_engine(words: tuple[str, ...], size: int) -> None:
    assert settings(*words).offload_bytes == size


@pytest.mark.parametrize("word", ["", "x", "-3", "0", "9" * 400, "1e99", "٣"])
def test_a_value_that_is_none_counts_as_not_said(word: str) -> None:
    made = settings("--tensor-parallel-size", word, "--max-num-seqs", word, "--gpu-memory-utilization", word)
    assert made.tensor_parallel == 1
    assert made.max_num_seqs == 1024
    assert made.utilization == 0.92


def test_switches_can_be_turned_off() -> None:
    made = settings("--no-async-scheduling", "--enable-expert-parallel", "--no-enable-expert-parallel")
    assert not made.async_scheduling
    assert not made.expert_parallel
    assert settings("--enforce-eager").enforce_eager
