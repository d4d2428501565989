"""One page as typed values: one entry per data-parallel rank, and what holds for the whole process."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Final

from kintsugi.core.page import DEFAULT_RANK, MAX_RANK_NAME, PageReader, PageValues, Target
from kintsugi.core.reading import Absent, Reading, Unreadable, Value
from kintsugi.core.series import NOT_APPLICABLE, TABLE, Kind, Signal
from kintsugi.core.snapshot import Page
from kintsugi_engine.contract import STEPS_RANK


@dataclass(slots=True)
class RankSample:
    """What one rank says at one moment. None = Absent (missing, NaN or infinite); never a guess. Not changed once made."""

    rank: str
    running: float | None = None
    waiting: float | None = None
    deferred: float | None = None
    """Waiting for something of their own (grammar, adapter, remote KV), not for capacity."""
    swapped: float | None = None
    kv_usage: float | None = None
    """Share of KV blocks in use, 0 to 1."""
    awake: float | None = None
    """0 while the engine sleeps."""
    steps: float | None = None
    """Engine steps that gave output."""
    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    """Prefilled prompt tokens, cached ones included, credited when a prefill ends."""
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    preemptions: float | None = None
    itl_sum: float | None = None
    """Seconds between tokens, summed."""
    itl_count: float | None = None
    itl_gap: float | None = None
    """Seconds of `itl_sum` in gaps of 2.5 s and more, by the lower edges of their buckets."""
    first_tokens: float | None = None
    finished: float | None = None
    """Requests that ended well (stop, length or repetition)."""
    failed: float | None = None
    corrupted: float | None = None
    mixed_prefill: float | None = None
    """Prompt tokens computed in steps that also decoded, as the telemetry counts them step by step."""
    count_age: float | None = None
    """Seconds since that was counted."""

    def load(self) -> float | None:
        """Running + waiting; None where neither is known."""
        if self.running is None and self.waiting is None:
            return None
        return (self.running or 0.0) + (self.waiting or 0.0)


COUNTERS: Final = (
    "steps",
    "generation_tokens",
    "prompt_tokens",
    "prefix_queries",
    "prefix_hits",
    "preemptions",
    "itl_sum",
    "itl_count",
    "first_tokens",
    "finished",
    "failed",
    "corrupted",
)
"""Fields of a rank that only ever rise within one process."""
_LOADS: Final = ("running", "waiting", "deferred", "swapped")
_SUMMED: Final = (*_LOADS, *COUNTERS, "itl_gap", "mixed_prefill")

_FIELD: Final[Mapping[Signal, str]] = {
    Signal.RUNNING: "running",
    Signal.WAITING: "waiting",
    Signal.SWAPPED: "swapped",
    Signal.KV_USAGE: "kv_usage",
    Signal.STEPS: "steps",
    Signal.GENERATION_TOKENS: "generation_tokens",
    Signal.PROMPT_TOKENS: "prompt_tokens",
    Signal.PREFIX_QUERIES: "prefix_queries",
    Signal.PREFIX_HITS: "prefix_hits",
    Signal.PREEMPTIONS: "preemptions",
    Signal.ITL_SUM: "itl_sum",
    Signal.ITL_COUNT: "itl_count",
    Signal.FIRST_TOKENS: "first_tokens",
    Signal.CORRUPTED: "corrupted",
}
FIELD_OF: Final[Mapping[Signal, str]] = {
    **_FIELD,
    Signal.FINISHED: "finished",
    Signal.ITL_BUCKET: "itl_gap",
}
"""Where a rank keeps a signal that a detector may need (`core.metric_contract`)."""
_PART_FIELD: Final[Mapping[tuple[Signal, str], str]] = {
    (Signal.WAITING_BY_REASON, "deferred"): "deferred",
    (Signal.SLEEP_STATE, "awake"): "awake",
    (Signal.FINISHED, "stop"): "finished",
    (Signal.FINISHED, "length"): "finished",
    (Signal.FINISHED, "repetition"): "finished",
    (Signal.FINISHED, "error"): "failed",
    (Signal.PREFILL_TOKENS, "mixed"): "mixed_prefill",
    (Signal.SAMPLE_AGE, STEPS_RANK): "count_age",
}
MAX_RANKS: Final = 256
"""Data-parallel ranks of one pod beyond which a page is not believed."""
MOST: Final = 1e18
"""Nothing on a page is negative or beyond this: it is an exabyte, or a token a nanosecond for thirty years. Judgement."""
_SHARES: Final = frozenset(
    {Signal.KV_USAGE, Signal.GPU_FRAGMENTATION, Signal.ORPHANED_RATIO, Signal.BLOCK_WASTE}
)
MOST_OF_ONE: Final = 1.01
"""A share beyond this is in other units, such as percent, and is not guessed at; the rest is for rounding. Judgement."""
_TELEMETRY: Final = frozenset(
    {
        Signal.GPU_FRAGMENTATION,
        Signal.ORPHANED_RATIO,
        Signal.BLOCK_WASTE,
        Signal.SAMPLE_AGE,
        Signal.MEMORY_ANONYMOUS,
        Signal.MEMORY_SHARED,
        Signal.MEMORY_LIMIT,
    }
)


@dataclass(slots=True)
class Sample:
    """One readable page. `mono` is when it was read (monotonic seconds). Not changed once made."""

    mono: float
    ranks: tuple[RankSample, ...]
    """By rank name; at least one."""
    process_start: float | None = None
    """Start of the engine process in epoch seconds."""
    telemetry: Mapping[Signal, Mapping[str, float]] = field(default_factory=dict)
    """The `kintsugi_` ratios, ages and bytes by worker (`rank` label, with the engine before it where there are
    several)."""
    http_good: float | None = None
    http_failed: float | None = None
    rejections: float | None = None
    max_concurrency: float | None = None
    """Requests of the longest legal length that fit in one rank's KV cache at a time."""
    moves_by_itself: bool = False
    """Whether a series stands here that changes from page to page even in an engine that does nothing."""
    whole: RankSample = field(init=False, repr=False, compare=False)
    """All ranks as one: loads and counters summed over the ranks that have them, the fullest one's KV usage."""

    def __post_init__(self) -> None:
        self.whole = self.ranks[0] if len(self.ranks) == 1 else _as_one(self.ranks)

    def rank(self, name: str) -> RankSample | None:
        """The entry of rank `name`, or None where this page lacks it."""
        for rank in self.ranks:  # written out: a pass asks for hundreds of thousands of these
            if rank.rank == name:
                return rank
        return None

    def total(self, name: str) -> float | None:
        """The sum of one field over the ranks that have it (loads and counters), or None."""
        found: float | None = getattr(self.whole, name)
        return found

    def kv_max(self) -> float | None:
        """The fullest rank's KV usage, 0 to 1."""
        return self.whole.kv_usage

    def kv_mean(self) -> float | None:
        """The mean of the ranks' KV usage, 0 to 1. Ratios are never summed."""
        if len(self.ranks) == 1:
            return self.whole.kv_usage
        known = [r.kv_usage for r in self.ranks if r.kv_usage is not None]
        return math.fsum(known) / len(known) if known else None

    def reading(self, signal: Signal) -> Reading:
        """One signal of the instance: loads and counters summed, the worst of ratios; Absent says why."""
        number: float | None
        if signal in _TELEMETRY:
            number = max(self.telemetry.get(signal, {}).values(), default=None)
        elif signal is Signal.PROCESS_START:
            number = self.process_start
        elif signal in _FIELD:
            summed = TABLE[signal].kind is not Kind.RATIO
            number = self.total(_FIELD[signal]) if summed else self.kv_max()
        else:
            return Absent("not kept as one number")
        return Absent(NOT_APPLICABLE.get(signal, "")) if number is None else Value(number)


