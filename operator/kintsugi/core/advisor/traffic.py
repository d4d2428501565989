"""The traffic of a pool over a window: what its engines gained, and how full they were at each look."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from kintsugi.core.advisor.histogram import Histogram, merged
from kintsugi.core.advisor.look import EngineFacts, Look, read_look
from kintsugi.core.page import PageReader
from kintsugi.core.reading import Unreadable
from kintsugi.core.sample import fell
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Page

STALE_SECONDS: Final = 60.0
STALE_SHARE: Final = 0.25
"""An instance is left out where its last page is older than the pool's newest by more than the first, and by more than
the second times the window: it has gone, or could not be read of late."""


MOST_REQUESTS: Final = 1e6
"""Requests of one engine beyond which a gauge is not believed."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One engine rank at one look."""

    running: float
    waiting: float
    """For capacity; requests that wait for something of their own do not count."""
    kv: float | None
    """Share of KV blocks in use, 0 to 1."""


@dataclass(frozen=True, slots=True)
class InstanceTraffic:
    """Looks at one process, oldest first, at least two."""

    name: str
    looks: tuple[Look, ...]

    @property
    def seconds(self) -> float:
        return self.looks[-1].sample.mono - self.looks[0].sample.mono

    @property
    def last(self) -> float:
        """When it was last looked at."""
        return self.looks[-1].sample.mono

    @property
    def ranks(self) -> int:
        return len(self.looks[-1].sample.ranks)

    @property
    def facts(self) -> EngineFacts:
        return self.looks[-1].facts

    def moments(self) -> tuple[Moment, ...]:
        """Every rank at every look that tells its load."""
        return tuple(moment for look in self.looks for moment in moments_of(look))

    def gained(self, counter: str) -> float | None:
        """By how much a counter of `core.sample` rose; None where a page lacks it."""
        then, now = self.looks[0].sample.total(counter), self.looks[-1].sample.total(counter)
        return None if then is None or now is None else max(0.0, now - then)

    def gained_sum(self, signal: Signal) -> float | None:
        """By how much one of the sums beside the histograms rose."""
        then, now = self.looks[0].sums.get(signal), self.looks[-1].sums.get(signal)
        return None if then is None or now is None else max(0.0, now - then)

    def histogram(self, signal: Signal) -> Histogram | None:
        """What was observed within the window."""
        now = self.looks[-1].histograms.get(signal)
        return None if now is None else now.since(self.looks[0].histograms.get(signal, Histogram()))


