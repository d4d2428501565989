"""A17: does memory leak? Four places, since the leaks that people had were mostly not where the article looks."""

import math
from typing import Final

from kintsugi.core.advisor.look import Look
from kintsugi.core.classify.kinds import OOM_KILLED
from kintsugi.core.explain.scene import Question, Scene, Step, named, worst
from kintsugi.core.look import TELEMETRY_AGE
from kintsugi.core.series import Signal
from kintsugi_engine import contract

IDLE_KV: Final = 2.0
"""Percent of KV blocks in use without a request from which on somebody still holds them. Assumed: cached blocks that
nobody uses count as free in vLLM V1, so that an idle engine shows 0."""
MEMORY_HIGH: Final = 90.0
"""Percent of the container's limit from which on host memory is worth a look. Assumed."""

GPU_MEMORY: Final = Question(
    "A17",
    "gpu-memory",
    "Is GPU memory free, but in pieces?",
    "vLLM takes its GPU memory at the start and keeps it: nvidia-smi shows a flat line in healthy engines and in most "
    "leaking ones",
    "a new process gives it back where it began lower, which spec.healing.triggers.fragmentation acts on",
    "vLLM exports no such figure: the engine must show kintsugi_gpu_memory_fragmentation_ratio",
)
BLOCKS: Final = Question(
    "A17",
    "orphaned-blocks",
    "Are KV blocks held that no request uses?",
    "a KV pool of equal blocks can't fragment, but blocks can stay taken after their request has gone",
    "look for a KV connector or an aborted request that keeps blocks; a new process gives them back",
    "look while the fleet is idle, or have the engine show its share of orphaned blocks",
)
HOST_MEMORY: Final = Question(
    "A17",
    "host-memory",
    "Does host memory grow towards the container's limit?",
    "the leaks that people really had were here, and nvidia-smi does not show them",
    "raise the limit for now, and replace instances before they reach it; look at multimodal caches and KV offload",
    "container_memory_working_set_bytes over the container's limit, over a day; kubectl top pod shows it now",
)
KILLED: Final = Question(
    "A17",
    "out-of-memory",
    "Was an engine killed for its memory?",
    "a leak that nobody watched ends this way: exit code 137 with reason OOMKilled",
    f"{OOM_KILLED.cure.replace('{at}', 'spec.' + OOM_KILLED.field)}",
    "kubectl get pod -o yaml: lastState.terminated.reason",
)


def leak(scene: Scene) -> list[Step]:
    """The steps, in the order in which to look."""
    return [_gpu_memory(scene), _blocks(scene), _host_memory(scene), _killed(scene)]


def _gpu_memory(scene: Scene) -> Step:
    limit = float(scene.triggers.fragmentation.threshold_percent)
    values = _ratios(scene, Signal.GPU_FRAGMENTATION)
    numbers = {"thresholdPercent": limit}
    high = worst(values)
    if high is not None:
        numbers["worstPercent"] = high[1]
    if found := scene.found("fragmentation"):
        return GPU_MEMORY.suspect(named(found), numbers)
    if high is not None:
        said = f"at most {high[1]:.0f} % fragmented ({high[0]}), the line is {limit:.0f} %"
        return GPU_MEMORY.suspect(said, numbers) if high[1] > limit else GPU_MEMORY.ok(said, numbers)
    fresh, reason, message = scene.condition("DataFresh")
    exported = reason in ("AllRead", "SeriesMissing") and contract.GPU_FRAGMENTATION not in message
    if fresh == "True" and exported and scene.judged() and not scene.unseen():
        said = f"the operator reads it on {len(scene.judged())} instances, and finds none above {limit:.0f} %"
        return GPU_MEMORY.ok(said, numbers)
    return GPU_MEMORY.unknown("no page shows how fragmented the memory is", numbers)


