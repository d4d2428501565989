"""Which series each detector needs of an engine of which version, checked when a process begins and now and then.

What is missing is named in the condition DataFresh, and the triggers that need it observe until it is there: a detector
that sees only part of what it rests on must not remove anything. Names by version stand in one table (`core.series`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.catalog.version import EngineVersion, parse_version, version_of
from kintsugi.core.detect.device_findings import unknown_devices
from kintsugi.core.detect.growing import MemoryState, Source
from kintsugi.core.detect.growing_findings import NO_LIMIT
from kintsugi.core.finding import Detector
from kintsugi.core.sample import FIELD_OF, Sample
from kintsugi.core.series import TABLE, Signal
from kintsugi.core.snapshot import Instance
from kintsugi.core.times import Times
from kintsugi_engine import contract

NEEDS: Final[Mapping[Detector, tuple[Signal, ...]]] = {
    Detector.STALLED: (Signal.RUNNING, Signal.STEPS, Signal.GENERATION_TOKENS, Signal.KV_USAGE),
    Detector.SLOW: (
        Signal.RUNNING,
        Signal.KV_USAGE,
        Signal.STEPS,
        Signal.PROMPT_TOKENS,
        Signal.ITL_SUM,
        Signal.ITL_COUNT,
        Signal.ITL_BUCKET,
    ),
    Detector.ERRORING: (Signal.FINISHED,),
    Detector.COLLAPSED: (
        Signal.RUNNING,
        Signal.WAITING,
        Signal.KV_USAGE,
        Signal.STEPS,
        Signal.PROMPT_TOKENS,
    ),
    Detector.CACHE_HIT: (Signal.PREFIX_QUERIES, Signal.PREFIX_HITS),
    Detector.PREEMPTING: (Signal.PREEMPTIONS,),
    Detector.DIVERGING: (Signal.RUNNING, Signal.STEPS),
    Detector.LOAD: (Signal.RUNNING, Signal.WAITING, Signal.GENERATION_TOKENS),
}
"""Series of the engine's own page without which a detector does not see what it rests on. What only sharpens a verdict
(reasons of waiting, HTTP counts, admission refusals) is not here: engines that never had it show none."""
SOURCES: Final[Mapping[str, Signal]] = {
    "Allocator": Signal.GPU_FRAGMENTATION,
    "OrphanedBlocks": Signal.ORPHANED_RATIO,
    "BlockWaste": Signal.BLOCK_WASTE,
}
"""The sources of the fragmentation trigger and the series each one needs; one of them is enough to act on."""
GPU_SERIES: Final = "DCGM_FI_DEV_GPU_UTIL"
"""What GPU use is taken from, out of a Prometheus server."""
_SUFFIXES: Final = ("_count", "_sum", "_bucket")


@dataclass(slots=True)
class ContractState:
    """What one process was last seen to lack. Monotonic seconds."""

    checked_at: float | None = None
    seen: set[Signal] = field(default_factory=set)
    """What stood on one of its pages."""
    gone: dict[Signal, float] = field(default_factory=dict)
    """Since when each one that is not on the newest page has been missed."""
    missing: frozenset[Signal] = frozenset()
    """What it never had, or has not had for longer than evidence may have gaps."""


def check(state: ContractState, sample: Sample, times: Times) -> None:
    """Compare a page with the contract: the first of a process, then one a minute, and each while something is missing."""
    at = state.checked_at
    if at is not None and not state.gone and sample.mono - at < times.growth_sample:
        return
    state.checked_at = mono = sample.mono
    here = {signal for signal in _PAGE if _stands(signal, sample)}
    state.seen |= here
    state.gone = {signal: state.gone.get(signal, mono) for signal in _PAGE if signal not in here}
    state.missing = frozenset(
        signal
        for signal, since in state.gone.items()
        if signal not in state.seen or mono - since > times.readable_gap
    )


def lacking(
    state: ContractState,
    sample: Sample | None,
    memory: MemoryState,
    spec: DeploymentSpec,
    instance: Instance,
    mono: float,
    times: Times,
) -> dict[Detector, tuple[str, ...]]:
    """Detectors that this instance gives too little to act by, with the names that each one misses."""
    found: dict[Detector, tuple[str, ...]] = {}
    if state.missing:
        version = _version(instance.image, spec.engine.version if spec.engine else None)
        for detector, needed in NEEDS.items():
            names = dict.fromkeys(name_in(signal, version) for signal in needed if signal in state.missing)
            if names and (detector is not Detector.DIVERGING or (sample and len(sample.ranks) > 1)):
                found[detector] = tuple(names)
        sources = _sources(spec)
        if state.missing.issuperset(sources):
            found[Detector.FRAGMENTED] = tuple(name_in(signal, version) for signal in sources)
    unsaid = _memory_unsaid(memory, mono, times)
    if unsaid:
        found[Detector.GROWING] = (unsaid,)
    return found


def missing_names(
    lacks: Mapping[Detector, tuple[str, ...]], state: ContractState, spec: DeploymentSpec, instance: Instance
) -> tuple[str, ...]:
    """Everything that DataFresh is to name for one instance, single sources of fragmentation and devices among it."""
    names: list[str] = [name for each in lacks.values() for name in each]
    names += [name_in(signal, None) for signal in _sources(spec) if signal in state.missing]
    measured = instance.measured
    if measured is not None and not measured.gpu_use and instance.devices != ():
        names.append(GPU_SERIES)
    return tuple(dict.fromkeys((*names, *unknown_devices(instance.devices))))


def name_in(signal: Signal, version: EngineVersion | None) -> str:
    """What an engine of `version` calls the signal, histograms by their own name; older names where it may still have
    them. Of an engine whose version nobody knows the newest name is told."""
    newest, *older = TABLE[signal].names
    still = [name.metric for name in older if version is not None and _before(version, name.removed_in)]
    told = [_bare(newest.metric), *(f"or {_bare(name)}" for name in still)]
    return " ".join(told)


def needed_by(signal: Signal) -> tuple[Detector, ...]:
    """The detectors that need the signal."""
    return tuple(detector for detector, needed in NEEDS.items() if signal in needed)


def _sources(spec: DeploymentSpec) -> list[Signal]:
    return [SOURCES[source] for source in spec.healing.triggers.fragmentation.sources]


def _bare(metric: str) -> str:
    for suffix in _SUFFIXES:
        metric = metric.removesuffix(suffix)
    return metric


def _before(version: EngineVersion, removed_in: str) -> bool:
    removed = parse_version(removed_in)
    return removed is not None and version < removed


def _memory_unsaid(memory: MemoryState, mono: float, times: Times) -> str:
    """What keeps the growth of memory from being judged; '' where nothing does."""
    if not memory.fresh(mono, times) or memory.source is Source.WORKING_SET:
        return contract.CONTAINER_MEMORY_ANONYMOUS
    return NO_LIMIT if memory.limit is None else ""


def _stands(signal: Signal, sample: Sample) -> bool:
    """Whether every rank of the page has it."""
    name = FIELD_OF.get(signal)
    if name is None:
        return bool(sample.telemetry.get(signal))
    return all(getattr(rank, name) is not None for rank in sample.ranks)


_PAGE: Final = tuple(
    dict.fromkeys((*(signal for needed in NEEDS.values() for signal in needed), *SOURCES.values()))
)


@lru_cache(maxsize=1024)
def _version(image: str, written: str | None) -> EngineVersion | None:
    return version_of(image, written)