def _as_one(ranks: Sequence[RankSample]) -> RankSample:
    """Several ranks in one."""
    whole = RankSample("")
    for name in _SUMMED:
        known = [number for rank in ranks if (number := getattr(rank, name)) is not None]
        setattr(whole, name, math.fsum(known) if known else None)
    whole.kv_usage = max([rank.kv_usage for rank in ranks if rank.kv_usage is not None], default=None)
    return whole


def read_sample(reader: PageReader, page: Page) -> Sample | Unreadable:
    """The typed values of `page`; Unreadable where no expected engine series occurs on it."""
    values = reader.read(page.text)
    if not values.recognised:
        return Unreadable(_why_unrecognised(values))
    sample = sample_of(values.numbers, page.mono)
    if len(sample.ranks) > MAX_RANKS:
        return Unreadable(f"Unrecognised: {len(sample.ranks)} engine ranks on one page")
    return sample


def sample_of(numbers: Mapping[Target, float], mono: float) -> Sample:
    """Put the numbers of one page in their places. What no such number can be is Absent: NaN, less than nothing, beyond
    `MOST`, and shares beyond one."""
    ranks: dict[str, RankSample] = {}
    ages: dict[tuple[str, str], int] = {}
    edges: dict[str, dict[float, float]] = {}
    telemetry: dict[Signal, dict[str, float]] = {}
    totals = {"http_good": 0.0, "http_failed": 0.0, "rejections": 0.0}
    seen: set[str] = set()
    start = concurrency = None
    moves = False
    for target, number in numbers.items():
        signal = target.signal
        if not 0.0 <= number <= MOST or (number > MOST_OF_ONE and signal in _SHARES):
            continue
        name = _FIELD.get(signal) or _PART_FIELD.get((signal, target.part))
        if name is not None:
            rank = ranks.get(target.rank)
            if rank is None:
                rank = ranks[target.rank] = RankSample(target.rank)
            old = getattr(rank, name)
            age = ages.get((target.rank, name), target.age)
            if old is None or target.age < age:
                setattr(rank, name, number)
                ages[target.rank, name] = target.age
            elif target.age == age:
                setattr(rank, name, old + number if target.kind is not Kind.RATIO else max(old, number))
        elif signal is Signal.ITL_BUCKET:
            by_edge = edges.setdefault(target.rank, {})
            edge = float(target.part)
            by_edge[edge] = by_edge.get(edge, 0.0) + number
        elif signal in _TELEMETRY:
            telemetry.setdefault(signal, {})[_worker(target)] = number
            moves = moves or signal is Signal.SAMPLE_AGE
        elif signal is Signal.PROCESS_START:
            start = number
        elif signal is Signal.PROCESS_CPU:
            moves = True
        elif signal is Signal.CACHE_CONFIG:
            concurrency = _positive(target.labels.get("kv_cache_max_concurrency")) or concurrency
        else:
            _count(target, number, totals, seen)
    for name, by_edge in edges.items():
        if name in ranks:
            ranks[name].itl_gap = _long_gaps(by_edge)
    return Sample(
        mono=mono,
        ranks=tuple(ranks[name] for name in sorted(ranks)) or (RankSample(DEFAULT_RANK),),
        process_start=start,
        telemetry=telemetry,
        max_concurrency=concurrency,
        moves_by_itself=moves,
        **{name: totals[name] if name in seen else None for name in totals},
    )


