"""What the last minute of pages says of an engine's steps: duration, decodes, prefill and KV usage (slow paper §2).

The engine counts prompt tokens when a prefill ends; our telemetry in it counts them step by step, and is preferred.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kintsugi.core.frozen import frozen
from kintsugi.core.sample import Sample
from kintsugi.core.times import Times

WINDOW_SECONDS: Final = 60.0
"""The window for which the counts below are meant; in a rehearsal window and counts shrink alike."""
MIN_DECODES: Final = 200.0
MIN_STEPS: Final = 100.0
MIN_BUSY: Final = 20.0
"""Decodes and steps that suffice where requests ran in every scrape: few steps are no excuse when busy (slow §2)."""
MIN_SCRAPE_SHARE: Final = 0.6
"""8 of 13 scrapes (slow §2)."""
MAX_GAP_SHARE: Final = 0.10
"""Share of the time between tokens that may lie in long gaps: a preempted request's wait is no step (slow §2)."""
MOST_COMPUTED: Final = 256.0
"""Computed prompt tokens a step from which on a window is Unknown where only the engine counts them (chosen here: they take a
few milliseconds). It counts them when a prefill ends, so a minute of long prefills does not tell what its own steps carried; and
those of light hours, computed beside no decode, teach that prompts cost nothing."""
HIDDEN_PREFILLS: Final = 0.5
"""Requests that run and get no token, on average over a window, from which on it is Unknown where only the engine counts prompt
tokens: somebody is in a prefill whose tokens are counted when it ends, minutes later. How many get tokens is the time between
tokens, all of it together, in each second (Little's law); `STEPS_TO_ENTER` are taken off for each who came in. Chosen here: one
long prefill through half of the window."""
STEPS_TO_ENTER: Final = 1.0
"""Steps in which a request with a short prompt runs before its first token."""
OLDEST_COUNT: Final = 10.0
"""Seconds up to which the age of the telemetry's count may lag behind its page: a sixth of the window. Chosen here."""
MOST_A_SECOND: Final = 200_000.0
"""Prompt tokens a second that no engine computes (chosen here): where more were counted from one page to the next, or fewer
than none, the count leapt, and the window begins anew."""
STANDS_STILL: Final = 64.0
"""Prompt tokens a step, as the engine counts them, with which a count that did not move at all is not believed: it may be of
a process before this one. They may also have been computed beside no decode: then the window is Unknown for nothing."""
CANARY_PROMPT_TOKENS: Final = 4.0
"""Prompt tokens of one canary of ours (hang §1.3)."""


@frozen
class Row:
    """Counters of one page, all ranks together, own canaries taken off."""

    mono: float
    running: float
    kv_usage: float
    steps: float
    computed: float
    """Prompt tokens, without those found in the cache."""
    decodes: float
    decode_seconds: float
    gap_seconds: float
    admitted: float = 0.0
    """Requests that got their first token; 0 where nobody counts them."""
    mixed: float | None = None
    """Prompt tokens computed in steps that also decoded, counted step by step; None where nobody counts them so."""


@frozen
class Measure:
    """One Known window."""

    seconds: float
    """y: mean duration of a step as decodes feel it."""
    decodes: float
    """n, per step."""
    prefill: float
    """p: computed prompt tokens per step."""
    counted: bool
    """Whether p was counted step by step. Costs learned from one way of counting say nothing of the other."""
    kv_usage: float
    """k, 0 to 1."""
    wall: float | None
    """Wall time per step, the second witness; None where the engine was not busy in every scrape."""


