"""`growing`: memory that nothing takes back rises towards the container's limit, at which the kernel kills the engine.

What leaks is the floor, what kills is the peak: the slope is taken through the minima of six buckets (Theil and Sen:
the median of the slopes of all pairs), and the forecast starts from the highest sample of the last two. A process is
looked at every ten minutes from 3.5 hours after its start on, and two looks in a row have to agree (hang §2).
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, unique
from itertools import combinations, pairwise
from statistics import median
from typing import Final, NamedTuple

from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Measured
from kintsugi.core.times import Times

BUCKETS: Final = 6
"""Minima of which the slope is made (hang §2)."""
LEVEL: Final = 0.7
"""Share of the limit below which a peak is far from it (hang §2)."""
LOOKS_NEEDED: Final = 2
"""Looks in a row that must agree, for a verdict and for its end (hang §2)."""
RISING_QUANTILE: Final = 0.2
"""This quantile of the pairs' slopes must rise too, so that a single step is no slope (hang §2)."""
EMPTY_BUCKETS: Final = 2
"""So many buckets without a sample, and the watch starts again (hang §2)."""
SAME_LIMIT: Final = 0.01
"""Share by which two words on one limit may differ: the kernel rounds `memory.max` to pages, and what a node leaves to a
pod without a limit moves with its smaller neighbours."""
_ANONYMOUS: Final = Signal.MEMORY_ANONYMOUS
_SHARED: Final = Signal.MEMORY_SHARED
_LIMIT: Final = Signal.MEMORY_LIMIT
_NOTHING: Final[Mapping[str, float]] = {}
MEASURED_AGE: Final = 180.0
"""Real seconds after which a Prometheus server's word is too old: three of its looks a minute. Judgement."""


@unique
class Source(Enum):
    """Where a level comes from, the best first. Values are the words of messages."""

    ENGINE = "the engine's own cgroup"
    RSS = "container_memory_rss"
    WORKING_SET = "container_memory_working_set_bytes"
    """Page cache of the weights looks like growth in it (10-32 % of healthy series a week, hang §2): advice only."""


_ENGINE: Final = Source.ENGINE


class Level(NamedTuple):
    """Bytes in use at one moment, and the bytes at which the kernel kills; `limit` None where there is no limit."""

    used: float
    limit: float | None
    source: Source


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one look found. Bytes, and seconds."""

    slope: float
    """Bytes per second of the floor."""
    top: float
    limit: float
    seconds: float
    """Until the peak reaches the limit at this slope; infinite where it does not rise."""
    samples: int
    span: float
    """Seconds of history that it rests on."""
    counts: bool
    """It rises clearly, from a level near the limit, and reaches it within the horizon."""


@dataclass(slots=True)
class MemoryState:
    """What was seen of one process's memory. Monotonic seconds."""

    source: Source | None = None
    limit: float | None = None
    levels: "array[float]" = field(default_factory=lambda: array("d"))
    """One slot a minute, round and round; NaN where nothing was seen."""
    first: int = 0
    """Number of the slot with which the watch began."""
    newest: int = 0
    used: float = 0.0
    seen_at: float | None = None
    reference: float | None = None
    """The first level seen of this process."""
    from_start: bool = False
    """It was seen in the process's warm-up: what it had before anything filled."""
    look_at: float = 0.0
    forecast: Forecast | None = None
    looked_at: float = 0.0
    agreed: int = 0
    """Looks in a row that agreed with each other; positive for growth, negative for none."""
    sick: bool = False
    since: float = 0.0
    """Epoch seconds of the first look that agreed, for people."""
    cleared: bool = False

    def fresh(self, mono: float, times: Times) -> bool:
        """Whether the memory now is known."""
        return self.seen_at is not None and mono - self.seen_at <= times.growth_gap


def level_of(
    telemetry: Mapping[Signal, Mapping[str, float]],
    measured: Measured | None,
    pod_limit: float | None,
    mono: float,
) -> Level | None:
    """The best level known now: of the engine's own page, else of a Prometheus server; None where none is.

    Shared memory counts as the engine's own: it is charged to the container and nothing can take it back.
    """
    anonymous = _most(telemetry, _ANONYMOUS) if telemetry else None
    if anonymous is not None:
        limit = _most(telemetry, _LIMIT) or pod_limit
        return Level(anonymous + (_most(telemetry, _SHARED) or 0.0), limit, _ENGINE)
    if measured is None or mono - measured.mono > MEASURED_AGE:
        return None
    if measured.memory_rss is not None:
        return Level(measured.memory_rss, pod_limit, Source.RSS)
    if measured.memory_working_set is not None:
        return Level(measured.memory_working_set, pod_limit, Source.WORKING_SET)
    return None


def see_memory(
    state: MemoryState, level: Level | None, age: float, offload: float, mono: float, now: float, times: Times
) -> None:
    """Take in one pass. `age`: seconds since this process was Ready; `offload`: bytes of KV cache it may move to the
    host; `now` in epoch seconds, for people. No level is no evidence of anything."""
    if level is None or (_worse(level.source, state.source) and state.fresh(mono, times)):
        return
    if state.source is not level.source or _differ(state.limit, level.limit):
        if state.source is not None and state.source is not level.source:
            state.reference, state.from_start = None, False
        if state.seen_at is not None:
            forget(state)
        state.source, state.limit = level.source, level.limit
    if state.reference is None:
        state.reference, state.from_start = level.used, age <= times.warm_up
    state.used, state.seen_at = level.used, mono
    slot = int(mono / times.growth_sample)
    if not state.levels:
        _begin(state, slot, mono, times)
    if slot == state.newest and not math.isnan(state.levels[slot % len(state.levels)]):
        return
    _write(state, slot, level.used + _untouched(level.used, state, offload))
    if mono >= state.look_at and level.limit is not None and age >= 0.0:
        state.look_at = mono + times.growth_look
        _look(state, age, offload, mono, now, times)


