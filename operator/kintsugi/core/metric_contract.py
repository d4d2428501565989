"""Which series each detector needs of an engine of which version, checked when a process begins and now and then.

What is missing is named in the condition DataFresh, and the triggers that need it observe until it is there: a detector
that sees only part of what it rests on must not remove anything. Names by version stand in one table (`core.series`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

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


class Written(NamedTuple):
    """What the user wrote that says which series are needed: the engine's version, the sources of fragmentation."""

    version: str | None
    sources: tuple[str, ...]


def written_of(spec: DeploymentSpec) -> Written:
    """The same, read from the spec once a pass."""
    version = spec.engine.version if spec.engine is not None else None
    return Written(version, spec.healing.triggers.fragmentation.sources)


@dataclass(frozen=True, slots=True)
class Owed:
    """What one instance gives too little of."""

    lacking: Mapping[Detector, tuple[str, ...]]
    """Detectors that must not act, with the names that each one misses."""
    names: tuple[str, ...]
    """Everything that DataFresh is to name, single sources of fragmentation among it."""


NOTHING_OWED: Final = Owed({}, ())


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
    key: tuple[object, ...] = ()
    owed: Owed = NOTHING_OWED
    """What follows from `key`: it changes with the key alone, and a pass has a thousand instances."""


def check(state: ContractState, sample: Sample, times: Times) -> None:
    """Compare a page with the contract: the first of a process, then one a minute. What was missing and is there again
    counts at once, and what was lost counts as soon as it has been missed for long enough."""
    mono = sample.mono
    young = state.checked_at is not None and mono - state.checked_at < times.growth_sample
    if young and not _changes(state, sample, times):
        return
    state.checked_at = mono
    here = {signal for signal in _PAGE if _stands(signal, sample)}
    state.seen |= here
    state.gone = {signal: state.gone.get(signal, mono) for signal in _PAGE if signal not in here}
    state.missing = frozenset(
        signal
        for signal, since in state.gone.items()
        if signal not in state.seen or mono - since > times.readable_gap
    )


def _changes(state: ContractState, sample: Sample, times: Times) -> bool:
    """Whether one that was missed is there again, or has been missed for long enough by now."""
    for signal, at in state.gone.items():
        if _stands(signal, sample):
            return True
        if signal not in state.missing and sample.mono - at > times.readable_gap:
            return True
    return False


def owed(
    state: ContractState,
    ranks: int,
    memory: MemoryState,
    written: Written,
    instance: Instance,
    mono: float,
    times: Times,
) -> Owed:
    """What this instance gives too little of to act by it; `ranks`: of its newest page."""
    unsaid = _memory_unsaid(memory, mono, times)
    measured = instance.measured
    no_gpus = measured is not None and not measured.gpu_use and instance.devices != ()
    key = (state.missing, unsaid, ranks > 1, written, instance.image, instance.devices, no_gpus)
    if key == state.key:
        return state.owed
    version, sources = _version(instance.image, written.version), written.sources
    found: dict[Detector, tuple[str, ...]] = {}
    for detector, needed in NEEDS.items():
        names = dict.fromkeys(name_in(signal, version) for signal in needed if signal in state.missing)
        if names and (detector is not Detector.DIVERGING or ranks > 1):
            found[detector] = tuple(names)
    absent = [name_in(SOURCES[source], version) for source in sources if SOURCES[source] in state.missing]
    if len(absent) == len(sources):
        found[Detector.FRAGMENTED] = tuple(absent)
    if unsaid:
        found[Detector.GROWING] = (unsaid,)
    told = [name for names in found.values() for name in names] + absent + [GPU_SERIES] * no_gpus
    state.key = key
    state.owed = Owed(found, tuple(dict.fromkeys((*told, *unknown_devices(instance.devices)))))
    return state.owed


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
