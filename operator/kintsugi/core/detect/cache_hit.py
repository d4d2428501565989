"""`low cache hit`: few prompt tokens are found in the prefix cache. Advice only: a new instance starts with an empty one.

A rate is known only of a process that has looked up enough tokens, since its start and within the window; before that
it is warming, and a cold cache is no fault (S12).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.sample import Sample
from kintsugi.core.times import Times

ENOUGH_TOKENS: Final = 10_000.0
"""Looked-up prompt tokens since its start, and within the window, below which a process has no hit rate yet: some
dozens of usual prompts, so that one long cold prompt is no rate (chosen here; no paper gives a figure)."""


class Mark(NamedTuple):
    """The two counters at one minute, all ranks together."""

    mono: float
    queries: float
    hits: float


@dataclass(slots=True)
class CacheState:
    """What one process's prefix cache gave in the window."""

    marks: deque[Mark] = field(default_factory=deque)
    """One a minute, oldest first, as far back as the window."""
    tokens: float = 0.0
    percent: float | None = None
    """Hits of the window; None while it is warming or nothing was looked up."""
    seconds: float = 0.0
    below_since: float | None = None
    """Epoch seconds of when it fell below what the user wants, for people."""


def see_cache(state: CacheState, sample: Sample, least_percent: float, times: Times, now: float) -> None:
    """Take in one readable page of a warm process. `now` in epoch seconds, for people."""
    queries, hits = sample.whole.prefix_queries, sample.whole.prefix_hits
    if queries is None or hits is None:
        state.percent = state.below_since = None
        return
    marks = state.marks
    if not marks or sample.mono - marks[-1].mono >= times.slow_minute - times.scrape_interval / 2:
        marks.append(Mark(sample.mono, queries, hits))
    while len(marks) > 1 and marks[1].mono <= sample.mono - times.advice_window:
        marks.popleft()
    first = marks[0]
    state.seconds, state.tokens = sample.mono - first.mono, queries - first.queries
    whole = state.seconds >= times.advice_window - times.scrape_interval / 2
    known = whole and min(queries, state.tokens) >= ENOUGH_TOKENS
    state.percent = 100.0 * (hits - first.hits) / state.tokens if known else None
    if state.percent is None or state.percent >= least_percent:
        state.below_since = None
    elif state.below_since is None:
        state.below_since = now - state.seconds


def cache_finding(state: CacheState, least_percent: float) -> Finding | None:
    """The advice on a rate below `least_percent`, or None."""
    if state.percent is None or state.below_since is None:
        return None
    text = (
        f"{state.percent:.0f} % of {state.tokens:.0f} looked-up prompt tokens were in the prefix cache in "
        f"{state.seconds:.0f} s, less than {least_percent:.0f} %: send prompts with the same beginning to the same "
        "instance, or scale the pool's KV cache; a new instance would start with an empty one"
    )
    tokens = round(state.tokens)
    evidence = (
        Evidence("prefix cache hits", state.percent, "%", tokens),
        Evidence("hits wanted", least_percent, "%", tokens),
    )
    return Finding(
        Detector.CACHE_HIT, "LowCacheHit", Severity.ADVICE, text, state.below_since, evidence, removable=False
    )