@dataclass(slots=True)
class StepWindow:
    """The pages of one window."""

    rows: deque[Row] = field(default_factory=deque)

    def add(self, sample: Sample, own_canaries: int, times: Times, own_tokens: float = 0.0) -> None:
        """Add one page. A page without the series of steps and decodes adds nothing.

        `own_canaries` were answered so far; those that were long questions had `own_tokens` in their prompts.
        """
        row = row_of(sample, own_canaries, own_tokens)
        if row is None:
            return
        if self.rows and _leapt(self.rows[-1], row):
            self.rows.clear()
        self.rows.append(row)
        reach = times.slow_row_window + times.scrape_interval / 2
        while self.rows[0].mono < row.mono - reach:
            self.rows.popleft()

    def measure(self, times: Times, counted: bool | None = None) -> Measure | None:
        """The window as one measure, or None = Unknown: it then counts neither for nor against.

        `counted`: how prompt tokens are to be counted (`Measure.counted`); None = step by step where they are.
        """
        rows = self.rows
        needed = MIN_SCRAPE_SHARE * (times.slow_row_window / times.scrape_interval + 1)
        if len(rows) < 3 or len(rows) < needed:
            return None
        first, last = rows[0], rows[-1]
        span = last.mono - first.mono
        steps, decodes = last.steps - first.steps, last.decodes - first.decodes
        seconds, gaps = last.decode_seconds - first.decode_seconds, last.gap_seconds - first.gap_seconds
        if span < times.slow_row_window / 2 or steps <= 0 or decodes <= 0 or seconds <= 0 or gaps < 0:
            return None
        if gaps > MAX_GAP_SHARE * seconds:
            return None
        if counted is not False and first.mixed is not None and last.mixed is not None:
            counted = True
            computed = last.mixed - first.mixed
            if computed <= 0.0 and last.computed - first.computed > STANDS_STILL * steps:
                return None
        elif counted:
            return None
        else:
            counted = False
            computed = max(0.0, last.computed - first.computed)
            if computed > MOST_COMPUTED * steps or _hidden(rows, seconds, seconds / decodes):
                return None
        share = times.slow_row_window / WINDOW_SECONDS
        busy = min([row.running for row in rows]) >= 1
        least = max(2.0, MIN_BUSY * share)
        enough = decodes >= max(2.0, MIN_DECODES * share) and steps >= max(2.0, MIN_STEPS * share)
        if not enough and not (busy and steps >= least and decodes >= least):
            return None
        return Measure(
            seconds=seconds / decodes,
            decodes=decodes / steps,
            prefill=computed / steps,
            counted=counted,
            kv_usage=sum([row.kv_usage for row in rows]) / len(rows),
            wall=span / steps if busy else None,
        )


def row_of(sample: Sample, own_canaries: int, own_tokens: float = 0.0) -> Row | None:
    """The counters of one page, or None where one of them is missing."""
    whole, kv_usage = sample.whole, sample.kv_mean()
    steps, prompt, running = whole.steps, whole.prompt_tokens, whole.running
    decodes, seconds, gaps = whole.itl_count, whole.itl_sum, whole.itl_gap
    if steps is None or prompt is None or decodes is None or seconds is None:
        return None
    if gaps is None or kv_usage is None or running is None:
        return None
    return Row(
        mono=sample.mono,
        running=running,
        kv_usage=kv_usage,
        steps=steps - own_canaries,
        computed=prompt - (whole.prefix_hits or 0.0) - CANARY_PROMPT_TOKENS * own_canaries - own_tokens,
        decodes=decodes,
        decode_seconds=seconds,
        gap_seconds=gaps,
        admitted=whole.first_tokens or 0.0,
        mixed=None if whole.mixed_prefill is None else _mixed(sample),
    )


def _hidden(rows: Sequence[Row], decoding: float, step: float) -> bool:
    """Whether requests run that neither get tokens, for `decoding` seconds in all, nor came in a `step` ago."""
    first, last = rows[0], rows[-1]
    entering = STEPS_TO_ENTER * step * max(0.0, last.admitted - first.admitted)
    running = sum([row.running for row in rows]) / len(rows)
    return running - (decoding + entering) / (last.mono - first.mono) >= HIDDEN_PREFILLS


def _mixed(sample: Sample) -> float | None:
    """The telemetry's count, where every rank has one and says that it is of now: one that stands still while the engine
    works would make its steps look empty, and slow."""
    for rank in sample.ranks:
        if rank.mixed_prefill is None or rank.count_age is None or rank.count_age > OLDEST_COUNT:
            return None
    return sample.whole.mixed_prefill


def _leapt(before: Row, after: Row) -> bool:
    if before.mixed is None or after.mixed is None:
        return False
    return not 0.0 <= after.mixed - before.mixed <= MOST_A_SECOND * (after.mono - before.mono)
