"""`slow`: a step takes longer than its content explains, against the own past and against the siblings' change.

D = min(own, dif): own says that this instance changed, dif that the others did not (slow paper §3). Neither alone is
enough. Tokens per second are never looked at: balancer and traffic make them what they are.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median
from typing import Final, NamedTuple

from kintsugi.core.detect.cost_model import USABLE_SAMPLES, CostModel, features
from kintsugi.core.detect.registers import Register
from kintsugi.core.detect.step_window import Measure, StepWindow
from kintsugi.core.times import Times

BASELINE_SAMPLES: Final = 30
"""One-minute residuals whose median is an instance's own baseline (slow §3)."""
LEVEL_SAMPLES: Final = 5
"""Residuals whose median is good enough to free a sample of its instance's level before the model learns it (chosen here)."""
TEACHES_WITHIN: Final = 0.25
"""A residual this far from the baseline or farther teaches it nothing, so a sick instance stays sick (slow §3)."""
CREEP_PER_SAMPLE: Final = 0.01 / 60
"""The baseline follows a decline by 1 % an hour at most (slow §3)."""
WEIGHT_OF: Final = 0.1
"""Samples farther than this from their baseline weigh less in the model (slow §3)."""
WEIGHT_OF_UNLEVELLED: Final = 0.1
"""Weight in the model of samples of an instance whose own level is not known yet (chosen here). An engine that is slower by
its build has more requests at a time for the same traffic, so such samples make batches look dearer than they are."""
SUSPECT_DROP: Final = 25.0
"""Percent of the step rate lost that makes a finding (slow §1)."""
LEVEL_DROP: Final = 40.0
"""Percent below its siblings ever since the start that makes advice (slow §3)."""


class Lengths(NamedTuple):
    """How many slots of one scrape interval the windows are long."""

    whole: int
    suspect: int
    clear: int


def line(drop_percent: float) -> float:
    """L: the logarithm of how much longer a step takes where `drop_percent` of the rate is lost."""
    return -math.log(1.0 - drop_percent / 100.0)


class _Lines(NamedTuple):
    """What counts as slow, in logarithms: for a verdict, and for a finding."""

    limit: float
    suspect: float


@lru_cache(maxsize=64)
def _lines(drop_percent: float) -> _Lines:
    return _Lines(line(drop_percent), line(min(SUSPECT_DROP, drop_percent)))


@dataclass(slots=True)
class SlowState:
    """What is known of one process's steps."""

    window: StepWindow = field(default_factory=StepWindow)
    counted: bool | None = None
    """How its prompt tokens are counted (`Measure.counted`), for good once it has a baseline, which says nothing of the
    other way; None until it has taught a model."""
    baseline: float | None = None
    """u: this process's own level in the model's logarithm."""
    residuals: list[float] = field(default_factory=list)
    learned_at: float | None = None
    """Monotonic seconds of the last minute's sample."""
    slot_at: float | None = None
    measure: Measure | None = None
    expected: float | None = None
    residual: float | None = None
    own: float | None = None
    dif: float | None = None
    siblings: int = 0
    against: Register = field(default_factory=Register)
    """D over the line, slot by slot."""
    suspect: Register = field(default_factory=Register)
    """D over the line of the finding."""
    calm: Register = field(default_factory=Register)
    """D under half the line."""
    alone: Register = field(default_factory=Register)
    """own over the line, for a pool of one."""
    witness: Register = field(default_factory=Register)
    """Wall time per step over half the line."""
    early: Register = field(default_factory=Register)
    """Residual over the siblings' by the whole line, slot by slot, while it has no past of its own."""
    level: Register = field(default_factory=Register)
    """Residual over the siblings', minute by minute."""
    sick: bool = False
    sick_since: float | None = None
    """Epoch seconds."""
    cleared: bool = False

    def lost(self) -> float | None:
        """D, or None where it is Unknown now."""
        return None if self.own is None or self.dif is None else min(self.own, self.dif)

    def lost_percent(self) -> float | None:
        """D as the share of the step rate that is lost, for people; 0 where it is faster than ever."""
        lost = self.lost()
        return None if lost is None else 100.0 * (1.0 - math.exp(-max(0.0, lost)))


@dataclass(slots=True)
class PoolState:
    """One pool as a whole."""

    slow: Register = field(default_factory=Register)
    """The median of own is over half the line, slot by slot."""
    slot_at: float | None = None
    median_own: float | None = None


class ModelKey(NamedTuple):
    """What one model is of. `counted`: whether its prompt tokens were counted step by step (`Measure.counted`)."""

    pool: str
    revision: str
    counted: bool = False


