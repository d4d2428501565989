"""Each suggestion under simulated traffic that deserves it, and under traffic that does not."""

import random
from dataclasses import replace

import pytest

from kintsugi.core.advisor.advice import Missing, Suggestion
from kintsugi.core.advisor.advise import Advice, advise
from kintsugi.core.advisor.blocks import block_size, waste
from kintsugi.core.advisor.histogram import Histogram
from kintsugi.core.advisor.settings import PoolSettings, Setting, unstated
from kintsugi.core.advisor.traffic import Glance, PoolTraffic, pool_traffic
from kintsugi.core.catalog.load import builtin
from kintsugi.testing.engine import EngineShape
from tests.unit.advisor.stage import Lengths, Load, Stage, fixed, settings

FLASH = builtin().model("deepseek-ai/DeepSeek-V4-Flash-0731")
SEQUENCES = "spec.pools[0].engine.args.maxNumSeqs"
BATCH = "spec.pools[0].engine.args.maxNumBatchedTokens"
MEMORY = "spec.pools[0].engine.args.gpuMemoryUtilization"
REPLICAS = "spec.pools[0].replicas"
THRESHOLD = "spec.pools[0].context.maxTokens"


def said(advice: Advice, path: str) -> Suggestion | None:
    return next((each for each in advice.suggestions if each.path == path), None)


def missing(advice: Advice, path: str) -> str:
    return next((each.why for each in advice.missing if each.path == path), "")


def one(stage: Stage, pool: PoolSettings) -> Advice:
    return advise([pool], {stage.pool: stage.traffic()})


OVERFLOWING = Stage(Load(3, fixed(4000, 800)), EngineShape(num_gpu_blocks=400))
QUEUEING = Stage(Load(6, fixed(500, 300)), EngineShape(max_num_seqs=16))
CALM = Stage(Load(2, fixed(500, 300)), engines=2)


def test_preemptions_ask_for_as_many_sequences_as_the_cache_holds() -> None:
    found = said(one(OVERFLOWING, settings()), SEQUENCES)
    assert found is not None
    # 400 blocks, 16 to 19 of them for 4,000 to 4,800 tokens: 21 to 25 requests fill it.
    assert 16 <= found.suggested <= 22
    assert found.current == 64
    assert "preemptions" in found.why


def test_the_advice_taken_ends_the_preemptions_and_brings_no_contrary_advice() -> None:
    first = said(one(OVERFLOWING, settings()), SEQUENCES)
    assert first is not None
    after = Stage(OVERFLOWING.load, replace(OVERFLOWING.shape, max_num_seqs=int(first.suggested)))
    assert (after.traffic().gained("preemptions") or 0) <= 2
    assert said(one(after, settings(sequences=first.suggested)), SEQUENCES) is None


def test_a_queue_beside_free_kv_asks_for_more_sequences_by_littles_law() -> None:
    advice = one(QUEUEING, settings(sequences=16))
    found = said(advice, SEQUENCES)
    assert found is not None
    assert found.suggested == 32  # twice: more would be a leap in the dark
    assert "Little" in found.why
    assert "maxNumSeqs" in missing(advice, REPLICAS)  # instances would be wasted on a low limit


def test_raising_step_by_step_comes_to_rest_where_the_queue_is_gone() -> None:
    limit, seen = 16, [16]
    while len(seen) < 10:
        stage = Stage(Load(4, fixed(500, 300)), EngineShape(max_num_seqs=limit))
        found = said(one(stage, settings(sequences=limit)), SEQUENCES)
        if found is None:
            break
        limit = int(found.suggested)
        seen.append(limit)
    assert seen == sorted(set(seen))
    assert len(seen) <= 6, seen
    assert stage.traffic().moments()[-1].waiting == 0


def test_calm_traffic_gets_no_advice_on_engine_arguments() -> None:
    advice = one(CALM, settings(replicas=2))
    assert advice.suggestions == ()
    assert advice.missing == ()


def test_a_queue_with_an_unknown_limit_says_what_is_missing() -> None:
    advice = one(QUEUEING, settings(sequences=None))
    assert said(advice, SEQUENCES) is None
    assert "limit in force is not known" in missing(advice, SEQUENCES)


def test_a_value_from_free_arguments_is_named_since_it_would_win() -> None:
    pool = replace(settings(), sequences=Setting(64, "spec.engine.extraArgs[3]"))
    found = said(one(OVERFLOWING, pool), SEQUENCES)
    assert found is not None
    assert found.why.endswith("Take it out of spec.engine.extraArgs[3], which would win.")


def mixed(chance: random.Random) -> tuple[int, int]:
    return chance.choice([500, 500, 20_000]), 300


