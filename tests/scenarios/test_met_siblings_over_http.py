"""Siblings of S08 to S12: other engines' names, other numbers, several engines a pod, other ways to begin again."""

import re
from itertools import count

import pytest

from kintsugi.core.page import PageReader
from kintsugi.core.reading import Unreadable
from kintsugi.core.sample import read_sample
from kintsugi.core.snapshot import Page
from tests.scenarios.served import ServedScene, replaced, served, without
from tests.scenarios.test_met_over_http import FROZEN, RENAMED
from tests.scenarios.watched import nothing_happened

Rows = list[tuple[float, float, float]]
"""By rank: running, waiting, KV usage."""


def ranks(rows: Rows, names: list[str]) -> str:
    """Gauges and steps of several engines on one page, in the names of vLLM."""
    lines = []
    for (running, waiting, usage), name in zip(rows, names, strict=True):
        label = f'engine="{name}",model_name="deepseek-v4"'
        lines += [
            f"vllm:num_requests_running{{{label}}} {running}",
            f"vllm:num_requests_waiting{{{label}}} {waiting}",
            f"vllm:kv_cache_usage_perc{{{label}}} {usage}",
        ]
    return "".join(line + "\n" for line in lines)


@pytest.mark.parametrize("usage", [(0.71, 0.69), (0.01, 0.99), (1.0, 1.0), (0.0, 0.4)])
@pytest.mark.parametrize("every", [1, 2], ids=["all of them", "KV usage alone"])
async def test_s08_any_mixture_of_old_and_new_names_is_read_alike(
    usage: tuple[float, float], every: int
) -> None:
    async with served({"short": 2}, nodes=3, seconds=90) as scene:
        old, new = scene.names_of("short")
        renamed = dict(list(RENAMED.items())[:1]) if every == 2 else RENAMED

        def before(text: str) -> str:
            text = replaced(kv_cache_usage_perc=usage[0])(text)
            for now, then in renamed.items():
                text = text.replace(now, then)
            return text

        scene.engines.rewrite = {old: before, new: replaced(kv_cache_usage_perc=usage[1])}
        await scene.run(1_500)
        seen = [scene.verdict(name).signals["kv_cache_usage_percent"] for name in (old, new)]
        assert seen == [pytest.approx(100 * each) for each in usage]
        assert scene.condition("DataFresh") == ("True", "AllRead")
        nothing_happened(scene)


MIXED: dict[str, tuple[Rows, list[str]]] = {
    "one of four hot": ([(0, 0, 0.02), (0, 0, 0.01), (200, 90, 1.0), (1, 0, 0.03)], ["0", "1", "2", "3"]),
    "eight, one idle": ([(32.0, 3.0, 0.8)] * 7 + [(0.0, 0.0, 0.0)], [str(n) for n in range(8)]),
    "names that are no numbers": ([(0, 0, 0.02), (64, 41, 0.97)], ["dp-a", "dp-b"]),
    "ranks that do not begin at nought": ([(0, 0, 0.02), (64, 41, 0.97)], ["8", "9"]),
}


