"""MET and SICK incidents through the real reading path: pages over HTTP, the operator's adapter, its judge, its loop.

Each test begins with the scenario's id. Time is simulated; what the incident shows is on the pages, in its own figures.
"""

import re
from collections.abc import Callable
from itertools import count, pairwise

import pytest

from kintsugi.core.page import PageReader
from kintsugi.core.reading import Absent, Unreadable, Value
from kintsugi.core.sample import read_sample
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Failure, Page
from kintsugi.testing.fleet import Behaviour
from tests.scenarios.served import ServedScene, served


def replaced(**values: float) -> Callable[[str], str]:
    """The engine's page with other values of some `vllm:` series."""

    def page(text: str) -> str:
        for name, value in values.items():
            text = re.sub(rf"^(vllm:{name}\{{[^}}]*\}}) \S+$", rf"\g<1> {value}", text, flags=re.MULTILINE)
        return text

    return page


def without(*parts: str) -> Callable[[str], str]:
    """The engine's page without the lines that hold one of `parts`."""
    return lambda text: "".join(
        line + "\n" for line in text.splitlines() if not any(part in line for part in parts)
    )


def nothing_happened(scene: ServedScene) -> None:
    """No attempt, nobody withdrawn, nobody removed."""
    assert scene.remediations() == []
    assert scene.removals() == []
    assert {scene.rotation(name) for name in scene.names_of("short")} == {"in"}


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
        assert scene.condition("DataFresh") == ("False", "Unrecognised")
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
            assert not scene.kept.findings.get(name, set()) & {"LowCacheHit", "Erroring", "Slow", "Stalled"}
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
        assert scene.condition("DataFresh") == ("True", "SeriesMissing")
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


# S15 ------------------------------------------------------------------------------------------------------------------


async def test_s15_alive_but_frozen_is_withdrawn_and_replaced_once_with_its_evidence() -> None:
    async with served({"short": 3}, then=5) as scene:
        pod = scene.names_of("short")[1]
        for waiting in range(9, 28, 3):
            scene.engines.change(pod, hung=True, running=3.0, waiting=float(waiting))
            await scene.run(20)
        assert scene.rotation(pod) == "out"
        done = await scene.until_done()
        assert scene.removals() == [pod]
        assert (done.spec.trigger, done.status.outcome) == ("stall", "Cured")
        assert {each.signal: each.value for each in done.status.evidence}["canaries unanswered"] == 3
        assert any(e.reason == "InstanceSick" and "no step" in e.message for e in scene.cluster.events)
        await scene.run(1_200)
        assert scene.removals() == [pod]


# S16 ------------------------------------------------------------------------------------------------------------------


async def test_s16_busy_is_not_dead_even_where_every_second_reading_is_too_late() -> None:
    async with served({"short": 3}, then=5) as scene:
        for name in scene.names_of("short"):
            scene.engines.change(name, running=256.0, waiting=180.0, kv_usage=0.93, steps_per_second=38.0)
        sent = len(scene.engines.canaries)
        slow = scene.names_of("short")[0]
        for turn in range(60):
            scene.engines.change(slow, failure=Failure.SILENT if turn % 2 else None)
            await scene.run(5)
            assert scene.verdict(slow).verdict.value not in ("Sick", "Suspect")
        assert scene.verdict(scene.names_of("short")[1]).verdict.value == "Saturated"
        assert "Saturated" in scene.kept.findings[slow]
        assert len(scene.engines.canaries) == sent
        nothing_happened(scene)


# S17 ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labelled", [True, False], ids=["with its reason", "without the reason label"])
async def test_s17_an_engine_that_admits_nobody_with_an_empty_cache_is_replaced_without_a_drain(
    labelled: bool,
) -> None:
    async with served({"short": 3}, then=5) as scene:
        pod = scene.names_of("short")[0]
        if not labelled:
            for name in scene.names_of("short"):
                scene.engines.rewrite[name] = without("num_requests_waiting_by_reason")
        scene.engines.change(pod, hung=True, running=0.0, waiting=6.0, kv_usage=0.0)
        await scene.until_removed(within=400)
        done = await scene.until_done()
        assert (scene.removals(), done.spec.trigger) == ([pod], "stall")


# S18 ------------------------------------------------------------------------------------------------------------------