def test_answers_that_stutter_behind_prefills_ask_for_smaller_steps_and_say_what_kv_they_give_back() -> None:
    stage = Stage(Load(1, mixed, seconds=240))
    found = said(one(stage, settings(model=FLASH)), BATCH)
    assert found is not None
    assert found.suggested == 4096
    # 2 x 4096 / 8192 x 3,354 blocks of 4,097
    assert "3354 of 4097 KV blocks" in found.why


@pytest.mark.parametrize("start", [16_384, 8192, 2048, 1024])
def test_from_wherever_one_starts_the_step_size_comes_to_rest_without_turning_back(start: int) -> None:
    seen = [start]
    while len(seen) < 8:
        stage = Stage(Load(1, mixed, seconds=240), EngineShape(max_num_batched_tokens=seen[-1]))
        found = said(one(stage, settings(batched=seen[-1])), BATCH)
        if found is None:
            break
        seen.append(int(found.suggested))
    assert len(seen) <= 4, seen
    assert seen in (sorted(seen), sorted(seen, reverse=True))


def test_prompts_that_wait_for_their_own_steps_ask_for_larger_ones() -> None:
    stage = Stage(
        Load(0.4, fixed(12_000, 40), seconds=240),
        EngineShape(max_num_batched_tokens=512, max_model_len=32_768),
    )
    found = said(one(stage, settings(batched=512)), BATCH)
    assert found is not None
    assert found.suggested == 1024


def test_a_larger_step_that_costs_much_kv_is_not_suggested() -> None:
    stage = Stage(
        Load(0.4, fixed(12_000, 40), seconds=240),
        EngineShape(max_num_batched_tokens=512, max_model_len=32_768),
    )
    small = one(stage, settings(batched=512, model=FLASH))  # 2 x 512 / 8192 x 3,354 = 419 blocks of 4,097
    assert said(small, BATCH) is None


def test_a_full_cache_beside_spare_memory_asks_for_more_of_it() -> None:
    shape = replace(OVERFLOWING.shape, gpu_memory_utilization=0.8)
    found = said(one(Stage(OVERFLOWING.load, shape), settings(utilization=0.8)), MEMORY)
    assert found is not None
    assert (found.current, found.suggested) == (0.8, 0.92)
    shape = replace(OVERFLOWING.shape, gpu_memory_utilization=0.92)
    assert said(one(Stage(OVERFLOWING.load, shape), settings(utilization=0.92)), MEMORY) is None


def test_what_the_engines_page_says_of_its_memory_counts_more_than_the_manifest() -> None:
    shape = replace(OVERFLOWING.shape, gpu_memory_utilization=0.7)
    found = said(one(Stage(OVERFLOWING.load, shape), settings(utilization=0.92)), MEMORY)
    assert found is not None
    assert found.current == 0.7


def test_a_pool_that_could_not_lose_an_instance_is_told_how_many_it_needs() -> None:
    stage = Stage(Load(4, fixed(500, 300)), engines=3)
    found = said(one(stage, settings(replicas=3)), REPLICAS)
    assert found is not None
    # each engine runs about 50 of its 64 at once: 2.6 instances' work, 3.1 at 85 %, and one for a failure
    assert found.suggested == 4


def test_a_growing_queue_counts_by_what_comes_not_by_its_length() -> None:
    found = said(one(OVERFLOWING, settings()), REPLICAS)
    assert found is not None
    growth = OVERFLOWING.traffic().arrived / OVERFLOWING.traffic().requests
    assert found.suggested == pytest.approx(growth / 0.85 + 1, abs=1)


def test_fewer_instances_are_suggested_only_on_a_long_window() -> None:
    short = Stage(Load(0.5, fixed(500, 100)), engines=6)
    advice = one(short, settings(replicas=6))
    assert said(advice, REPLICAS) is None
    assert "does not show the day's peak" in missing(advice, REPLICAS)
    long = Stage(Load(0.7, fixed(500, 50), seconds=3700, every=59), engines=4)
    found = said(one(long, settings(replicas=4)), REPLICAS)
    assert found is not None
    assert found.suggested == 2
    assert found.confidence == "high"


def pair(short: Stage, long: Stage) -> Advice:
    pools = [
        settings("short", max_tokens=8192),
        replace(
            settings("long", max_tokens=131_072), path="spec.pools[1]", replicas_path="spec.pools[1].replicas"
        ),
    ]
    return advise(pools, {"short": short.traffic(), "long": long.traffic()})


def spread(low: int, high: int, answer: int) -> Lengths:
    return lambda chance: (chance.randint(low, high), answer)


def test_a_short_pool_fuller_than_the_long_one_should_take_shorter_requests_only() -> None:
    short = Stage(
        Load(4, spread(2000, 7800, 200), seconds=300), EngineShape(num_gpu_blocks=800), pool="short"
    )
    long = Stage(
        Load(0.3, spread(9000, 40_000, 200), seconds=300), EngineShape(num_gpu_blocks=4000), pool="long"
    )
    found = said(pair(short, long), THRESHOLD)
    assert found is not None
    assert found.suggested < 8192
    assert found.suggested % 256 == 0


