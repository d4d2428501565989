"""Settings of healing that make it dangerous, or blind (A10, A18)."""

from collections.abc import Iterator
from typing import Final

from kintsugi.api.healing import Budget
from kintsugi.core.command.telemetry import unsure
from kintsugi.core.pod import telemetry
from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.view import View

SHORT_DRAIN_SECONDS: Final = 30
"""A drain below this cuts answers that are being written: 30 s are about a thousand tokens."""
_QUICK_STALL_SECONDS: Final = 60
_DEFAULT: Final = Budget()


def _budget(view: View) -> Iterator[Said]:
    healing = view.spec.healing
    if healing.mode != "Act":
        return
    flight = healing.budget.max_in_flight_per_pool
    for pool in view.pools:
        if flight is not None and pool.pool.replicas > 1 and flight >= pool.pool.replicas:
            yield Said(
                "spec.healing.budget.maxInFlightPerPool",
                f"is {flight}, and pool {pool.pool.name!r} has {pool.pool.replicas} instances: all of them may be replaced at "
                "the same time",
                "use 1, or a tenth of the pool",
            )


def _min_healthy(view: View) -> Iterator[Said]:
    healing = view.spec.healing
    if healing.mode == "Act" and healing.budget.min_healthy_percent == 0:
        yield Said(
            "spec.healing.budget.minHealthyPercent",
            "is 0: of a pool that falls sick, all but one instance may be taken out of service",
            f"use {_DEFAULT.min_healthy_percent}, the default",
        )


def _drain(view: View) -> Iterator[Said]:
    seconds = view.spec.healing.drain.timeout_seconds
    if seconds < SHORT_DRAIN_SECONDS:
        yield Said(
            "spec.healing.drain.timeoutSeconds",
            f"is {seconds} s: answers that take longer are cut at each replacement and rollout, and an engine that gets its "
            "signal with streams open may hang",
            f"use at least {SHORT_DRAIN_SECONDS}, better the time of the pool's longest answer (absent: 300)",
        )


def _storm(view: View) -> Iterator[Said]:
    storm, instances = view.spec.healing.storm, sum(pool.pool.replicas for pool in view.pools)
    if view.spec.healing.mode != "Act":
        return
    if storm.percent == 100:
        yield Said(
            "spec.healing.storm.percent",
            "is 100, which must be exceeded: no storm is ever seen, and a shared cause gets instances removed one by one",
            "leave it at 30",
        )
    elif 1 < instances < storm.min_instances:
        yield Said(
            "spec.healing.storm.minInstances",
            f"is {storm.min_instances}, and there are {instances} instances in all: no storm is ever seen",
            "leave it at 2",
        )


def _rehearsal(view: View) -> Iterator[Said]:
    speed = view.spec.healing.speed_up
    if view.spec.healing.rehearsal is not None and speed > 1:
        yield Said(
            "spec.healing.rehearsal",
            f"shortens every duration of the judge {speed:g} times: evidence that convinces in a drill does not in production",
            "remove it after the drill",
        )


def _hasty(view: View) -> Iterator[Said]:
    stall = view.spec.healing.triggers.stall
    if stall.for_seconds is not None and stall.for_seconds < _QUICK_STALL_SECONDS:
        yield Said(
            "spec.healing.triggers.stall.forSeconds",
            f"is {stall.for_seconds}: engines were seen to pause so long and recover by themselves",
            f"use at least {_QUICK_STALL_SECONDS}, the default",
        )
    remove = stall.remove_after_seconds
    if remove is not None and remove < 300:
        yield Said(
            "spec.healing.triggers.stall.removeAfterSeconds",
            f"is {remove}: pauses of up to five minutes that end by themselves are reported, and the engine's own breaker "
            "waits 300 s",
            "use at least 300, the default",
        )


def _blind(view: View) -> Iterator[Said]:
    trigger = view.spec.healing.triggers.fragmentation
    for pool in view.pools:
        if pool.pool.engine.telemetry == "Disabled":
            yield Said(
                pool.path("engine.telemetry"),
                "is Disabled: no series tells fragmentation then, and spec.healing.triggers.fragmentation sees nothing",
                "use Auto",
            )
        elif pool.version is None and pool.says("engine.image"):
            continue  # EngineVersionUnknown says it
        elif telemetry.wanted(pool.pool) and (why := unsure(pool.pool, pool.choice)):
            yield Said(
                pool.path("engine.version" if pool.says("engine.version") else "engine.image"),
                f"{why}; spec.healing.triggers.fragmentation sees nothing",
                "name the release that the image holds; KINTSUGI_TELEMETRY=Force in engine.env lays it on in any case",
            )
    if "BlockWaste" in trigger.sources and view.spec.healing.mode_of("fragmentation") == "Act":
        yield Said(
            "spec.healing.triggers.fragmentation.sources",
            "names BlockWaste, and the trigger acts: waste inside blocks comes from the traffic, so that a new instance has it "
            "again at once",
            "remove it, or set the trigger's mode to Observe or Recommend",
        )


