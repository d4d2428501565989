"""`diverging rank`: one data-parallel rank of an instance leaves its sisters for a whole window.

A rank that has work and makes far fewer steps than its sisters is suspect; one that has far more or far less work is
what a balancer does, so advice. A person decides either way: a rank that makes no step at all is `stalled`, which acts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from kintsugi.core.detect.registers import Register
from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.sample import RankSample, Sample
from kintsugi.core.times import Times

STEP_SHARE: Final = 0.25
"""Steps against the sisters' median below which a rank with work lags. Steps of a full batch take two to three times
those of a small one, so a quarter is beyond what content explains (chosen here; no paper gives a figure)."""
LEAST_STEPS: Final = 10.0
"""Steps of the sisters between two pages without which no rank can lag behind them."""
LOAD_APART: Final = 16.0
LOAD_SHARE: Final = 0.1
"""Requests apart from the sisters' median, and the share of it (or of the own ones), as for `RankImbalance`."""
KV_APART: Final = 0.5
"""KV usage apart from the sisters' median, as for `RankImbalance`."""
MAX_FINDINGS: Final = 4


@dataclass(slots=True)
class Apart:
    """One rank in one respect: page by page, whether it was apart."""

    register: Register = field(default_factory=Register)
    own: float = 0.0
    sisters: float = 0.0
    since: float = 0.0
    """Epoch seconds of the first page that saw it, for people."""


@dataclass(slots=True)
class DivergeState:
    """By (rank, respect): only those that were apart within the window."""

    apart: dict[tuple[str, str], Apart] = field(default_factory=dict)
    slot_at: float | None = None

    def forget(self) -> None:
        """Warm-up, sleep, or an instance of one rank."""
        self.apart, self.slot_at = {}, None


def see_ranks(state: DivergeState, before: Sample | None, after: Sample, times: Times, now: float) -> None:
    """Take in one readable page of a warm process. `now` in epoch seconds, for people."""
    if len(after.ranks) < 2 or before is None:
        state.forget()
        return
    mono, whole = after.mono, _slots(times)
    passed = 1 if state.slot_at is None else max(0, round((mono - state.slot_at) / times.scrape_interval))
    state.slot_at = mono
    seen: dict[tuple[str, str], tuple[bool, float, float]] = {}
    for respect, values in (
        ("steps", _steps(before, after)),
        ("requests", _loads(after)),
        ("KV", _usages(after)),
    ):
        seen |= {(name, respect): said for name, said in _compared(respect, values)}
    for key, (is_apart, own, sisters) in seen.items():
        if is_apart and key not in state.apart:
            state.apart[key] = Apart(since=now)
        entry = state.apart.get(key)
        if entry is not None and is_apart:
            entry.own, entry.sisters = own, sisters
    for key, entry in list(state.apart.items()):
        said = seen.get(key)
        entry.register.shift(passed, None if said is None else said[0], whole)
        if entry.register.set_bits == 0:
            del state.apart[key]


def diverge_findings(state: DivergeState, now: float, times: Times) -> list[Finding]:
    """The statement on each rank that was apart for the whole window, suspects first. `now` in epoch seconds."""
    whole = _slots(times)
    found = [
        _finding(rank, respect, entry, now, times)
        for (rank, respect), entry in sorted(state.apart.items())
        if entry.register.newest() and entry.register.sustained(whole)
    ]
    return sorted(found, key=lambda finding: -finding.severity)[:MAX_FINDINGS]


def _finding(rank: str, respect: str, entry: Apart, now: float, times: Times) -> Finding:
    samples = entry.register.known(_slots(times))
    since = max(entry.since, now - times.throughput_window)
    scale, unit = (100.0, "%") if respect == "KV" else (1.0, "count")
    own, sisters = scale * entry.own, scale * entry.sisters
    what = {"steps": "steps between two pages", "requests": "requests", "KV": "% of its KV cache in use"}[
        respect
    ]
    text = (
        f"rank {rank} has {own:.0f} {what}, its sisters {sisters:.0f} in the middle, for {now - since:.0f} s"
    )
    evidence = (
        Evidence(f"{respect} of rank {rank}", own, unit, samples),
        Evidence(f"{respect} of its sisters", sisters, unit, samples),
    )
    if respect == "steps":
        text += " though it has no more work: look at its GPU, and replace the instance if it stays so"
        return Finding(
            Detector.DIVERGING, "RankLags", Severity.SUSPECT, text, since, evidence, removable=False
        )
    text += ": look at how requests are given to ranks; a new instance would not change that"
    return Finding(
        Detector.DIVERGING, "RankDiverges", Severity.ADVICE, text, since, evidence, removable=False
    )


def _slots(times: Times) -> int:
    return max(1, round(times.throughput_window / times.scrape_interval))


Values = list[tuple[str, float, bool]]
"""(rank, value, whether it may be called apart)."""


def _steps(before: Sample, after: Sample) -> Values:
    """Steps since the last page of ranks that had work on both; only one without more work than others can lag."""
    found: list[tuple[RankSample, float, float]] = []
    for rank in after.ranks:
        past = before.rank(rank.rank)
        load = rank.load()
        if past is None or past.steps is None or rank.steps is None or not load or not past.load():
            continue
        found.append((rank, rank.steps - past.steps, load))
    loads = [load for _, _, load in found]
    usual = median(loads) if loads else 0.0
    return [(rank.rank, steps, load <= 2 * usual) for rank, steps, load in found]


def _loads(after: Sample) -> Values:
    return [(rank.rank, load, True) for rank in after.ranks if (load := rank.load()) is not None]


def _usages(after: Sample) -> Values:
    return [(rank.rank, rank.kv_usage, True) for rank in after.ranks if rank.kv_usage is not None]


def _compared(respect: str, values: Values) -> Iterator[tuple[str, tuple[bool, float, float]]]:
    """(rank, (apart, its value, its sisters' median)) of each rank that has a sister to compare with."""
    if len(values) < 2:
        return
    numbers = [value for _, value, _ in values]
    if respect != "steps" and max(numbers) - min(numbers) < (KV_APART if respect == "KV" else LOAD_APART):
        yield from ((name, (False, value, value)) for name, value, _ in values)
        return
    for index, (name, own, may) in enumerate(values):
        sisters = median(_without(numbers, index))
        lower_of_two = len(values) > 2 or own < sisters or respect == "steps"
        yield name, (may and lower_of_two and _apart(respect, own, sisters), own, sisters)


def _without(numbers: Sequence[float], index: int) -> list[float]:
    return [*numbers[:index], *numbers[index + 1 :]]


def _apart(respect: str, own: float, sisters: float) -> bool:
    if respect == "steps":
        return sisters >= LEAST_STEPS and own < STEP_SHARE * sisters
    if respect == "KV":
        return abs(own - sisters) >= KV_APART
    lesser, greater = min(own, sisters), max(own, sisters)
    return greater - lesser >= LOAD_APART and lesser < LOAD_SHARE * greater
