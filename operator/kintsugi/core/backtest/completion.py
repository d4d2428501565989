"""What a page tells of its pod, where nothing else does: which process it is, and since when it can have served."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kintsugi.core.advisor.saved import LATEST
from kintsugi.core.backtest.observation import Observed
from kintsugi.core.snapshot import Page

START: Final = "process_start_time_seconds"
_VALUE: Final = re.compile(r"(?:\{.*\})?[ \t]+(\S+)")
"""The value is the second word; a time may follow it."""
SURELY_SERVING: Final = 7200.0
"""A process this much older than the history's beginning was past its start and its warm-up by then. Seconds; above
the longest start budget that the model catalog leads to."""


@dataclass(slots=True)
class _Process:
    started_at: float
    restarts: int = 0
    ready_since: float | None = None


def completed(
    observations: Iterable[Observed], pools: Mapping[str, int | None], deployment: str
) -> Iterator[Observed]:
    """Observations with what can be known filled in; those with the pod's own facts pass as they are.

    Where nobody says since when a process was Ready, it is since its first page here, unless it had been running for
    long by then: so its warm-up is never cut short, and an old process's first pages are never taken for its youth.
    `pools` by name with the requests that an engine of it runs at a time, where the settings say that.
    """
    processes: dict[str, _Process] = {}
    begin: float | None = None
    for seen in observations:
        begin = seen.time if begin is None else begin
        if not seen.assumed or seen.gone:
            yield seen
            continue
        instance = seen.instance
        process = processes.get(instance.uid)
        if isinstance(instance.scrape, Page):
            process = processes[instance.uid] = _moved(process, instance.scrape, begin)
        pool, revision = placed(instance.name, instance.pool, pools, deployment)
        yield replace(
            seen,
            instance=replace(
                instance,
                pool=pool,
                revision=instance.revision or revision,
                created_at=process.started_at if process else seen.time,
                started_at=process.started_at if process else None,
                ready=process is not None,
                ready_since=process.ready_since if process else None,
                restarts=process.restarts if process else 0,
                max_num_seqs=instance.max_num_seqs or pools.get(pool),
            ),
        )


def placed(name: str, pool: str, pools: Mapping[str, int | None], deployment: str) -> tuple[str, str]:
    """(pool, revision) of a pod by its name, `<deployment>-<pool>-<revision>-<suffix>` as a ReplicaSet names it.

    A pool that is given stays; where there is one pool, everything belongs to it. '' = not known.
    """
    for known in sorted(pools, key=len, reverse=True):
        head = f"{deployment}-{known}-"
        if name.startswith(head) and pool in ("", known):
            revision = name.removeprefix(head).rpartition("-")[0]
            return known, revision
    if pool or len(pools) != 1:
        return pool, ""
    return next(iter(pools)), ""


def _moved(process: _Process | None, page: Page, begin: float) -> _Process:
    said = process_start(page.text)
    started = said if said is not None else process.started_at if process else page.mono
    if process is not None and abs(started - process.started_at) <= 1.0:
        return process
    long_ago = started < begin - SURELY_SERVING
    return _Process(
        started_at=started,
        restarts=0 if process is None else process.restarts + 1,
        ready_since=started if long_ago else page.mono,
    )


def process_start(text: str) -> float | None:
    """The process's start on a page, in epoch seconds; None where it does not stand there."""
    at = text.find(START)
    while at >= 0:
        end = text.find("\n", at)
        line = text[at : end if end >= 0 else len(text)]
        found = _VALUE.match(line, len(START)) if at == 0 or text[at - 1] == "\n" else None
        number = _number(found[1]) if found else math.nan
        if 0 <= number <= LATEST:
            return number
        at = text.find(START, at + 1)
    return None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