_counts: Final = attrgetter(*COUNTERS)


ROUNDING: Final = 1e-9
"""By how much a sum of seconds may be lower, relative to itself: its parts are added in the order in which they stand on a
page, which need not stay."""


def fell(before: Sample, after: Sample) -> str | None:
    """The first counter that is lower in `after`, or a changed process start; None where nothing was reset.

    A reset is a restart, whatever the pod says: evidence from before it counts for nothing.
    """
    starts = (before.process_start, after.process_start)
    if starts[0] is not None and starts[1] is not None and abs(starts[1] - starts[0]) > 1.0:
        return "process_start_time_seconds"
    for rank in after.ranks:
        past = before.rank(rank.rank)
        if past is None:
            continue
        for name, then, now in zip(COUNTERS, _counts(past), _counts(rank), strict=True):
            if then is not None and now is not None and now < then and then - now > ROUNDING * then:
                return f"{name} of rank {rank.rank}"
    return None


def _count(target: Target, number: float, totals: dict[str, float], seen: set[str]) -> None:
    name = ""
    if target.signal is Signal.REJECTIONS:
        name = "rejections"
    elif target.signal is Signal.HTTP_REQUESTS and target.part.startswith("2"):
        name = "http_good"
    elif target.signal is Signal.HTTP_REQUESTS and target.part.startswith("5"):
        name = "http_failed"
    if name:
        totals[name] += number
        seen.add(name)


def _worker(target: Target) -> str:
    engine, worker = target.labels.get("engine"), target.labels.get("rank", "")[:MAX_RANK_NAME]
    if not worker:
        return target.rank
    return worker if engine in (None, DEFAULT_RANK) else f"{target.rank}/{worker}"


def _positive(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _long_gaps(by_edge: Mapping[float, float]) -> float:
    """Seconds in long gaps: each bucket above an edge counts with that edge."""
    pairs = pairwise(sorted(by_edge))
    return math.fsum(max(0.0, by_edge[high] - by_edge[low]) * low for low, high in pairs)


def _why_unrecognised(values: PageValues) -> str:
    what = f"{len(values.numbers)} known series, {values.garbage} unreadable lines"
    return f"Unrecognised: no engine series on the page ({what})"


def missing_ranks(before: Iterable[str], after: Sample) -> tuple[str, ...]:
    """Ranks of `before` that the page of `after` lacks."""
    return tuple(sorted(set(before).difference([rank.rank for rank in after.ranks])))
