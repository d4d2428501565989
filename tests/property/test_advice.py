"""Advice on any numbers at all: never a traceback, never a figure that no field takes, the same answer twice."""

import math
import random
from typing import Any

from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from kintsugi.core.advisor.advice import DEAD_BAND
from kintsugi.core.advisor.advise import advise
from kintsugi.core.advisor.look import traffic_reader
from kintsugi.core.advisor.report import report
from kintsugi.core.advisor.settings import PoolSettings, Setting
from kintsugi.core.advisor.traffic import Glance, glance, pool_traffic
from kintsugi.core.catalog.load import builtin
from kintsugi.core.snapshot import Page

EDGES = (1, 10, 100, 1000, 10_000, 100_000)
GAP_EDGES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
COUNTERS = (
    "num_preemptions_total", "iteration_tokens_total_count", "iteration_tokens_total_sum", "generation_tokens_total",
    "request_queue_time_seconds_sum", "request_queue_time_seconds_count", "request_prefill_time_seconds_sum",
    "request_prefill_time_seconds_count", "time_to_first_token_seconds_sum", "time_to_first_token_seconds_count",
)  # fmt: skip
HISTOGRAMS = {
    "request_prompt_tokens": EDGES,
    "request_generation_tokens": EDGES,
    "inter_token_latency_seconds": GAP_EDGES,
}
STEPS = (0, 0, 1, 5, 40, 1000, 0.5, 10**9)
ODD = ("NaN", "+Inf", "-Inf", "-1", "1e308")


def instance(name: str, chance: random.Random) -> list[Glance]:
    """Pages of one instance whose counters rise (mostly) and whose gauges jump; drawn by seed, since it is much."""
    names = [*COUNTERS, *HISTOGRAMS, "request_success_total", "kv_cache_usage_perc", "cache_config_info"]
    missing = [each for each in names if chance.random() < 0.05]
    reader, glances = traffic_reader(), []
    rising: dict[str, float] = {}
    blocks = chance.choice(["4097", "0", "None", "1e400", "-3", "70000"])
    every = chance.choice([5.0, 30.0, 400.0])
    scale = chance.choice([(0, 0, 1), (0, 5, 40), STEPS])

    def risen(key: str) -> float:
        rising[key] = rising.get(key, 0.0) + chance.choice(scale)
        return rising[key]

    def gauge(most: int) -> object:
        return chance.choice(ODD) if chance.random() < 0.03 else chance.randint(0, most)

    for look in range(chance.randint(1, 14)):
        labels = f'num_gpu_blocks="{blocks}",gpu_memory_utilization="0.8",block_size="16"'
        lines = [f'vllm:cache_config_info{{engine="0",{labels}}} 1']
        lines += [f'vllm:num_requests_{what}{{engine="0"}} {gauge(70)}' for what in ("running", "waiting")]
        kv = chance.choice(ODD) if chance.random() < 0.03 else chance.random()
        lines.append(f'vllm:kv_cache_usage_perc{{engine="0"}} {kv}')
        lines += [f'vllm:{counter}{{engine="0"}} {risen(counter)}' for counter in COUNTERS]
        lines.append(f'vllm:request_success_total{{engine="0",finished_reason="stop"}} {risen("ok")}')
        for family, edges in HISTOGRAMS.items():
            below = 0.0
            for edge in (*edges, "+Inf"):
                below += risen(f"{family}{edge}")
                lines.append(f'vllm:{family}_bucket{{engine="0",le="{edge}"}} {below}')
            lines.append(f'vllm:{family}_sum{{engine="0"}} {below * 50}')
            lines.append(f'vllm:{family}_count{{engine="0"}} {below}')
        kept = [line for line in lines if not any(each in line for each in missing)]
        glances.append(glance(reader, name, Page("\n".join(kept) + "\n", look * every)))
        if chance.random() < 0.02:
            rising.clear()
    return glances


MODELS = (None, *builtin().models)
said = st.none() | st.builds(
    Setting, st.sampled_from([1, 16, 64, 8192, 1e9]), st.sampled_from(["profile", "spec.engine.extraArgs[1]"])
)


@st.composite
def pools(draw: st.DrawFn, name: str, index: int) -> PoolSettings:
    path = f"spec.pools[{index}]"
    return PoolSettings(
        name=name,
        path=path,
        replicas=draw(st.integers(0, 9)),
        replicas_path=f"{path}.replicas",
        max_tokens=draw(st.sampled_from([None, 1, 8192, 1_048_576])),
        sequences=draw(said),
        batched_tokens=draw(said),
        memory_utilization=draw(st.none() | st.builds(Setting, st.floats(0.01, 1), st.just("recipe"))),
        block_tokens=draw(st.none() | st.builds(Setting, st.sampled_from([1, 16, 256]), st.just("recipe"))),
        model=draw(st.sampled_from(MODELS)),
        gpu=draw(st.sampled_from((None, *builtin().gpus))),
    )


@given(short=pools("short", 0), long=pools("long", 1), seed=st.integers(0, 2**32))
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_whatever_the_pages_say_advice_is_sane_and_always_the_same(
    short: PoolSettings, long: PoolSettings, seed: int
) -> None:
    chance, told = random.Random(seed), [short, long]
    traffic = {
        pool.name: pool_traffic(
            pool.name, [g for n in range(chance.randint(0, 2)) for g in instance(f"{pool.name}-{n}", chance)]
        )
        for pool in told
    }
    advice = advise(told, traffic)
    assert advise(told, traffic) == advice
    assert_plain(report("llm/chat", advice, traffic))
    event(f"{len(advice.suggestions)} suggestions")
    for each in advice.suggestions:
        assert math.isfinite(each.suggested), each
        assert each.suggested > 0, each
        assert each.path.startswith("spec.pools["), each
        if each.path.endswith("gpuMemoryUtilization"):
            assert each.suggested <= 0.95, each
        else:
            assert each.suggested == int(each.suggested), each
        if each.current and not each.path.endswith(("replicas", "gpuMemoryUtilization")):
            assert abs(each.suggested - each.current) >= DEAD_BAND * each.current - 1e-9, each


def assert_plain(value: Any) -> None:
    """Only what JSON can say."""
    if isinstance(value, dict):
        for each in value.values():
            assert_plain(each)
    elif isinstance(value, list):
        for each in value:
            assert_plain(each)
    elif isinstance(value, float):
        assert math.isfinite(value)
    else:
        assert value is None or isinstance(value, str | int)