def forget(state: MemoryState) -> None:
    """The watch starts again; what the process had at its start stays known."""
    fresh = MemoryState(state.source, state.limit, reference=state.reference, from_start=state.from_start)
    for name in MemoryState.__slots__:
        setattr(state, name, getattr(fresh, name))


def forecast_of(
    minima: Sequence[float | None], top: float, limit: float, step: float, horizon: float
) -> Forecast:
    """The forecast from the minima of buckets, oldest first and `step` seconds apart; None = a bucket without data."""
    known = [(index * step, value) for index, value in enumerate(minima) if value is not None]
    slopes = sorted((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(known, 2))
    slope = median(slopes) if slopes else 0.0
    seconds = max(0.0, limit - top) / slope if slope > 0.0 else math.inf
    rising = bool(slopes) and _quantile(slopes, RISING_QUANTILE) > 0.0
    counts = seconds < horizon and top > LEVEL * limit and rising
    return Forecast(slope, top, limit, seconds, len(known), step * len(minima), counts)


_BEST_FIRST: Final = tuple(Source)


def _worse(one: Source, other: Source | None) -> bool:
    if other is None or one is other:
        return False
    return _BEST_FIRST.index(one) > _BEST_FIRST.index(other)


def _differ(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is not other
    return one != other and abs(one - other) > SAME_LIMIT * max(one, other)


def _begin(state: MemoryState, slot: int, mono: float, times: Times) -> None:
    state.levels = array("d", [math.nan]) * round(BUCKETS * times.growth_bucket_long / times.growth_sample)
    state.first = state.newest = slot
    state.look_at = mono


def _write(state: MemoryState, slot: int, used: float) -> None:
    length = len(state.levels)
    for missed in range(max(state.newest + 1, slot - length + 1), slot):
        state.levels[missed % length] = math.nan
    state.levels[slot % length] = used
    state.newest = slot


def _untouched(used: float, state: MemoryState, offload: float) -> float:
    """Bytes of the offload pool that are still to be filled; 0 where it was there from the start (vLLM's own pins it).

    Where the start was not seen, all of it: growth that the pool could explain is no leak.
    """
    reference = state.reference or 0.0
    if offload <= 0.0 or (state.from_start and reference >= offload):
        return 0.0
    return max(0.0, offload - max(0.0, used - reference))


def _doubtful(state: MemoryState, offload: float) -> float:
    """Bytes that `_untouched` may have counted twice: what was filled before the process was first seen."""
    return 0.0 if state.from_start else min(offload, state.reference or 0.0)


def _look(state: MemoryState, age: float, offload: float, mono: float, now: float, times: Times) -> None:
    assert state.limit is not None
    watched = (state.newest - state.first + 1) * times.growth_sample
    usable = min(age - times.growth_young, watched)
    needed = BUCKETS * times.growth_bucket_short
    if usable < needed:
        state.look_at = mono + min(times.growth_look, needed - usable)
        return
    bucket = min(max(usable / BUCKETS, times.growth_bucket_short), times.growth_bucket_long)
    buckets = _buckets(state, bucket / times.growth_sample)
    if sum(not each for each in buckets) >= EMPTY_BUCKETS:
        forget(state)
        return
    minima = [min(each, default=None) for each in buckets]
    top = max((value for each in buckets[-2:] for value in each), default=state.used)
    top -= _doubtful(state, offload)
    found = forecast_of(minima, top, state.limit, bucket, times.growth_horizon)
    samples = sum(len(each) for each in buckets)
    state.forecast = Forecast(
        found.slope, found.top, found.limit, found.seconds, samples, found.span, found.counts
    )
    state.looked_at = mono
    if found.counts:
        state.since = now if state.agreed <= 0 and not state.sick else state.since
        state.agreed = max(0, state.agreed) + 1
        state.sick = state.sick or state.agreed >= LOOKS_NEEDED
        state.cleared = False if state.sick else state.cleared
        return
    state.agreed = min(0, state.agreed) - 1
    if state.agreed <= -LOOKS_NEEDED:
        state.cleared = state.cleared or state.sick
        state.sick = False


def _buckets(state: MemoryState, slots: float) -> list[list[float]]:
    """The known samples of each bucket, oldest first, each `slots` slots long and the last one ending now."""
    length = len(state.levels)
    edges = [state.newest + 1 - round((BUCKETS - index) * slots) for index in range(BUCKETS + 1)]
    return [
        [
            value
            for slot in range(max(low, state.first, state.newest - length + 1), high)
            if not math.isnan(value := state.levels[slot % length])
        ]
        for low, high in pairwise(edges)
    ]


def _most(telemetry: Mapping[Signal, Mapping[str, float]], signal: Signal) -> float | None:
    """One container has one figure; where several processes tell it, the highest is the newest."""
    most = None
    for value in telemetry.get(signal, _NOTHING).values():
        if value > 0.0 and (most is None or value > most):
            most = value
    return most


def _quantile(ordered: Sequence[float], share: float) -> float:
    """By linear interpolation between neighbours."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
