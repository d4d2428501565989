"""A whole simulated engine without any I/O: ranks, faults, page. Time is an argument everywhere."""

import random
from collections.abc import Sequence as Ordered
from dataclasses import dataclass

from kintsugi.testing.engine.coarse import CoarseLoad, CoarseModel
from kintsugi.testing.engine.counters import RankCounters
from kintsugi.testing.engine.face import Face
from kintsugi.testing.engine.faults import (
    CacheMiss,
    CounterReset,
    EngineDead,
    ErrorFrames,
    Fault,
    Hang,
    KvPressure,
    OrphanedBlocks,
    StarvedAdmission,
    ThroughputDrop,
)
from kintsugi.testing.engine.faultset import FaultSet
from kintsugi.testing.engine.front import HttpCounters
from kintsugi.testing.engine.model import EngineModel
from kintsugi.testing.engine.page import PageSettings
from kintsugi.testing.engine.sequence import Sequence
from kintsugi.testing.engine.shape import EngineShape, StepCost, cache_config


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request inside a `SimulatedEngine`: what `produced` and `abort` want back."""

    rank: int
    sequence: Sequence


class SimulatedEngine:
    """One engine process: one or more ranks behind one page, with faults that can be switched while it runs.

    `now` is any monotonic clock in seconds; `epoch` is the wall-clock time (seconds since 1970) at `now`, used for
    `process_start_time_seconds` and the `_created` series only. The same seed and the same calls give the same page.
    `fragmentation` is the allocator's calm level, a ratio. With `load` every rank is under that steady traffic
    without any request being submitted (`set_load` changes it): cheap enough for thousands of engines.
    """

    def __init__(
        self,
        *,
        model_name: str = "deepseek-v4",
        shape: EngineShape | None = None,
        cost: StepCost | None = None,
        seed: int = 0,
        now: float = 0.0,
        epoch: float = 1.8e9,
        ranks: int = 1,
        workers: int = 1,
        fragmentation: float = 0.08,
        log_stats: bool = True,
        kv_cache_metrics: bool = False,
        telemetry: bool = True,
        load: CoarseLoad | None = None,
    ) -> None:
        if ranks < 1 or workers < 1:
            raise ValueError(f"ranks and workers must be at least 1, not {ranks} and {workers}")
        if not 0.0 <= fragmentation <= 1.0:
            raise ValueError(f"fragmentation must be a ratio from 0 to 1, not {fragmentation}")
        self.shape = shape or EngineShape()
        self.model_name = model_name
        self.telemetry = telemetry
        self.faults = FaultSet()
        cost = cost or StepCost()
        self.ranks: list[EngineModel] = [
            CoarseModel(self.shape, cost, load, seed=seed + i, now=now)
            if load
            else EngineModel(self.shape, cost, seed=seed + i, now=now)
            for i in range(ranks)
        ]
        self._now = now
        self._random = random.Random(seed)
        self._resets_done: set[int] = set()
        settings = PageSettings(
            model_name=model_name,
            ranks=ranks,
            log_stats=log_stats,
            kv_cache_metrics=kv_cache_metrics,
            telemetry=telemetry,
            workers=workers,
            cache_config=cache_config(self.shape),
        )
        self._face = Face(
            settings, self.ranks, self.faults, fragmentation=fragmentation, now=now, epoch=epoch
        )

    @property
    def counters(self) -> Ordered[RankCounters]:
        """What each rank has counted, with its true gauges (also while the page lies)."""
        return [rank.counters for rank in self.ranks]

    @property
    def http(self) -> HttpCounters:
        """Where the server in front enters HTTP requests."""
        return self._face.http

    @property
    def wake_at(self) -> float | None:
        """When something next happens by itself: a step ends, a fault begins or ends. None = never."""
        times = [rank.wake_at for rank in self.ranks] + [self.faults.next_change(self._now)]
        return min((t for t in times if t is not None), default=None)

    @property
    def in_flight(self) -> int:
        """Requests inside, those that no gauge shows yet included."""
        return sum(rank.in_flight for rank in self.ranks)

    # -- requests --------------------------------------------------------------------------------------------

    def submit(
        self,
        now: float,
        prompt_tokens: int,
        output_tokens: int,
        *,
        max_tokens: int | None = None,
        cached_tokens: int = 0,
        rank: int | None = None,
    ) -> Ticket:
        """Hand in a request, to the rank with the fewest requests unless `rank` is given.

        Raises ValueError for a request that can never fit, or an unknown rank.
        """
        self.advance(now)
        if rank is None:
            rank = min(range(len(self.ranks)), key=lambda i: self.ranks[i].in_flight)
        elif not 0 <= rank < len(self.ranks):
            raise ValueError(f"rank must be from 0 to {len(self.ranks) - 1}, not {rank}")
        if self.faults.get(CacheMiss, now):
            cached_tokens = 0
        errors = self.faults.get(ErrorFrames, now)
        fails = errors is not None and self._random.random() * 100.0 < errors.percent
        sequence = self.ranks[rank].submit(
            now,
            prompt_tokens,
            min(output_tokens, errors.after_tokens) if errors and fails else output_tokens,
            max_tokens=max_tokens,
            cached_tokens=cached_tokens,
            fails=fails,
        )
        return Ticket(rank, sequence)

    def abort(self, ticket: Ticket, now: float) -> None:
        """The client of this request has gone."""
        self.advance(now)
        self.ranks[ticket.rank].abort(ticket.sequence, now)

    def produced(self, ticket: Ticket) -> int:
        """Tokens that the request has been given so far."""
        return self.ranks[ticket.rank].produced(ticket.sequence)

    def set_load(self, load: CoarseLoad, now: float) -> None:
        """Other steady traffic from now on. Raises TypeError where the engine was made without a load."""
        self.advance(now)
        for rank in self.ranks:
            if not isinstance(rank, CoarseModel):
                raise TypeError("this engine steps; make it with load=CoarseLoad(...)")
            rank.load = load

    # -- faults ----------------------------------------------------------------------------------------------

    def inject(self, fault: Fault, now: float) -> None:
        """Switch a fault on; it begins `after_seconds` later. One of the same name is replaced."""
        self.advance(now)
        self._face.mark_ramp()
        self.faults.inject(fault, now)
        self._apply(now)

    def clear(self, now: float, name: str | None = None) -> list[str]:
        """Switch one fault, or all, off again; the names of those that were on."""
        self.advance(now)
        gone = self.faults.clear(name)
        self._apply(now)
        return gone

    def compact(self, now: float) -> None:
        """The allocator's cache was emptied: fragmentation back at its calm level, its fault ended."""
        self.advance(now)
        self.faults.clear("fragmentation")
        self._face.compact()

    # -- time ------------------------------------------------------------------------------------------------

    def advance(self, to: float) -> None:
        """Run every rank up to `to`, with every fault beginning and ending at its own time."""
        while (change := self.faults.next_change(self._now)) is not None and change <= to:
            self._run(change)
            self._apply(change)
        self._run(to)

    def page(self, now: float) -> str:
        """The `/metrics` text at `now`, as this engine's faults let it look."""
        self.advance(now)
        return self._face.page(now, self._orphaned(now))

    def record(self, now: float, epoch: float) -> list[dict[str, object]]:
        """What each rank measured last, as `contract.RECORD_PATH` tells it; `epoch`: seconds since 1970 at `now`."""
        self.advance(now)
        return self._face.record(now, epoch, self._orphaned(now))

    def _run(self, to: float) -> None:
        if to > self._now:
            self._slow(to)
            self._leak(to)
        for rank in self.ranks:
            rank.advance(to)
        self._now = max(self._now, to)

    def _apply(self, now: float) -> None:
        """Make the ranks feel what holds now."""
        self._slow(now)
        self._leak(now)
        hang = self.faults.get(Hang, now)
        dead = self.faults.get(EngineDead, now)
        for index, rank in enumerate(self.ranks):
            if dead or (hang and hang.rank in (None, index)):
                rank.hang(now)
            else:
                rank.resume(now)
        reset = self.faults.injected(CounterReset, now)
        if reset and id(reset) not in self._resets_done and isinstance(reset.fault, CounterReset):
            self._resets_done = {id(reset)}
            self._face.restart_counters(now, same_start=reset.fault.same_start)

    def _slow(self, now: float) -> None:
        drop = self.faults.injected(ThroughputDrop, now)
        lost = 0.0
        if drop and isinstance(drop.fault, ThroughputDrop):
            lost = drop.fault.percent / 100.0 * drop.share(now, drop.fault.over_seconds)
        for rank in self.ranks:
            rank.step_factor = 1.0 / (1.0 - lost)

    def _leak(self, now: float) -> None:
        starved = self.faults.get(StarvedAdmission, now)
        pressure = self.faults.get(KvPressure, now)
        lost = self._orphaned(now)
        if pressure:
            lost += int(self.shape.num_gpu_blocks * pressure.percent / 100.0)
        limit = starved.max_running if starved else None
        for rank in self.ranks:
            if (limit, lost) != rank.restrictions and not rank.hung:
                rank.restrict(now, admission_limit=limit, blocks_lost=lost)

    def _orphaned(self, now: float) -> int:
        orphaned = self.faults.injected(OrphanedBlocks, now)
        if not orphaned or not isinstance(orphaned.fault, OrphanedBlocks):
            return 0
        share = orphaned.share(now, orphaned.fault.over_seconds) * orphaned.fault.percent / 100.0
        return int(self.shape.num_gpu_blocks * share)