@dataclass(slots=True)
class SlowMemory:
    """The models, and the pools."""

    models: dict[ModelKey, CostModel] = field(default_factory=dict)
    pools: dict[str, PoolState] = field(default_factory=dict)

    def preferred(self, pool: str, revision: str) -> bool | None:
        """How the prompt tokens of a process that has no past yet are counted: as those of most samples of its revision,
        so that it can be compared with its siblings; None = step by step where they are."""
        by_engine = self.models.get(ModelKey(pool, revision))
        by_step = self.models.get(ModelKey(pool, revision, True))
        if by_engine is None or by_engine.samples <= (0 if by_step is None else by_step.samples):
            return None
        return False

    def any_model(self, pool: str, revision: str) -> CostModel | None:
        """The model of a revision, preferably of tokens that were counted step by step."""
        exact = self.models.get(ModelKey(pool, revision, True))
        if exact is not None and exact.samples >= USABLE_SAMPLES:
            return exact
        return self.models.get(ModelKey(pool, revision))


@dataclass(slots=True)
class Entry:
    """One process that has been Ready, as one pass sees it."""

    pool: str
    revision: str
    state: SlowState
    fresh: bool
    """A page of this pass counts, and warm-up is over."""
    watched: bool = True
    """Seen since its warm-up, so that having no past of its own means that it is new."""


def slow_pass(
    entries: Sequence[Entry], memory: SlowMemory, mono: float, now: float, times: Times, drop_percent: float
) -> None:
    """Move every instance's evidence by one pass."""
    for entry in entries:
        _measure(entry, memory, times)
    owns: dict[str, list[float]] = {}
    residuals: dict[ModelKey, list[float]] = {}
    for entry in entries:
        state = entry.state
        if state.own is not None:
            owns.setdefault(entry.pool, []).append(state.own)
        if state.residual is not None:
            residuals.setdefault(_model_of(entry), []).append(state.residual)
    for values in (*owns.values(), *residuals.values()):
        values.sort()
    lines, lengths = _lines(drop_percent), lengths_of(times)
    for entry in entries:
        near = _level(entry.state, residuals.get(_model_of(entry), ()))
        level = near if entry.watched else None
        _compare(entry.state, owns.get(entry.pool, ()), level, near, lines, lengths, mono, times)
        _decide(entry.state, lengths, now, times)
    _see_pools(memory, {entry.pool for entry in entries}, owns, mono, times, lines, lengths)
    for entry in entries:
        _learn(entry, memory, residuals.get(_model_of(entry), []), mono, times)
    for model in memory.models.values():
        due = model.solved_at is None or mono - model.solved_at >= times.slow_solve
        if model.samples >= USABLE_SAMPLES and due:
            model.solve(mono)


def _measure(entry: Entry, memory: SlowMemory, times: Times) -> None:
    state = entry.state
    way = memory.preferred(entry.pool, entry.revision) if state.baseline is None else state.counted
    state.measure = measure = state.window.measure(times, way) if entry.fresh else None
    state.own = state.dif = state.residual = state.expected = None
    if measure is None:
        return
    model = memory.models.get(ModelKey(entry.pool, entry.revision, measure.counted))
    if model is None:
        return
    state.expected = model.cost(_features(measure))
    if state.expected is None:
        return
    state.residual = math.log(measure.seconds / state.expected)
    if state.baseline is not None:
        state.own = state.residual - state.baseline


def _model_of(entry: Entry) -> ModelKey:
    measure = entry.state.measure
    return ModelKey(entry.pool, entry.revision, measure is not None and measure.counted)


def _features(measure: Measure) -> tuple[float, float, float, float, float]:
    return features(measure.decodes, measure.prefill, measure.kv_usage)


def _compare(
    state: SlowState,
    pool_owns: Sequence[float],
    level: float | None,
    near: float | None,
    lines: _Lines,
    lengths: Lengths,
    mono: float,
    times: Times,
) -> None:
    """Fill this slot's bits; a pass of the same slot again only replaces them."""
    slots = _elapsed(state.slot_at, mono, times.scrape_interval)
    state.slot_at = mono
    own, limit = state.own, lines.limit
    state.siblings = max(0, len(pool_owns) - 1) if own is not None else 0
    if own is not None and state.siblings:
        state.dif = own - _median_without(pool_owns, own)
    d = state.lost()
    if d is not None and near is not None and near < limit / 2:
        d = min(d, near)  # as fast as its siblings: they learned their own level while all were slow
    state.against.shift(slots, None if d is None else d > limit, lengths.whole)
    state.suspect.shift(slots, None if d is None else d > lines.suspect, lengths.suspect)
    state.calm.shift(slots, None if d is None else d < limit / 2, lengths.clear)
    state.alone.shift(slots, None if own is None else own > limit, lengths.whole)
    state.witness.shift(slots, _witness(state, limit), lengths.whole)
    early = None if level is None or state.baseline is not None else level > limit
    state.early.shift(slots, early, lengths.suspect)


def _level(state: SlowState, siblings: Sequence[float]) -> float | None:
    """The residual above that of the same revision's others; None where either is unknown."""
    if state.residual is None or len(siblings) < 2:
        return None
    return state.residual - _median_without(siblings, state.residual)


def _witness(state: SlowState, limit: float) -> bool | None:
    """Whether wall time per step says so too; None where it is not known."""
    measure, expected, baseline = state.measure, state.expected, state.baseline
    if measure is None or measure.wall is None or expected is None or baseline is None:
        return None
    return math.log(measure.wall / expected) - baseline > limit / 2


