"""Engines that are sick, or only look like it (SICK and S26), over HTTP, read and judged as in production.

Each test begins with the scenario's id. Time is simulated; what the incident shows is on the pages, in its own figures.
"""

from itertools import count, pairwise

import pytest

from kintsugi.core.page import PageReader
from kintsugi.core.reading import Unreadable
from kintsugi.core.sample import read_sample
from kintsugi.core.snapshot import Failure, Page
from kintsugi.testing.fleet import Behaviour
from tests.scenarios.served import replaced, served, without
from tests.scenarios.watched import nothing_happened

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
        evidence = {each.signal: each.value for each in done.status.evidence}
        assert evidence["canaries unanswered"] == 3
        sent = [evidence[f"canary {number} sent, after the last step"] for number in (1, 2, 3)]
        assert sent == sorted(sent)
        assert 10 <= sent[0] <= 20
        assert sent[-1] <= 60
        assert evidence["seconds without a step of rank 0"] >= 60
        assert done.status.timeline.withdrawn is not None
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
        (told,) = [
            f.message for f in scene.verdict(scene.names_of("short")[1]).findings if f.reason == "Saturated"
        ]
        assert "add capacity or shed load" in told
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
        await scene.run(55)
        assert (scene.verdict(pod).verdict.value, scene.rotation(pod)) == ("Suspect", "in")
        took = 55 + await scene.until_removed(within=400)
        assert 300 <= took <= 320, "there is nothing to drain"
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
        (told,) = [f.message for f in scene.verdict(pod).findings if f.reason == "LongPrefillBlocks"]
        assert all(cure in told for cure in ("pool of their own", "tensor", "maxNumBatchedTokens")), told
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


JIT = {"time_to_first_token_seconds_sum": 34.6, "time_to_first_token_seconds_count": 10.0}
"""Request 1 took 31 s to its first token, requests 2 to 10 took 0.4 s: the mean and every quantile above 90 are slow."""


@pytest.mark.parametrize("compiles", [14.0, 31.0, 34.0, 55.0])
@pytest.mark.parametrize(
    "forgetful", [False, True], ids=["one operator", "an operator that restarts meanwhile"]
)
async def test_s19_compilation_in_each_length_class_in_turn_is_warm_up_whoever_watches(
    compiles: float, forgetful: bool
) -> None:
    async with served({"short": 3}, then=5) as scene:
        pod = scene.names_of("short")[0]
        scene.cluster.exit_container("llm", pod, 0, "Completed")
        await scene.run(90)
        scene.forget()
        scene.engines.rewrite[pod] = replaced(**JIT)
        for running in (1.0, 2.0, 4.0, 8.0):  # the first request of each length class
            scene.engines.change(pod, hung=True, running=running)
            await scene.run(compiles)
            scene.engines.change(pod, hung=False, running=running, slow=3.0)
            await scene.run(20)
            if forgetful:
                scene.restart()
        scene.engines.change(pod, slow=1.0)
        await scene.run(900)
        assert not {said for said, _ in scene.kept.seen[pod]} & {"Sick", "Suspect"}
        nothing_happened(scene)


async def test_s19_the_warm_up_is_counted_from_this_processs_start_and_ends() -> None:
    async with served({"short": 3}, then=5) as scene:
        pod = scene.names_of("short")[0]
        scene.engines.change(pod, hung=True, running=3.0)
        await scene.until_withdrawn(pod, within=90)
        began = scene.cluster.clock.mono()
        scene.engines.change(pod, hung=False)
        await scene.run(60)
        scene.cluster.exit_container("llm", pod, 0, "Completed")
        await scene.run(60)
        scene.engines.change(pod, hung=True, running=3.0)
        assert await scene.until_withdrawn(pod, within=900) >= 60
        assert scene.cluster.clock.mono() - began >= 180


# S20 ------------------------------------------------------------------------------------------------------------------

HOUR = 3_600.0


async def test_s20_a_leak_on_all_four_is_recycled_one_at_a_time_before_the_limit() -> None:
    async with served({"short": 4}, nodes=4, seconds=0.1) as scene:
        starts = count()
        scene.engines.behaviour = lambda pod: Behaviour(memory=22.0 + 0.25 * next(starts) % 1.0, leak=8.0)
        removed: list[float] = []
        forecasts: set[str] = set()
        began: dict[str, float] = {}
        while scene.cluster.clock.mono() < 5.2 * HOUR:
            await scene.run(60)
            if scene.cluster.clock.mono() < 600:
                behaviours = {name: scene.engines.behaviour_of(name) for name in scene.names_of("short")}
                began = {name: b.memory for name, b in behaviours.items() if b is not None and b.memory}
            if len(scene.removals()) > len(removed):
                removed.append(scene.cluster.clock.mono())
            assert len(scene.removals()) == len(removed)
            assert scene.cluster.clock.mono() < 600 or scene.serving() >= 3
            forecasts |= {
                i.name for i in scene.status.instances if i.signals and i.signals.memory_forecast_seconds
            }
        assert {each.spec.trigger for each in scene.remediations()} == {"memoryGrowth"}
        assert len(removed) == 4
        assert scene.removals() == sorted(began, key=lambda name: -began[name]), "the highest first"
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