@pytest.mark.parametrize(("rows", "names"), MIXED.values(), ids=list(MIXED))
async def test_s10_loads_are_summed_and_ratios_kept_whatever_the_ranks_are_called(
    rows: Rows, names: list[str]
) -> None:
    async with served({"short": 2}, nodes=3) as scene:
        pod = scene.names_of("short")[0]
        steps = count(10_000, 100)

        def page(text: str) -> str:
            rest = without("num_requests_running{", "num_requests_waiting{", "kv_cache_usage_perc")(text)
            busy = [name for (running, _, _), name in zip(rows, names, strict=True) if running]
            moving = "".join(
                re.sub(r"(_count\{.*\}) \S+$", rf"\g<1> {next(steps)}", line).replace(
                    'engine="0"', f'engine="{name}"'
                )
                + "\n"
                for name in busy
                for line in rest.splitlines()
                if line.startswith("vllm:iteration_tokens_total_count")
            )
            return (
                without("iteration_tokens")(rest).replace('engine="0"', f'engine="{names[0]}"')
                + moving
                + ranks(rows, names)
            )

        scene.engines.rewrite[pod] = page
        await scene.run(900)
        signals = scene.verdict(pod).signals
        assert (signals["running"], signals["waiting"]) == (
            sum(r for r, _, _ in rows),
            sum(w for _, w, _ in rows),
        )
        assert signals["kv_cache_usage_percent"] == pytest.approx(100 * max(k for _, _, k in rows))
        (scrape,) = await scene.engines.scrape([scene.address(pod)], 4.0)
        assert isinstance(scrape, Page)
        sample = read_sample(PageReader(), scrape)
        assert not isinstance(sample, Unreadable)
        assert sample.kv_mean() == pytest.approx(sum(k for _, _, k in rows) / len(rows))
        assert "RankImbalance" in scene.reasons(pod)
        assert scene.verdict(pod).verdict.value != "Idle"
        nothing_happened(scene)


@pytest.mark.parametrize("status", [401, 403, 404, 422, 429])
async def test_s11_frozen_gauges_of_an_engine_that_refuses_our_canaries_cost_no_pod(status: int) -> None:
    async with served({"short": 3}, then=5) as scene:
        pod = scene.names_of("short")[0]
        scene.engines.change(pod, running=0.0, kv_usage=0.0, canary_status=status)
        scene.engines.rewrite[pod] = replaced(**FROZEN)
        await scene.run(600)
        assert "Sick" not in {said for said, _ in scene.kept.seen[pod]}
        nothing_happened(scene)


@pytest.mark.parametrize("running", [1.0, 256.0, 1_024.0])
async def test_s11_frozen_gauges_of_a_whole_pool_whose_engines_answer_cost_no_pod(running: float) -> None:
    async with served({"short": 3}, then=5) as scene:
        for name in scene.names_of("short"):
            scene.engines.change(name, running=0.0, kv_usage=0.0)
            scene.engines.rewrite[name] = replaced(**{**FROZEN, "num_requests_running": running})
        await scene.run(600)
        assert not {said for seen in scene.kept.seen.values() for said, _ in seen} & {"Sick"}
        nothing_happened(scene)


COUNTERS = (
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "generation_tokens_total",
    "iteration_tokens_total_count",
    "request_success_total",
    "inter_token_latency_seconds_sum",
)


def reset_to_nought(scene: ServedScene, pod: str, *names: str) -> None:
    """From now on these counters of the page count from nought, and the start that it tells stays what it was."""
    held: dict[str, float] = {}

    def page(text: str) -> str:
        def less(found: re.Match[str]) -> str:
            first = held.setdefault(found.group(1), float(found.group(2)))
            return f"{found.group(1)} {max(0.0, float(found.group(2)) - first)}"

        for name in names:
            text = re.sub(rf"^(vllm:{name}\{{[^}}]*\}}) (\S+)$", less, text, flags=re.MULTILINE)
        return text

    scene.engines.rewrite[pod] = page


@pytest.mark.parametrize("name", [*COUNTERS, "all"])
async def test_s12_any_counter_that_falls_is_a_restart_though_the_start_time_stays(name: str) -> None:
    async with served({"short": 2}, nodes=3) as scene:
        pod = scene.names_of("short")[0]
        reset_to_nought(scene, pod, *(COUNTERS if name == "all" else (name,)))
        for _ in range(40):
            await scene.run(30)
            signals = scene.verdict(pod).signals
            assert all(value >= 0.0 for value in signals.values())
            assert not scene.reasons(pod) & {"LowCacheHit", "Preempting", "Erroring", "Slow"}
        assert "Sick" not in {said for said, _ in scene.kept.seen[pod]}
        nothing_happened(scene)