def test_a_long_pool_fuller_than_the_short_one_gives_some_of_its_requests_away() -> None:
    short = Stage(
        Load(2, spread(500, 7000, 100), seconds=300), EngineShape(num_gpu_blocks=4000), pool="short"
    )
    long = Stage(
        Load(1, spread(9000, 40_000, 200), seconds=300), EngineShape(num_gpu_blocks=1600), pool="long"
    )
    found = said(pair(short, long), THRESHOLD)
    assert found is not None
    assert found.suggested > 8192
    assert found.suggested % 1024 == 0


def test_pools_equally_full_keep_their_threshold() -> None:
    stage = Stage(Load(2, spread(500, 7000, 100), seconds=300), pool="short")
    other = Stage(Load(2, spread(500, 7000, 100), seconds=300), pool="long")
    assert said(pair(stage, other), THRESHOLD) is None


def test_a_pool_without_requests_says_so_instead_of_a_threshold() -> None:
    short = Stage(Load(2, spread(500, 7000, 100)), pool="short")
    long = Stage(Load(0.05, spread(9000, 40_000, 200)), pool="long")
    advice = pair(short, long)
    assert said(advice, THRESHOLD) is None
    assert any(each.pool == "long" and "requests ended" in each.why for each in advice.missing)


def test_block_size_is_left_alone_where_the_family_has_one() -> None:
    assert block_size(settings(model=FLASH), CALM.traffic()) is None


def test_block_size_is_advised_where_it_is_free_and_wastes_much() -> None:
    assert FLASH is not None
    free = replace(FLASH, block_sizes=(16, 32, 64, 128, 256))
    pool = replace(settings(model=free), block_tokens=Setting(256, "spec.engine.args.blockSize"))
    found = block_size(pool, CALM.traffic())
    assert isinstance(found, Suggestion)
    assert found.suggested in (16, 32)  # around 800 tokens: 14 % of 256-blocks, 2 % of 32-blocks stay empty
    assert (
        block_size(replace(pool, block_tokens=Setting(16, "spec.engine.args.blockSize")), CALM.traffic())
        is None
    )


def test_waste_is_half_a_block_a_request_where_lengths_are_spread() -> None:
    assert FLASH is not None
    assert FLASH.kv is not None
    spread_out = Histogram({(1000.0, 2000.0): 10.0}, 15_000.0)
    assert waste(spread_out, 256, FLASH.kv) == pytest.approx(128 / 1628, rel=0.05)


def test_without_a_kv_layout_no_block_size_is_advised_and_it_is_said_why() -> None:
    assert FLASH is not None
    unknown = replace(FLASH, block_sizes=(), kv=None)
    pool = replace(settings(model=unknown), block_tokens=Setting(256, "spec.engine.args.blockSize"))
    assert isinstance(block_size(pool, CALM.traffic()), Missing)


@pytest.mark.parametrize(
    ("seconds", "every", "rate", "words"),
    [
        (30.0, 5.0, 4.0, "the window is 30 s, at least 60 s are needed"),
        (60.0, 30.0, 4.0, "3 pages of an instance, at least 6 are needed"),
        (60.0, 5.0, 0.02, "requests ended in the window, at least 20 are needed"),
    ],
)
def test_too_little_data_gives_no_suggestion_and_says_what_is_missing(
    seconds: float, every: float, rate: float, words: str
) -> None:
    advice = one(Stage(Load(rate, fixed(500, 300), seconds=seconds, every=every)), settings())
    assert advice.suggestions == ()
    assert any(words in each.why for each in advice.missing), advice.missing


def test_a_pool_nobody_saw_is_named() -> None:
    advice = advise([settings("main")], {})
    assert advice.missing == (Missing("main", "spec.pools[0]", "no instance was looked at"),)


def test_without_a_manifest_the_pages_alone_give_what_they_can() -> None:
    traffic = OVERFLOWING.traffic()
    advice = advise([unstated("main", 1)], {"main": traffic})
    found = said(advice, "spec.pools[name=main].engine.args.maxNumSeqs")
    assert found is not None
    assert found.current is None


def test_the_same_pages_give_the_same_advice() -> None:
    assert one(OVERFLOWING, settings()) == one(OVERFLOWING, settings())


def test_a_window_shifted_a_little_gives_the_same_numbers() -> None:
    glances = Stage(Load(3, fixed(4000, 800), seconds=300), EngineShape(num_gpu_blocks=400)).glances()
    found = {
        getattr(said(advise([settings()], {"main": _part(glances, skip)}), SEQUENCES), "suggested", None)
        for skip in (0, 5, 10, 15)
    }
    assert len(found) == 1


def _part(glances: list[Glance], skip: int) -> PoolTraffic:
    return pool_traffic("main", glances[skip:])
