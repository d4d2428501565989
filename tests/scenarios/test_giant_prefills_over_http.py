"""Prompts of a million tokens in engines that are well (S18), over HTTP: each takes minutes, and nobody is thrown away for it."""

import re
from collections.abc import Callable

import pytest

from kintsugi.core.page import PageReader
from kintsugi.core.reading import Unreadable
from kintsugi.core.sample import read_sample
from kintsugi.core.snapshot import Page
from tests.scenarios.served import ServedScene, replaced, served

COUNTERS = {
    "generation_tokens_total": "generation_tokens",
    "prompt_tokens_total": "prompt_tokens",
    "iteration_tokens_total_count": "steps",
    "time_to_first_token_seconds_count": "first_tokens",
    "inter_token_latency_seconds_count": "itl_count",
    "inter_token_latency_seconds_sum": "itl_sum",
}
STEP = 2.0
"""Seconds of a step that carries a whole chunk."""


async def counters(scene: ServedScene, pod: str) -> dict[str, float]:
    """What the pod's page counts now."""
    (scrape,) = await scene.engines.scrape([scene.address(pod)], 4.0)
    assert isinstance(scrape, Page)
    start = read_sample(PageReader(), scrape)
    assert not isinstance(start, Unreadable)
    return {name: start.total(field) or 0.0 for name, field in COUNTERS.items()}


def decoding(at: dict[str, float], t: float, batch: int) -> dict[str, float]:
    """The counters after `t` seconds in which `batch` requests got a token in each step."""
    steps = int(t / STEP)
    more = {
        "iteration_tokens_total_count": steps,
        "generation_tokens_total": batch * steps,
        "inter_token_latency_seconds_count": batch * steps,
        "inter_token_latency_seconds_sum": batch * steps * STEP,
    }
    return {name: value + more.get(name, 0) for name, value in at.items()}


async def let_be(scene: ServedScene, pod: str, page: Callable[[str, float], str], seconds: float) -> None:
    """Serve `page(text, seconds since now)` for so long; the pod is never sick, and stays where it is."""
    began = scene.cluster.clock.mono()
    scene.engines.rewrite[pod] = lambda text: page(text, scene.cluster.clock.mono() - began)
    while scene.cluster.clock.mono() - began < seconds:
        await scene.run(5)
        assert scene.verdict(pod).verdict.value != "Sick", scene.cluster.clock.mono() - began
    assert (scene.remediations(), scene.removals(), scene.rotation(pod)) == ([], [], "in")


@pytest.mark.parametrize("seconds", [640.0, 1_000.0])
async def test_a_lone_prefill_of_which_only_kv_usage_tells_is_let_be(seconds: float) -> None:
    async with served({"long": 3}, then=5) as scene:
        pod = scene.names_of("long")[0]
        scene.engines.change(pod, hung=True, running=1.0)

        def page(text: str, t: float) -> str:
            return replaced(num_requests_running=1.0, kv_cache_usage_perc=0.05 + 0.3 * t / seconds)(text)

        await let_be(scene, pod, page, seconds)


async def test_a_prefill_that_is_computed_as_a_whole_is_let_be() -> None:
    async with served({"long": 3}, then=5, engine={"args": {"enableChunkedPrefill": False}}) as scene:
        pod = scene.names_of("long")[0]
        scene.engines.change(pod, hung=True, running=1.0)
        await let_be(scene, pod, lambda text, t: text, 650.0)


@pytest.mark.parametrize("seconds", [310.0, 1_000.0])
async def test_a_prefill_beside_decodes_lets_nobody_in_and_is_let_be(seconds: float) -> None:
    async with served({"long": 3}, then=5, engine={"args": {"maxNumSeqs": 64}}) as scene:
        pod = scene.names_of("long")[0]
        at = await counters(scene, pod)
        scene.engines.change(pod, hung=True, running=9.0)

        def page(text: str, t: float) -> str:
            text = text.replace('kv_cache_max_concurrency="64.0"', 'kv_cache_max_concurrency="3.0"')
            usage = 0.05 + 0.3 * t / seconds
            return replaced(
                num_requests_running=9.0,
                num_requests_waiting=5.0,
                kv_cache_usage_perc=usage,
                **decoding(at, t, 8),
            )(text)

        await let_be(scene, pod, page, seconds)


async def test_one_giant_after_the_other_beside_decodes_is_not_slow_where_only_the_engine_counts_prompts() -> (
    None
):
    async with served({"long": 3}, then=5, seconds=3_900) as scene:
        pod, prefill = scene.names_of("long")[0], 262.0
        scene.forget()
        at = await counters(scene, pod)

        def page(text: str, t: float) -> str:
            values = decoding(at, t, 12)
            values["time_to_first_token_seconds_count"] += int(t / 100)
            values["prompt_tokens_total"] += 1_048_576 * int(t / prefill)
            count = int(values["inter_token_latency_seconds_count"])
            bucket = r"^(vllm:inter_token_latency_seconds_bucket\{[^}]*\}) \S+$"
            text = re.sub(bucket, rf"\g<1> {count}", text, flags=re.MULTILINE)
            usage = 0.2 + 0.3 * (t % prefill) / prefill
            return replaced(num_requests_running=13.0, kv_cache_usage_perc=usage, **values)(text)

        await let_be(scene, pod, page, 1_200.0)