def moments_of(look: Look) -> tuple[Moment, ...]:
    """Every rank of one look that tells its load; a gauge that can't be true tells nothing."""
    found = []
    for rank in look.sample.ranks:
        waiting = max(0.0, (rank.waiting or 0.0) - (rank.deferred or 0.0))
        if rank.running is not None and 0 <= rank.running <= MOST_REQUESTS and waiting <= MOST_REQUESTS:
            usage = rank.kv_usage if rank.kv_usage is not None and 0 <= rank.kv_usage <= 1 else None
            found.append(Moment(rank.running, waiting, usage))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class PoolTraffic:
    """The traffic of one pool. `left_out` says of each instance that does not count, why."""

    pool: str
    instances: tuple[InstanceTraffic, ...]
    left_out: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The usual window of an instance; 0 without any."""
        return median(i.seconds for i in self.instances) if self.instances else 0.0

    @property
    def looks(self) -> int:
        """Pages that count, of all instances."""
        return sum(len(i.looks) for i in self.instances)

    @property
    def looks_each(self) -> int:
        """Pages of the instance that has fewest."""
        return min((len(i.looks) for i in self.instances), default=0)

    @property
    def requests(self) -> float:
        """Requests that ended well within the window; 0 where no page tells."""
        return self.gained("finished") or 0.0

    @property
    def arrived(self) -> float:
        """Requests that came within the window: those that ended, and what the engines hold more than at its start."""
        held = [(_held(i.looks[0]), _held(i.looks[-1])) for i in self.instances]
        return max(0.0, self.requests + math.fsum(now - then for then, now in held))

    def moments(self) -> tuple[Moment, ...]:
        """Every rank of every instance at every look."""
        return tuple(moment for instance in self.instances for moment in instance.moments())

    def gained(self, counter: str) -> float | None:
        """The rise of a counter over all instances; None where one does not tell."""
        return _sum(instance.gained(counter) for instance in self.instances)

    def gained_sum(self, signal: Signal) -> float | None:
        """The rise of a sum over all instances; None where one does not tell."""
        return _sum(instance.gained_sum(signal) for instance in self.instances)

    def histogram(self, signal: Signal) -> Histogram | None:
        """All instances together; None where one does not tell."""
        found = [instance.histogram(signal) for instance in self.instances]
        known = [each for each in found if each is not None]
        return merged(known) if known and len(known) == len(found) else None

    def mean_kv(self) -> float | None:
        """KV usage, mean over ranks and looks."""
        known = [m.kv for m in self.moments() if m.kv is not None]
        return math.fsum(known) / len(known) if known else None

    def blocks(self) -> float | None:
        """KV blocks of one engine: the fewest of all instances; None where no page tells."""
        known = [i.facts.blocks for i in self.instances if i.facts.blocks is not None]
        return min(known) if known and len(known) == len(self.instances) else None


@dataclass(frozen=True, slots=True)
class Glance:
    """One attempt to look at an instance, at `mono` seconds."""

    instance: str
    mono: float
    look: Look | Unreadable


def glance(reader: PageReader, instance: str, page: Page) -> Glance:
    """Read one page of an instance."""
    return Glance(instance, page.mono, read_look(reader, page))


def pool_traffic(pool: str, glances: Iterable[Glance], window: float | None = None) -> PoolTraffic:
    """The traffic of `pool`, from glances in any order.

    `window` in seconds counts back from the newest of them; None takes all.
    """
    by_name: dict[str, list[Glance]] = {}
    for each in sorted(glances, key=lambda one: (one.instance, one.mono)):
        by_name.setdefault(each.instance, []).append(each)
    newest = max((mine[-1].mono for mine in by_name.values()), default=0.0)
    since = -math.inf if window is None else newest - window
    found: list[InstanceTraffic] = []
    left_out: list[str] = []
    for name, mine in by_name.items():
        instance = _instance(name, [one for one in mine if one.mono >= since])
        if isinstance(instance, str):
            left_out.append(f"{name}: {instance}")
        else:
            found.append(instance)
    whole = max((i.seconds for i in found), default=0.0)
    limit = max(STALE_SECONDS, STALE_SHARE * whole)
    stale = [i for i in found if newest - i.last > limit]
    left_out += [
        f"{i.name}: its last readable page is {newest - i.last:.0f} s older than the pool's newest"
        for i in stale
    ]
    return PoolTraffic(pool, tuple(i for i in found if i not in stale), tuple(left_out))


def _instance(name: str, glances: Sequence[Glance]) -> InstanceTraffic | str:
    """The looks since the process last restarted, or why there are too few."""
    looks: list[Look] = []
    unreadable, restarted = "", False
    for each in glances:
        look = each.look
        if isinstance(look, Unreadable):
            unreadable = look.reason
            continue
        if looks and look.sample.mono <= looks[-1].sample.mono:
            continue
        if looks and fell(looks[-1].sample, look.sample) is not None:
            looks, restarted = [], True
        looks.append(look)
    if len(looks) < 2:
        if unreadable:
            return unreadable
        return "restarted just now: one page since" if restarted else f"{len(looks)} page, two are the least"
    traffic = InstanceTraffic(name, tuple(looks))
    return "makes no engine step though requests run: see its verdict first" if _stands(traffic) else traffic


def _held(look: Look) -> float:
    return math.fsum(moment.running + moment.waiting for moment in moments_of(look))


def _stands(traffic: InstanceTraffic) -> bool:
    """Whether its gauges have nothing behind them: a hung engine shows its last ones for ever."""
    busy = all(any(m.running > 0 for m in moments_of(look)) for look in traffic.looks)
    kv_moves = any(a.sample.kv_max() != b.sample.kv_max() for a, b in pairwise(traffic.looks))
    return busy and traffic.gained("steps") == 0 and traffic.gained("generation_tokens") == 0 and not kv_moves


def _sum(values: Iterable[float | None]) -> float | None:
    numbers = list(values)
    known = [number for number in numbers if number is not None]
    return math.fsum(known) if known and len(known) == len(numbers) else None
