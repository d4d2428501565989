"""Incidents of reading metrics (MET) over HTTP, read by the operator's adapter, judged by its judge, in its loop.

Each test begins with the scenario's id. Time is simulated; what the incident shows is on the pages, in its own figures.
"""

import re
from itertools import count

import pytest

from kintsugi.core.page import PageReader
from kintsugi.core.reading import Absent, Unreadable, Value
from kintsugi.core.sample import read_sample
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Page
from tests.scenarios.served import replaced, served
from tests.scenarios.watched import nothing_happened

# S08 ------------------------------------------------------------------------------------------------------------------


RENAMED = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
    "vllm:prefix_cache_": "vllm:gpu_prefix_cache_",
    'engine="0",': "",
}


def old_page(text: str) -> str:
    """What a pod of before the renaming shows: its own names, no engine label, and requests swapped out."""
    text = replaced(kv_cache_usage_perc=0.71)(text)
    for new, old in RENAMED.items():
        text = text.replace(new, old)
    return text + 'vllm:num_requests_swapped{model_name="deepseek-v4"} 0\n'


async def test_s08_two_versions_side_by_side_give_the_same_signals_under_their_own_names() -> None:
    async with served({"short": 2}, nodes=3, seconds=90) as scene:
        old, new = scene.names_of("short")
        scene.engines.rewrite[old] = old_page
        scene.engines.rewrite[new] = replaced(kv_cache_usage_perc=0.69)
        await scene.run(2_000)
        assert {scene.verdict(name).verdict.value for name in (old, new)} == {"Healthy"}
        usage = [scene.verdict(name).signals["kv_cache_usage_percent"] for name in (old, new)]
        assert usage == [pytest.approx(71.0), pytest.approx(69.0)]
        nothing_happened(scene)
        assert scene.condition("DataFresh") == ("True", "AllRead")
        scrapes = await scene.engines.scrape([scene.address(old), scene.address(new)], 4.0)
        for scrape, swapped in zip(scrapes, (Value(0.0), Absent), strict=True):
            assert isinstance(scrape, Page)
            sample = read_sample(PageReader(), scrape)
            assert not isinstance(sample, Unreadable)
            said = sample.reading(Signal.SWAPPED)
            assert said == swapped if isinstance(swapped, Value) else isinstance(said, Absent)
            assert "not applicable" in said.reason if isinstance(said, Absent) else True
            assert sample.total("itl_count") is not None


# S09 ------------------------------------------------------------------------------------------------------------------


async def test_s09_a_page_without_one_known_name_is_unknown_load_and_no_idle_engine() -> None:
    async with served({"short": 3}) as scene:
        pod = scene.names_of("short")[0]
        foreign = (
            "# HELP other:num_requests_running running\nother:num_requests_running 12\n"
            "process_resident_memory_bytes 2.1e10\n"
        )
        scene.engines.rewrite[pod] = lambda _: foreign
        await scene.run(1_800)
        found = scene.verdict(pod)
        assert (found.verdict.value, found.reason, found.running) == ("Unknown", "Unrecognised", None)
        assert scene.condition("DataFresh") == ("False", "MetricsUnavailable")
        (said,) = [c.message for c in scene.status.conditions if c.type == "DataFresh"]
        assert pod in said
        assert "Idle" not in {said for said, _ in scene.kept.seen[pod]}
        nothing_happened(scene)


# S10 ------------------------------------------------------------------------------------------------------------------


async def test_s10_of_two_ranks_the_hot_one_is_not_averaged_away() -> None:
    async with served({"short": 2}, nodes=3) as scene:
        pod = scene.names_of("short")[0]
        steps = count(10_000, 100)

        def two_ranks(text: str) -> str:
            second = text.replace('engine="0"', 'engine="1"')
            second = "".join(line + "\n" for line in second.splitlines() if 'engine="1"' in line)
            n = float(next(steps))
            idle = replaced(
                num_requests_running=0.0,
                num_requests_waiting=0.0,
                kv_cache_usage_perc=0.02,
                iteration_tokens_total_count=n,
            )
            hot = replaced(num_requests_running=64.0, num_requests_waiting=41.0, kv_cache_usage_perc=0.97)
            return idle(text) + hot(second)

        scene.engines.rewrite[pod] = two_ranks
        await scene.run(600)
        signals = scene.verdict(pod).signals
        assert (signals["running"], signals["waiting"]) == (64.0, 41.0)
        assert signals["kv_cache_usage_percent"] == pytest.approx(97.0)
        (scrape,) = await scene.engines.scrape([scene.address(pod)], 4.0)
        assert isinstance(scrape, Page)
        sample = read_sample(PageReader(), scrape)
        assert not isinstance(sample, Unreadable)
        assert sample.kv_max() == 0.97
        assert sample.kv_mean() == pytest.approx(0.495)
        assert "RankImbalance" in scene.reasons(pod)
        assert scene.verdict(pod).verdict.value != "Idle"
        nothing_happened(scene)


