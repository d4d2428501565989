"""Looks at single instances, put together to passes: at each moment, what was known of all of them."""

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from statistics import median
from typing import Final

from kintsugi.core.advisor.saved import SavedInvalid
from kintsugi.core.backtest.observation import Observed
from kintsugi.core.snapshot import Failed, Failure, Instance, Page

GONE_SECONDS: Final = 45.0
"""An instance of which nothing stands in the history for this long, while others do, is not there any more."""
BACKLOG: Final = 3
"""Looks at one instance that wait for a pass; from so many on the history is denser than the passes, and is thinned."""
PEEKED: Final = 2000
NOTHING: Final = "nothing stands in the history of it at this moment"


@dataclass(frozen=True, slots=True)
class Moment:
    """One pass. `now` in epoch seconds."""

    now: float
    instances: tuple[Instance, ...]
    pages: int
    """Pages that are new in this pass."""


@dataclass(slots=True)
class _Row:
    waiting: deque[Observed] = field(default_factory=deque)
    last: Observed | None = None
    missed: int = 0


def in_order(observations: Iterable[Observed], slack: float) -> Iterator[Observed]:
    """By time. Raises SavedInvalid where one stands more than `slack` seconds too late: it would be left out."""
    heap: list[tuple[float, int, Observed]] = []
    newest = -math.inf
    for number, seen in enumerate(observations):
        newest = max(newest, seen.time)
        if seen.time < newest - slack:
            raise SavedInvalid(
                f"the look at {seen.instance.name} at {seen.time:.0f} stands {newest - seen.time:.0f} s too late, behind "
                f"one at {newest:.0f}: put the pages in the order of their time, or, where a clock was set back, replay what stands before it alone"
            )
        heapq.heappush(heap, (seen.time, number, seen))
        while heap and heap[0][0] <= newest - slack:
            yield heapq.heappop(heap)[2]
    while heap:
        yield heapq.heappop(heap)[2]


def spacing(observations: Iterable[Observed]) -> tuple[float | None, Iterator[Observed]]:
    """Seconds between two looks at one instance, as a rule, and the same observations again; None for fewer than two."""
    rest = iter(observations)
    first = list(islice(rest, PEEKED))
    last: dict[str, float] = {}
    gaps = []
    for seen in first:
        before = last.get(seen.instance.uid)
        if before is not None and seen.time > before:
            gaps.append(seen.time - before)
        last[seen.instance.uid] = seen.time
    return (median(gaps) if gaps else None), chain(first, rest)


def moments(observations: Iterable[Observed], every: float) -> Iterator[Moment]:
    """A pass each `every` seconds, none where the history has a hole. `observations` by time.

    Each look is used once; one that comes a little too late for its pass is used in the next. An instance without a
    new look keeps its place for a while, unread: that is no evidence of anything.
    """
    rows: dict[str, _Row] = {}
    patience = max(3, math.ceil(GONE_SECONDS / every))
    due: float | None = None
    for seen in observations:
        due = seen.time + every / 2 if due is None else due
        while seen.time > due:
            if any(row.waiting for row in rows.values()):
                yield _moment(rows, due, patience)
                due += every
            else:
                due += every * math.ceil((seen.time - due) / every)
        row = rows.setdefault(seen.instance.uid, _Row())
        row.waiting.append(seen)
    while due is not None and any(row.waiting for row in rows.values()):
        yield _moment(rows, due, patience)
        due += every


def _moment(rows: dict[str, _Row], due: float, patience: int) -> Moment:
    instances, pages = [], 0
    for uid in list(rows):
        row = rows[uid]
        new = _next(row.waiting)
        if new is not None:
            row.last, row.missed = new, 0
            pages += isinstance(new.instance.scrape, Page)
        else:
            row.missed += 1
        last = row.last
        if last is None or last.gone or row.missed > patience:
            if not row.waiting:
                del rows[uid]
            continue
        silent = Failed(Failure.PENDING, NOTHING, due)
        instances.append(last.instance if new is not None else replace(last.instance, scrape=silent))
    return Moment(due, tuple(sorted(instances, key=lambda i: (i.pool, i.created_at, i.name))), pages)


def _next(waiting: deque[Observed]) -> Observed | None:
    if not waiting:
        return None
    if len(waiting) < BACKLOG or any(each.gone for each in waiting):
        return waiting.popleft()
    newest = waiting[-1]
    waiting.clear()
    return newest