def _decide(state: SlowState, lengths: Lengths, now: float, times: Times) -> None:
    length = lengths.whole
    lasted = state.against.newest() and state.against.sustained(length)
    if lasted and not state.sick and not disagrees(state, length):
        state.sick, state.sick_since, state.cleared = True, now - times.throughput_window, False
    if state.calm.mostly(lengths.clear):
        state.sick, state.sick_since, state.cleared = False, None, True
    elif state.against.known(length) == 0:
        state.sick, state.sick_since, state.cleared = False, None, False


def disagrees(state: SlowState, length: int) -> bool:
    """The second witness is known for most of the `length` slots and mostly says no: the two clocks disagree."""
    known = state.witness.known(length)
    return known > 0.5 * state.against.known(length) and state.witness.set(length) < 0.5 * known


def slots_of(seconds: float, times: Times) -> int:
    """How many slots of one scrape interval make `seconds`."""
    return _slots(seconds, times.scrape_interval)


def lengths_of(times: Times) -> Lengths:
    """The same for the windows that every look at a process needs."""
    windows = (times.throughput_window, times.throughput_suspect, times.throughput_clear)
    return _lengths(windows, times.scrape_interval)


@lru_cache(maxsize=64)
def _lengths(windows: tuple[float, float, float], interval: float) -> Lengths:
    whole, suspect, clear = [_slots(seconds, interval) for seconds in windows]
    return Lengths(whole, suspect, clear)


def _slots(seconds: float, interval: float) -> int:
    return max(1, round(seconds / interval))


def level_slots(times: Times) -> int:
    """How many minutes an instance must have been slower than its siblings since its start."""
    return max(1, round(times.slow_since_start / times.slow_minute))


def _elapsed(before: float | None, mono: float, slot: float) -> int:
    """Whole slots since the last pass; 0 for a pass of the same slot."""
    if before is None:
        return 1
    return max(0, round((mono - before) / slot))


def _median_without(ordered: Sequence[float], value: float) -> float:
    """The median of `ordered` without one occurrence of `value`, which it holds."""
    index = bisect_left(ordered, value)
    rest = len(ordered) - 1
    low, high = (rest - 1) // 2, rest // 2
    return (ordered[low + (low >= index)] + ordered[high + (high >= index)]) / 2


def _see_pools(
    memory: SlowMemory,
    pools: set[str],
    owns: Mapping[str, Sequence[float]],
    mono: float,
    times: Times,
    lines: _Lines,
    lengths: Lengths,
) -> None:
    if memory.pools.keys() != pools:
        memory.pools = {name: memory.pools.get(name) or PoolState() for name in sorted(pools)}
    for name, pool in memory.pools.items():
        values = owns.get(name, ())
        pool.median_own = median(values) if len(values) > 1 else None
        over = None if pool.median_own is None else pool.median_own > lines.limit / 2
        pool.slow.shift(_elapsed(pool.slot_at, mono, times.scrape_interval), over, lengths.suspect)
        pool.slot_at = mono


def _own_level(state: SlowState) -> float | None:
    """The baseline, or what it is going to be as far as a few samples tell; None before."""
    if state.baseline is None and len(state.residuals) >= LEVEL_SAMPLES:
        return median(state.residuals)
    return state.baseline


def _learn(entry: Entry, memory: SlowMemory, siblings: Sequence[float], mono: float, times: Times) -> None:
    """Once a minute: fold the window into the model, and fill or nudge the own baseline."""
    state = entry.state
    if state.measure is None:
        return
    if (
        state.learned_at is not None
        and mono - state.learned_at < times.slow_minute - times.scrape_interval / 2
    ):
        return
    minutes = _elapsed(state.learned_at, mono, times.slow_minute)
    state.learned_at = mono
    if state.measure.counted is not state.counted:
        state.counted, state.residuals = state.measure.counted, []
    model = memory.models.setdefault(ModelKey(entry.pool, entry.revision, state.counted), CostModel())
    own, residual = state.own, state.residual
    level = _own_level(state)
    weight = WEIGHT_OF_UNLEVELLED if level is None else 1.0
    if own is not None:
        weight = min(1.0, WEIGHT_OF / (abs(own) + 1e-9))
    freed = state.measure.seconds * math.exp(-(level or 0.0))
    model.learn(_features(state.measure), freed, weight, state.expected or 0.0)
    over: bool | None = None
    level = _level(state, siblings)
    if level is not None and own is not None and abs(own) < TEACHES_WITHIN:
        over = level > line(LEVEL_DROP)
    state.level.shift(minutes, over, level_slots(times))
    if residual is None:
        return
    if state.baseline is None:
        state.residuals.append(residual)
        if len(state.residuals) >= BASELINE_SAMPLES:
            state.baseline, state.residuals = median(state.residuals), []
    elif own is not None and abs(own) < TEACHES_WITHIN:
        state.baseline += min(own / times.slow_own_following, CREEP_PER_SAMPLE)
