"""The planner's arithmetic against published figures: the layout's bytes, and what real engines said at their start."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from kintsugi.core.catalog.entities import KvLayout
from kintsugi.core.catalog.load import builtin
from kintsugi.core.catalog.version import EngineVersion
from kintsugi.core.planner.figure import exact
from kintsugi.core.planner.kv import blocks_of, concurrency, longest_request
from kintsugi.core.planner.settings import Settings
from tests.unit.planner.subjects import FLASH, PRO, held, planned

PAGE = Path(__file__).parents[1] / "core" / "pages" / "70_deepseek_v4.txt"


def layout(model_id: str) -> KvLayout:
    model = builtin().model(model_id)
    assert model is not None
    assert model.kv is not None
    return model.kv


@pytest.mark.parametrize(
    ("model", "fp4", "bytes_per_token"),
    [(FLASH, False, 3915), (FLASH, True, 3584), (PRO, False, 5609), (PRO, True, 5137)],
)
def test_kv_bytes_per_token_are_the_reference_within_a_percent(
    model: str, fp4: bool, bytes_per_token: int
) -> None:
    blocks = blocks_of(layout(model), Settings(fp4_indexer=fp4), None)
    assert blocks.bytes / blocks.tokens == pytest.approx(bytes_per_token, rel=0.01)


@pytest.mark.parametrize(("tokens", "most"), [(1024, 30), (4096, 42), (65_536, 282), (1_048_576, 4122)])
def test_a_decoding_request_holds_its_length_and_up_to_26_blocks(tokens: int, most: int) -> None:
    blocks = blocks_of(layout(FLASH), Settings(), None)
    assert blocks.request(tokens) == most
    assert blocks.fixed == (22, 26)


def test_a_prefill_chunk_of_8192_tokens_takes_3354_blocks_and_two_are_in_flight() -> None:
    one = blocks_of(layout(FLASH), Settings(async_scheduling=False), None)
    two = blocks_of(layout(FLASH), Settings(), None)
    assert one.spike + one.fixed[1] == pytest.approx(3354, rel=0.01)
    assert two.spike == pytest.approx(2 * one.spike, rel=0.01)


def test_old_engines_reserve_for_one_step_in_flight() -> None:
    old = blocks_of(layout(FLASH), Settings(), EngineVersion(0, 25))
    assert old.in_flight_tokens == 8192


def test_the_worked_example_of_the_reference_is_reached_from_its_own_block_count() -> None:
    """95,000 blocks: about 335 requests of 64 Ki tokens, about 23 of 1 Mi; no prefill under way."""
    quiet = blocks_of(layout(FLASH), Settings(async_scheduling=False, batched_tokens=1), None)
    assert concurrency(exact(95_000, ""), quiet, 65_536).value == pytest.approx(335, abs=3)
    assert concurrency(exact(95_000, ""), quiet, 1_048_576).value == 23


def test_the_worked_example_lies_in_the_plans_band() -> None:
    """8xH200, TP8: 95 GB for KV, 95,000 blocks, 23 requests of 1 Mi tokens."""
    made = planned(FLASH, "H200", 8, tensorParallelSize=8, enableExpertParallel=True)
    assert made.memory is not None
    assert made.kv is not None
    assert made.memory.kv.low <= 95e9 <= made.memory.kv.high
    assert made.kv.engine_blocks.low <= 95_000 <= made.kv.engine_blocks.high
    million = dict(made.kv.concurrency)[1_048_576]
    assert million.low <= 23 <= million.high


@pytest.mark.parametrize(
    ("size", "said"),
    [("tensorParallelSize", 20.43), ("dataParallelSize", 156.9)],
)
def test_what_a_real_engine_said_of_8_b200_is_met_within_5_percent(size: str, said: float) -> None:
    """vllm-project/recipes#762: the engine's own max concurrency at 1 Mi tokens, Flash-0731 on 0.25.0."""
    args: dict[str, Any] = {
        size: 8,
        "enableExpertParallel": True,
        "gpuMemoryUtilization": 0.95,
        "maxNumBatchedTokens": 8192,
        "maxNumSeqs": 256,
    }
    made = planned(FLASH, "B200", 8, engine={"image": "vllm/vllm-openai:v0.25.0"}, **args)
    assert made.kv is not None
    ours = made.kv.engines * made.kv.engine_blocks.value / made.kv.blocks.alone(1_048_576)
    assert ours == pytest.approx(said, rel=0.05)


def test_what_a_real_engine_needed_on_two_gh200_is_met_within_5_percent() -> None:
    """vllm-project/vllm#44376, 0.22, 16,384 tokens a step: 6.66 GiB for one request of 30,000 tokens, 5.44 GiB free."""
    blocks = blocks_of(
        layout("deepseek-ai/DeepSeek-V4-Flash"), Settings(batched_tokens=16_384), EngineVersion(0, 22)
    )
    assert blocks.alone(30_000) * blocks.bytes == pytest.approx(6.66 * 2**30, rel=0.05)
    made = planned(
        "deepseek-ai/DeepSeek-V4-Flash",
        "GH200-96GB",
        2,
        engine={"image": "vllm/vllm-openai:v0.22.0"},
        tensorParallelSize=2,
        gpuMemoryUtilization=0.95,
        maxNumBatchedTokens=16_384,
    )
    assert made.memory is not None
    assert made.memory.kv.low <= 5.44 * 2**30 <= made.memory.kv.high


def test_blocks_that_one_request_needs_alone_are_those_of_a_real_page_within_5_percent() -> None:
    """A page of vLLM 0.32 with a tiny V4: num_gpu_blocks / kv_cache_max_concurrency is one request of the whole context."""
    text = PAGE.read_text()
    total = int(re.search(r'num_gpu_blocks="(\d+)"', text)[1])  # type: ignore[index]
    requests = float(re.search(r'kv_cache_max_concurrency="([\d.]+)"', text)[1])  # type: ignore[index]
    blocks = blocks_of(layout(FLASH), Settings(), EngineVersion(0, 32))
    assert blocks.alone(2048) == pytest.approx(total / requests, rel=0.05)


def test_longest_request_is_the_most_that_still_fits() -> None:
    blocks = blocks_of(layout(FLASH), Settings(), None)
    for available in (0, 27, 700, 6_700, 7_000, 50_000):
        longest = longest_request(available, blocks, 1_048_576)
        assert longest == 0 or blocks.alone(longest) <= available
        assert longest == 1_048_576 or blocks.alone(longest + 1) > available


def test_weights_are_those_of_the_checkpoint_and_copied_attention() -> None:
    whole = planned(FLASH, "B200", 8, tensorParallelSize=8)
    copied = planned(FLASH, "B200", 8, dataParallelSize=8, enableExpertParallel=True)
    assert whole.weights is not None
    assert copied.weights is not None
    assert whole.weights.value == pytest.approx(167e9, rel=0.02)
    extra = (copied.weights.value - whole.weights.value) / 7
    assert 5e9 < extra < 12e9
    assert copied.weights.basis == "assumed"


def test_pipeline_stages_share_the_layers_and_so_the_blocks() -> None:
    one, two = Settings(), Settings(pipeline_parallel=2)
    whole, half = (blocks_of(layout(FLASH), s, None) for s in (one, two))
    assert half.bytes == math.ceil(whole.bytes / 2)


def test_fewer_tokens_a_step_leave_more_for_requests() -> None:
    wide, narrow = (planned(FLASH, "H200", 4, maxNumBatchedTokens=size) for size in (32_768, 2_048))
    assert held(narrow, 131_072) > held(wide, 131_072)