# S11 ------------------------------------------------------------------------------------------------------------------

FROZEN = {
    "num_requests_running": 106.0,
    "num_requests_waiting": 15.0,
    "kv_cache_usage_perc": 0.904,
    "iteration_tokens_total_count": 551234.0,
    "generation_tokens_total": 88123001.0,
    "prompt_tokens_total": 9_000_000.0,
    "time_to_first_token_seconds_count": 90_000.0,
    "inter_token_latency_seconds_count": 88_000_000.0,
    "inter_token_latency_seconds_sum": 4_000_000.0,
}


@pytest.mark.parametrize("thaws", [True, False], ids=["the canary clears them", "nothing clears them"])
async def test_s11_gauges_frozen_at_busy_values_cost_no_pod(thaws: bool) -> None:
    async with served({"short": 3}, then=5) as scene:
        pod = scene.names_of("short")[0]
        scene.engines.change(pod, running=0.0, kv_usage=0.0)
        scene.engines.rewrite[pod] = replaced(**FROZEN)
        asked: list[float] = []
        if thaws:
            steps = count(1)

            def thaw() -> None:
                empty = dict.fromkeys(
                    ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"), 0.0
                )
                moved = ("iteration_tokens_total_count", "generation_tokens_total")
                n = next(steps)
                values = {**FROZEN, **empty, **{name: FROZEN[name] + n for name in moved}}
                scene.engines.rewrite[pod] = replaced(**values)

            scene.engines.on_canary[pod] = thaw
        sent = len(scene.engines.canaries)
        for _ in range(120):
            await scene.run(5)
            asked += [c.sent for c in scene.engines.canaries[sent:] if c.process.uid == scene.uid(pod)][:1]
            assert scene.verdict(pod).verdict.value != "Sick"
            assert scene.rotation(pod) == "in"
            assert asked or not scene.kept.findings.get(pod, set()) & {"StaleGauges", "Stalled"}
        assert asked
        nothing_happened(scene)
        if thaws:
            assert scene.verdict(pod).verdict.value == "Idle"
        else:
            assert "StaleGauges" in scene.reasons(pod)


# S12 ------------------------------------------------------------------------------------------------------------------


async def test_s12_counters_that_start_again_are_a_restart_and_no_collapse_of_the_hit_rate() -> None:
    async with served({"short": 2}, nodes=3) as scene:
        pod = scene.names_of("short")[0]
        before = {
            "prefix_cache_queries_total": 9.10e6,
            "prefix_cache_hits_total": 8.74e6,
            "num_preemptions_total": 412.0,
        }
        scene.engines.rewrite[pod] = replaced(**before)
        await scene.run(60)
        began = scene.cluster.clock.mono()

        def restarted(text: str) -> str:
            t = scene.cluster.clock.mono() - began
            values = {
                "prefix_cache_queries_total": 57.0 + 1_930.0 * t,
                "prefix_cache_hits_total": 1_666.0 * t,
                "num_preemptions_total": 3.0 * t / 1_200.0,
                "iteration_tokens_total_count": 10.0 + 20.0 * t,
                "generation_tokens_total": 10.0 + 80.0 * t,
                "prompt_tokens_total": 2_000.0 * t,
            }
            return re.sub(
                r"process_start_time_seconds \S+",
                "process_start_time_seconds 1.7001e9",
                replaced(**values)(text),
            )

        scene.engines.rewrite[pod] = restarted
        scene.forget()
        await scene.run(1.0, every=1.0)
        assert "cache_hit_percent" not in scene.verdict(pod).signals
        rates: list[float] = []
        for _ in range(40):
            await scene.run(30)
            rates.append(scene.verdict(pod).signals.get("preemptions_per_second", 0.0))
            assert "LowCacheHit" not in scene.reasons(pod)
        assert min(rates) >= 0.0
        assert scene.verdict(pod).signals["cache_hit_percent"] == pytest.approx(86.3, abs=0.5)
        nothing_happened(scene)


