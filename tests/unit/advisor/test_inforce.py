"""The settings in force and the field that says each, read off the command that would be rendered."""

from typing import Any

from kintsugi.api.objects import parse_deployment
from kintsugi.core.advisor.inforce import settings_of
from kintsugi.core.advisor.settings import PoolSettings, Setting
from tests.unit.api.manifests import deployment

FLASH = {"id": "deepseek-ai/DeepSeek-V4-Flash-0731"}


def of(**spec: Any) -> tuple[PoolSettings, ...]:
    return settings_of(parse_deployment(deployment({"model": FLASH, **spec})).spec)


def test_a_minimal_fleet_gets_the_recipe_and_the_engines_own_defaults() -> None:
    (pool,) = of()
    assert (pool.name, pool.path, pool.replicas_path) == ("main", "spec", "spec.replicas")
    assert pool.gpu is not None
    assert pool.model is not None
    assert pool.block_tokens is not None
    assert pool.block_tokens.value == 256
    assert pool.sequences == Setting(1024, "engine default")
    assert pool.argument("maxNumSeqs") == "spec.engine.args.maxNumSeqs"


def test_a_profile_a_typed_argument_and_a_free_one_are_told_apart() -> None:
    short, long, odd = of(
        engine={"args": {"maxNumBatchedTokens": 4096}},
        pools=[
            {"name": "short", "profile": "HighThroughput", "context": {"maxTokens": 8192}},
            {"name": "long", "engine": {"args": {"maxNumSeqs": 16, "gpuMemoryUtilization": 0.9}}},
            {"name": "odd", "engine": {"extraArgs": ["--max_num_seqs=24"]}},
        ],
    )
    assert short.sequences == Setting(64, "profile")
    assert short.max_tokens == 8192
    assert long.sequences == Setting(16, "spec.pools[1].engine.args.maxNumSeqs")
    assert long.memory_utilization == Setting(0.9, "spec.pools[1].engine.args.gpuMemoryUtilization")
    assert long.batched_tokens == Setting(4096, "spec.engine.args.maxNumBatchedTokens")
    assert odd.sequences == Setting(24, "spec.pools[2].engine.extraArgs[0]")
    assert odd.argument("maxNumSeqs") == "spec.pools[2].engine.args.maxNumSeqs"


def test_replicas_are_to_be_written_where_they_count() -> None:
    pools = [{"name": "short", "replicas": 2}, {"name": "long"}]
    short, long = of(pools=pools, replicas=5, scalePool="long")
    assert (short.replicas, short.replicas_path) == (2, "spec.pools[0].replicas")
    assert (long.replicas, long.replicas_path) == (5, "spec.replicas")


def test_an_unknown_gpu_leaves_the_engines_defaults_unknown() -> None:
    (pool,) = of(hardware={"gpu": "TPU", "gpusPerInstance": 8})
    assert pool.sequences is None
    assert pool.gpu is None


def test_a_value_that_is_no_number_is_not_known() -> None:
    (pool,) = of(engine={"extraArgs": ["--max-num-seqs", "many", "--gpu-memory-utilization=7"]})
    assert pool.sequences is None
    assert pool.memory_utilization is None