async def test_s18_a_giant_prefill_is_told_and_not_thrown_away() -> None:
    async with served({"short": 3}, then=5) as scene:
        pod = scene.names_of("short")[0]
        began = scene.cluster.clock.mono()
        (scrape,) = await scene.engines.scrape([scene.address(pod)], 4.0)
        assert isinstance(scrape, Page)
        start = read_sample(PageReader(), scrape)
        assert not isinstance(start, Unreadable)
        tokens, prompts, steps = (
            start.total(n) or 0.0 for n in ("generation_tokens", "prompt_tokens", "steps")
        )

        def prefill(text: str) -> str:
            t = min(scene.cluster.clock.mono() - began, 65.0)
            return replaced(
                num_requests_running=9.0,
                num_requests_waiting=0.0,
                generation_tokens_total=tokens,
                prompt_tokens_total=prompts,
                iteration_tokens_total_count=steps + 2.0 * t,
                kv_cache_usage_perc=0.05 + 0.26 * t / 65.0,
            )(text)

        scene.engines.rewrite[pod] = prefill
        for _ in range(13):
            await scene.run(5)
            assert scene.verdict(pod).verdict.value not in ("Sick", "Suspect")
        assert "LongPrefillBlocks" in scene.kept.findings[pod]
        del scene.engines.rewrite[pod]
        await scene.run(600)
        assert "LongPrefillBlocks" not in scene.reasons(pod)
        nothing_happened(scene)


# S19 ------------------------------------------------------------------------------------------------------------------


async def test_s19_slow_first_requests_of_a_new_process_are_its_warm_up() -> None:
    async with served({"short": 3}, then=5) as scene:
        pod = scene.names_of("short")[0]
        scene.cluster.exit_container("llm", pod, 0, "Completed")
        await scene.run(120)
        scene.forget()
        scene.engines.change(pod, hung=True, running=1.0)
        await scene.run(34)
        scene.engines.change(pod, hung=False, running=4.0)
        for _ in range(54):
            await scene.run(5)
            assert scene.verdict(pod).verdict.value not in ("Sick", "Suspect")
        nothing_happened(scene)


# S20 ------------------------------------------------------------------------------------------------------------------

HOUR = 3_600.0


async def test_s20_a_leak_on_all_four_is_recycled_one_at_a_time_before_the_limit() -> None:
    async with served({"short": 4}, nodes=4, seconds=0.1) as scene:
        starts = count()
        scene.engines.behaviour = lambda pod: Behaviour(memory=22.0 + 0.25 * next(starts) % 1.0, leak=8.0)
        removed: list[float] = []
        forecasts: set[str] = set()
        while scene.cluster.clock.mono() < 5.2 * HOUR:
            await scene.run(60)
            if len(scene.removals()) > len(removed):
                removed.append(scene.cluster.clock.mono())
            assert len(scene.removals()) == len(removed)
            assert scene.cluster.clock.mono() < 600 or scene.serving() >= 3
            forecasts |= {
                i.name for i in scene.status.instances if i.signals and i.signals.memory_forecast_seconds
            }
        assert {each.spec.trigger for each in scene.remediations()} == {"memoryGrowth"}
        assert len(removed) == 4
        assert removed[0] <= 4 * HOUR
        assert removed[-1] <= 5.2 * HOUR, "22 GiB at the start and 8 an hour reach 64 GiB after 5.25 h"
        assert all(later - earlier >= 600 for earlier, later in pairwise(removed))
        assert set(scene.removals()) <= forecasts


# S26 ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [Failure.SILENT, Failure.HTTP_ERROR], ids=["silent", "errors"])
async def test_s26_blindness_of_all_removes_nobody_and_ends_by_itself(failure: Failure) -> None:
    async with served({"short": 6}, nodes=7, then=5) as scene:
        for name in scene.names_of("short"):
            scene.engines.change(name, failure=failure)
        await scene.run(300)
        assert scene.condition("DataFresh")[0] == "False"
        assert {scene.verdict(name).verdict.value for name in scene.names_of("short")} == {"Unknown"}
        nothing_happened(scene)
        for name in scene.names_of("short"):
            scene.engines.change(name, failure=None)
        await scene.run(60)
        assert scene.condition("DataFresh") == ("True", "AllRead")
        nothing_happened(scene)


async def test_s26_no_progress_on_all_pages_at_once_is_a_storm_and_removes_nobody() -> None:
    async with served({"short": 6}, nodes=7, then=5) as scene:
        for name in scene.names_of("short"):
            scene.engines.change(name, hung=True)
        await scene.run(400)
        assert scene.removals() == []
        assert scene.condition("HealingAllowed") == ("False", "Storm")
        assert any("Storm: 6 instances" in e.message for e in scene.cluster.events)
        for name in scene.names_of("short"):
            scene.engines.change(name, hung=False)
        await scene.run(1_200)
        assert scene.removals() == []
        assert scene.condition("HealingAllowed")[0] == "True"
        assert {scene.rotation(name) for name in scene.names_of("short")} == {"in"}