# S13 ------------------------------------------------------------------------------------------------------------------


async def test_s13_no_traffic_is_neither_a_breach_nor_zero() -> None:
    async with served({"short": 3}) as scene:
        for name in scene.names_of("short"):
            scene.engines.change(name, running=0.0, kv_usage=0.0)
            scene.engines.rewrite[name] = lambda text: replaced(
                gpu_prefix_cache_hit_rate=float("nan"), kv_cache_usage_perc=float("nan")
            )(
                text
                + 'vllm:gpu_prefix_cache_hit_rate{engine="0"} NaN\nvllm:avg_ttft_seconds{engine="0"} +Inf\n'
            )
        await scene.run(900)
        scene.forget()
        await scene.run(900)
        for name in scene.names_of("short"):
            assert scene.verdict(name).verdict.value == "Idle"
            assert "kv_cache_usage_percent" not in scene.verdict(name).signals
            assert not scene.kept.findings.get(name, set())
        (pool,) = scene.status.pools
        assert pool.verdicts is not None
        assert pool.verdicts.idle == 3
        assert "NaN" not in scene.status_json()
        nothing_happened(scene)


# S14 ------------------------------------------------------------------------------------------------------------------


async def test_s14_broken_metrics_of_an_engine_that_works_cost_no_pod() -> None:
    async with served({"short": 4}, nodes=5) as scene:
        pod = scene.names_of("short")[0]
        scene.engines.status[pod] = 500
        await scene.run(1_800)
        found = scene.verdict(pod)
        assert (found.verdict.value, found.reason) == ("Unknown", "MetricsUnavailable")
        assert scene.condition("DataFresh") == ("False", "MetricsUnavailable")
        (said,) = [c.message for c in scene.status.conditions if c.type == "DataFresh"]
        assert pod in said
        assert "500" in found.message
        assert "PROMETHEUS_MULTIPROC_DIR" in said
        nothing_happened(scene)
        del scene.engines.status[pod]
        await scene.run(120)
        assert scene.condition("DataFresh") == ("True", "AllRead")


# S54 ------------------------------------------------------------------------------------------------------------------

SHORT_PROMPTS = {"kv_cache_usage_perc": 0.667, "num_requests_running": 200.0, "num_requests_waiting": 0.0}


async def test_s54_fragmentation_that_nobody_exports_is_absent_and_never_guessed() -> None:
    async with served({"short": 2}, nodes=3) as scene:
        for name in scene.names_of("short"):
            scene.engines.change(name, fragmentation=None, orphaned=None)
            scene.engines.rewrite[name] = replaced(**SHORT_PROMPTS)
        await scene.run(1_500)
        for name in scene.names_of("short"):
            assert "fragmentation_percent" not in scene.verdict(name).signals
            assert "kintsugi_gpu_memory_fragmentation_ratio" in scene.verdict(name).missing
            assert not {reason for reason in scene.kept.findings.get(name, ()) if "ragment" in reason}
        assert scene.condition("DataFresh") == ("True", "SeriesMissing")
        (said,) = [c.message for c in scene.status.conditions if c.type == "DataFresh"]
        assert "kintsugi_gpu_memory_fragmentation_ratio" in said
        assert "fragmentation" in said.partition("only observed for it")[2]
        nothing_happened(scene)


async def test_s54_waste_by_short_prompts_is_advice_and_costs_no_pod() -> None:
    sources = {"triggers": {"fragmentation": {"sources": ["BlockWaste"]}}}
    async with served({"short": 2}, nodes=3, seconds=90, healing=sources) as scene:
        for name in scene.names_of("short"):
            scene.engines.rewrite[name] = lambda text: replaced(**SHORT_PROMPTS)(
                text + 'kintsugi_kv_block_waste_ratio{rank="0"} 0.84\n'
            )
        await scene.run(3_600)
        for name in scene.names_of("short"):
            assert scene.verdict(name).signals["fragmentation_percent"] == pytest.approx(84.0)
            assert scene.verdict(name).verdict.value in ("Healthy", "Saturated")
        nothing_happened(scene)
