"""What the engine really gets: the last word of the command, the recipe, or its own default."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.api.effective import pools_of
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.command.argument import Command
from kintsugi.core.command.choice import choose
from kintsugi.core.command.effective import Effective, effective
from kintsugi.core.command.nested import object_of, source_of
from kintsugi.core.command.read import read_words
from kintsugi.core.command.render import engine_command


def of_words(*words: str) -> Effective:
    return effective(Command(read_words(words, lambda index: f"extraArgs[{index}]")))


def of_spec(**spec: Any) -> Effective:
    parsed = DeploymentSpec.model_validate({"model": {"id": "deepseek-ai/DeepSeek-V4-Flash-0731"}} | spec)
    (pool,) = pools_of(parsed)
    choice = choose(parsed, pool)
    return effective(engine_command(parsed, pool), choice.model, choice.gpu, choice.version)


def test_a_minimal_fleet() -> None:
    got = of_spec()
    assert (got.max_model_len, got.block_size, got.kv_cache_dtype) == (1048576, 256, "fp8")
    assert (got.tensor_parallel, got.data_parallel, got.expert_parallel, got.gpus) == (4, 1, True, 4)
    assert got.origin("tensor_parallel") == "recipe"
    assert got.origin("max_model_len") == "default"
    assert got.speculative["method"] == "dspark"
    assert got.offload_bytes == 0


def test_the_last_word_counts_and_names_its_field() -> None:
    """S07: planner and router use the value that the engine really gets."""
    got = of_spec(
        engine={"args": {"maxModelLen": 131072}, "extraArgs": ["--max_model_len=262144", "-tp", "8"]}
    )
    assert (got.max_model_len, got.tensor_parallel) == (262144, 8)
    assert got.origin("max_model_len") == "spec.engine.extraArgs[0]"
    assert got.origin("tensor_parallel") == "spec.engine.extraArgs[1]"


@pytest.mark.parametrize(
    ("gpu", "seqs", "batched"), [("B200", 1024, 16384), ("H200", 1024, 8192), ("A100-80GB", 256, 2048)]
)
def test_what_is_not_said_is_the_engines_default_for_the_gpu(gpu: str, seqs: int, batched: int) -> None:
    """vLLM's three classes of GPUs."""
    got = of_spec(
        model={"id": "deepseek-ai/DeepSeek-R1"},
        engine={"version": "0.28.0"},
        hardware={"gpu": gpu, "gpusPerInstance": 8},
    )
    assert (got.max_num_seqs, got.max_num_batched_tokens) == (seqs, batched)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--max-num-seqs", "1k"], "max_num_seqs", 1000),
        (["--max-num-seqs", "many"], "max_num_seqs", 1024),
        (["--max-num-seqs", "0"], "max_num_seqs", 1024),
        (["--max-model-len", "auto"], "max_model_len", None),
        (["--max-model-len", "-1"], "max_model_len", None),
        (["--no-enable-chunked-prefill"], "chunked_prefill", False),
        (["--enable-chunked-prefill=False"], "chunked_prefill", False),
        (["--no_enable_chunked_prefill", "--enable-chunked-prefill"], "chunked_prefill", True),
        (["--no-enable-prefix-caching"], "prefix_caching", False),
        (["--device-memory-utilization", "0.8"], "gpu_memory_utilization", 0.8),
        (["--kv-cache-memory-bytes", "80G"], "kv_cache_memory_bytes", 80 * 2**30),
        (["--attention_config.use_fp4_indexer_cache=True"], "indexer_cache", "mxfp4"),
        (["-ac", '{"use_fp4_indexer_cache": true}'], "indexer_cache", "mxfp4"),
        (["-ac", '{"indexer_kv_dtype": "mxfp4"}'], "indexer_cache", "mxfp4"),
        (["-ac", '{"use_fp4_indexer_cache": false}'], "indexer_cache", "fp8"),
        (["-ac", "no json"], "indexer_cache", "fp8"),
        (["--kv-offloading-size", "1.5"], "offload_bytes", 3 * 2**29),
        (["--kv-transfer-config", '{"kv_connector":"OffloadingConnector","kv_connector_extra_config":{"cpu_bytes_to_use":7}}'], "offload_bytes", 7),
        (["--kv-transfer-config", '{"kv_connector":"MultiConnector","kv_connector_extra_config":{"connectors":[{"kv_connector":"NixlConnector"},{"kv_connector":"OffloadingConnector","kv_connector_extra_config":{"cpu_bytes_to_use":9}}]}}'], "offload_bytes", 9),
        (["--kv-transfer-config", '{"kv_connector_extra_config":{"cpu_bytes_to_use":1e999}}'], "offload_bytes", 0),
        (["--nnodes", "2"], "nodes", 2),
    ],
)  # fmt: skip
def test_values_are_found_wherever_they_are_written(words: list[str], field: str, value: object) -> None:
    assert getattr(of_words(*words), field) == value


def test_dotted_arguments_replace_a_json_one_as_in_the_engine() -> None:
    arguments = read_words(["-cc", '{"a": 1, "b": 2}', "-cc.c.d=3", "-cc.c.e", "x", "-cc.f=8k"], str)
    assert object_of(arguments, "--compilation-config") == {"c": {"d": 3, "e": "x"}, "f": 8000}
    assert source_of(arguments, "--compilation-config", "a") is None
    found = source_of(arguments, "--compilation-config", "c", "d")
    assert found is not None
    assert found.origin == "2"


def test_the_source_of_a_key_in_json_is_the_argument_that_holds_it() -> None:
    arguments = read_words(["--seed", "1", "-ac", '{"x": {"y": 1}}'], str)
    found = source_of(arguments, "--attention-config", "x", "y")
    assert found is not None
    assert found.origin == "2"
    assert source_of(arguments, "--attention-config", "z") is None


TEXT = st.one_of(
    st.text(max_size=10),
    st.sampled_from(
        ['{"a": [1]}', "[" * 2000, "null", "-1", "1e999", '{"kv_connector_extra_config": 3}', "true"]
    ),
)
FLAGS = st.sampled_from(
    [
        "-tp",
        "-dp",
        "--max-model-len",
        "--max-num-seqs",
        "-ac",
        "-ac.a",
        "-ac.a.b",
        "--kv-transfer-config",
        "-sc",
        "--kv-transfer-config.kv_connector_extra_config",
        "--kv-offloading-size",
        "--gpu-memory-utilization",
        "-sc.a",
    ]
)


@given(st.lists(st.one_of(TEXT, FLAGS, st.builds(lambda f, t: f"{f}={t}", FLAGS, TEXT)), max_size=10))
def test_no_command_is_too_odd(words: list[str]) -> None:
    got = of_words(*words)
    assert got.gpus >= 1
    assert got.max_num_seqs >= 1
    assert set(got.origins) <= {field for field in Effective.__dataclass_fields__}