def _blocks(scene: Scene) -> Step:
    limit = float(scene.triggers.fragmentation.threshold_percent)
    high = worst(_ratios(scene, Signal.ORPHANED_RATIO))
    if high is not None:
        numbers = {"orphanedPercent": high[1], "thresholdPercent": limit}
        said = (
            f"at most {high[1]:.0f} % of the blocks belong to nobody ({high[0]}), the line is {limit:.0f} %"
        )
        return BLOCKS.suspect(said, numbers) if high[1] > limit else BLOCKS.ok(said, numbers)
    idle = {one.name: held for one in scene.engines() if (held := _held_idle(one.looks)) is not None}
    most = worst(idle)
    if not scene.engines():
        return BLOCKS.unknown("no page was read")
    if most is None:
        return BLOCKS.unknown("no engine was seen twice without requests, and none shows orphaned blocks")
    numbers = {"heldWhileIdlePercent": most[1], "idleInstances": float(len(idle))}
    said = f"{most[0]} held {most[1]:.1f} % of its blocks without a request (of {len(idle)} that were idle)"
    return BLOCKS.suspect(said, numbers) if most[1] > IDLE_KV else BLOCKS.ok(said, numbers)


def _held_idle(looks: tuple[Look, ...]) -> float | None:
    """Percent of blocks in use on the pages without a request, the least of at least two; None of fewer."""
    seen = [
        100 * usage
        for look in looks
        if look.sample.total("running") == 0
        and look.sample.total("waiting") == 0
        and (usage := look.sample.kv_max()) is not None
        and 0 <= usage <= 1
    ]
    return min(seen) if len(seen) >= 2 else None


def _host_memory(scene: Scene) -> Step:
    told = {
        one.name: one.signals.memory_percent
        for one in scene.judged()
        if one.signals is not None and one.signals.memory_percent is not None
    }
    high = worst(told)
    numbers = {} if high is None else {"worstPercent": high[1]}
    if found := scene.found("memoryGrowth"):
        return HOST_MEMORY.suspect(named(found), numbers)
    if high is not None and high[1] >= MEMORY_HIGH:
        return HOST_MEMORY.suspect(f"{high[0]} uses {high[1]:.0f} % of its limit", numbers)
    if high is not None and len(told) == len(scene.judged()) and not scene.unseen():
        return HOST_MEMORY.ok(f"at most {high[1]:.0f} % of the limit in use ({high[0]})", numbers)
    return HOST_MEMORY.unknown("no page and no status tells the memory of every instance", numbers)


def _killed(scene: Scene) -> Step:
    if scene.case is None:
        return KILLED.unknown("there is no status to look at")
    said = [
        f"{one.name}: {each.message}"
        for one in scene.case.status.instances
        for each in one.findings
        if OOM_KILLED.name in (each.reason, one.reason) or OOM_KILLED.name in each.message
    ]
    said += [
        f"{record.spec.instance.name} ({record.metadata.name}): {record.status.message}"
        for record in scene.case.remediations
        if OOM_KILLED.name in record.status.message
    ]
    numbers = {"killed": float(len(said))}
    if said:
        return KILLED.suspect("; ".join(said[:3])[:600], numbers)
    if not scene.case.status.instances:
        return KILLED.unknown("the status names no instance", numbers)
    return KILLED.ok(
        f"none of {len(scene.case.status.instances)} instances, and of {len(scene.case.remediations)} Remediations read",
        numbers,
    )


def _ratios(scene: Scene, signal: Signal) -> dict[str, float]:
    """By instance: the worst worker's percent on its newest page; only values that are fresh there."""
    found = {}
    for one in scene.engines():
        sample = one.looks[-1].sample
        ages = sample.telemetry.get(Signal.SAMPLE_AGE, {})
        only = next(iter(ages.values())) if len(ages) == 1 else 0.0
        values = [
            100 * value
            for worker, value in sample.telemetry.get(signal, {}).items()
            if math.isfinite(value) and ages.get(worker, only) <= TELEMETRY_AGE
        ]
        if values:
            found[one.name] = max(values)
    return found