RULES: Final = (
    Rule(
        name="BudgetAllowsAll",
        severity="Warning",
        summary="The budget lets a whole pool be replaced at once.",
        why="A wrong verdict, or a cause that all share, then takes the pool away.",
        sources=("https://sre.google/workbook/canarying-releases/",),
        claims=("A10",),
        check=_budget,
        good=(example(pools=[{"name": "a", "replicas": 4}], healing={"budget": {"maxInFlightPerPool": 1}}),),
        bad=(example(pools=[{"name": "a", "replicas": 4}], healing={"budget": {"maxInFlightPerPool": 4}}),),
    ),
    Rule(
        name="MinHealthyZero",
        severity="Warning",
        summary="No share of a pool has to stay healthy.",
        why="The rest must carry the load of those that are replaced.",
        sources=("https://kubernetes.io/docs/concepts/workloads/pods/disruptions/",),
        claims=("A10",),
        check=_min_healthy,
        good=(example(healing={"budget": {"minHealthyPercent": 50}}),),
        bad=(example(healing={"budget": {"minHealthyPercent": 0}}),),
    ),
    Rule(
        name="DrainShort",
        severity="Warning",
        summary="Withdrawn instances have little time to finish.",
        why="A SIGTERM with open streams cuts them, and was seen to hang engines until their clients left.",
        sources=("https://github.com/vllm-project/production-stack/issues/619",),
        check=_drain,
        good=(example(healing={"drain": {"timeoutSeconds": 300}}),),
        bad=(
            example(healing={"drain": {"timeoutSeconds": 0}}),
            example(healing={"drain": {"timeoutSeconds": 10}}),
        ),
    ),
    Rule(
        name="StormUnseen",
        severity="Warning",
        summary="The protection against storms can never trip.",
        why="Many instances sick at once have one cause, which no replacement cures.",
        sources=("https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction",),
        claims=("A10",),
        check=_storm,
        good=(example(pools=[{"name": "a", "replicas": 4}], healing={"storm": {"percent": 30}}),),
        bad=(
            example(pools=[{"name": "a", "replicas": 4}], healing={"storm": {"percent": 100}}),
            example(pools=[{"name": "a", "replicas": 4}], healing={"storm": {"minInstances": 8}}),
        ),
    ),
    Rule(
        name="RehearsalOn",
        severity="Warning",
        summary="The judge's clock runs faster.",
        why="Shortened windows hasten verdicts on too little evidence.",
        sources=("https://principlesofchaos.org/",),
        check=_rehearsal,
        good=(example(healing={}),),
        bad=(example(healing={"rehearsal": {"speedUp": 10}}),),
    ),
    Rule(
        name="StallHasty",
        severity="Warning",
        summary="Stalled engines are withdrawn or removed sooner than the evidence allows.",
        why="Self-recovering stalls of minutes are on record.",
        sources=("https://github.com/vllm-project/vllm/issues/51921",),
        check=_hasty,
        good=(example(healing={"triggers": {"stall": {"forSeconds": 60, "removeAfterSeconds": 300}}}),),
        bad=(
            example(healing={"triggers": {"stall": {"forSeconds": 30}}}),
            example(healing={"triggers": {"stall": {"forSeconds": 60, "removeAfterSeconds": 120}}}),
        ),
    ),
    Rule(
        name="FragmentationBlind",
        severity="Warning",
        summary="Fragmentation can't be seen, or is taken for what a restart can't cure.",
        why="vLLM exports no such series: the engine's telemetry measures it. Waste inside blocks is traffic's own.",
        sources=("https://github.com/vllm-project/vllm/pull/57336",),
        claims=("A10", "A17", "A20"),
        check=_blind,
        good=(
            example(engine={"telemetry": "Auto"}),
            example(engine={"image": "registry.corp/vllm:prod", "version": "0.32.0"}),
            example(engine={"image": "registry.corp/vllm:prod", "telemetry": "Image"}),
        ),
        bad=(
            example(engine={"telemetry": "Disabled"}),
            example(engine={"version": "0.99.0"}),
            example(engine={"image": "vllm/vllm-openai:v0.99.0", "telemetry": "Auto"}),
            example(healing={"triggers": {"fragmentation": {"sources": ["Allocator", "BlockWaste"]}}}),
        ),
    ),
)
