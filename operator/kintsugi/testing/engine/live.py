"""The engine in real time: one timer that runs steps when they are due, and wakes who waits for their outcome."""

import asyncio
import random
import time
from collections.abc import Callable

from kintsugi.testing.engine.ballast import Ballast
from kintsugi.testing.engine.faults import (
    CorruptedOutput,
    Crash,
    EngineDead,
    Fault,
    Hang,
    HangOnSigterm,
    HttpErrors,
    MemoryGrowth,
    SilentServer,
)
from kintsugi.testing.engine.faultset import FaultSet
from kintsugi.testing.engine.journal import Journal
from kintsugi.testing.engine.sequence import Phase
from kintsugi.testing.engine.simulated import SimulatedEngine, Ticket

_LAST_WORDS = 5.0
"""Seconds in which aborted streams must have been told so; TimeoutError after it."""


class LiveRequest:
    """A request of a client that is connected: its ticket, and an event set whenever it has got further."""

    __slots__ = ("request_id", "seen", "ticket", "woken")

    def __init__(self, request_id: str, ticket: Ticket) -> None:
        self.request_id = request_id
        self.ticket = ticket
        self.seen = 0
        self.woken = asyncio.Event()


class LiveEngine:
    """Drives a `SimulatedEngine` by the event loop's clock. While the engine idles no timer is set."""

    def __init__(self, engine: SimulatedEngine, journal: Journal, seed: int) -> None:
        self.engine = engine
        self.journal = journal
        self.requests: dict[tuple[int, int], LiveRequest] = {}
        self.on_crash: Callable[[int], None] = lambda code: None
        self.draining = False
        self.ballast = Ballast()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._random = random.Random(seed)
        self._holding: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._left = asyncio.Event()

    @property
    def now(self) -> float:
        return self._loop.time()

    @property
    def faults(self) -> FaultSet:
        return self.engine.faults

    def holds(self, kind: type[Fault]) -> bool:
        """Whether a fault of this kind holds right now."""
        return self.faults.injected(kind, self.now) is not None

    def draw(self, percent: float) -> bool:
        """True in `percent` of the calls."""
        return self._random.random() * 100.0 < percent

    # -- requests --------------------------------------------------------------------------------------------

    def refuses(self) -> int | None:
        """The status of an HTTP error that this request shall get, by the faults that hold; None = serve it."""
        fault = self.faults.get(HttpErrors, self.now)
        if fault and self.draw(fault.percent):
            return fault.status
        return 500 if self.holds(EngineDead) else None

    def corrupts(self) -> bool:
        fault = self.faults.get(CorruptedOutput, self.now)
        return fault is not None and self.draw(fault.percent)

    def submit(
        self, request_id: str, prompt: int, output: int, max_tokens: int, cached: int, rank: int | None
    ) -> LiveRequest:
        """Hand a request in. A hung engine swallows it, which is written down now: it could not be later."""
        ticket = self.engine.submit(
            self.now, prompt, output, max_tokens=max_tokens, cached_tokens=cached, rank=rank
        )
        live = LiveRequest(request_id, ticket)
        self.requests[ticket.rank, ticket.sequence.key] = live
        event = "swallowed" if self.engine.ranks[ticket.rank].hung else "accepted"
        self.journal.note(event, request_id=request_id, prompt_tokens=prompt, max_tokens=max_tokens)
        self._tick()
        return live

    def done_with(self, live: LiveRequest) -> None:
        """The client of this request has its answer, or has gone: what still runs of it is aborted."""
        ticket = live.ticket
        self.requests.pop((ticket.rank, ticket.sequence.key), None)
        self.engine.abort(ticket, self.now)
        self._left.set()
        self._tick()

    async def further(self, live: LiveRequest) -> tuple[int, str | None]:
        """Wait until the request has got further: tokens so far, and the reason where it has ended.

        In a dead engine every request has ended, by `error`.
        """
        while True:
            await self.unless(SilentServer)
            produced = self.engine.produced(live.ticket)
            reason = live.ticket.sequence.finish_reason
            if reason is None and self.holds(EngineDead):
                reason = "error"
            if produced > live.seen or reason:
                live.seen = produced
                return produced, reason
            live.woken.clear()
            await live.woken.wait()

    async def unless(self, kind: type[Fault]) -> None:
        """Go on at once, or when no fault of this kind holds any more."""
        while self.holds(kind):
            await self._changed.wait()

    # -- faults ----------------------------------------------------------------------------------------------

    def inject(self, fault: Fault) -> None:
        """Switch a fault on, as `POST /simulator/faults` does."""
        self.journal.note("fault", **fault.document())
        self.engine.inject(fault, self.now)
        self._tick()

    def clear(self, name: str | None = None) -> list[str]:
        """Switch one fault, or all, off; the names of those that were on."""
        gone = self.engine.clear(self.now, name)
        self.journal.note("faultsCleared", faults=gone)
        self._tick()
        return gone

    def compact(self) -> None:
        self.engine.compact(self.now)
        self.journal.note("compacted")
        self._tick()

    def _note_changes(self) -> None:
        now = self.now
        holding = self.faults.holding(now)
        if holding == self._holding:
            return
        new = holding - self._holding
        self._holding = holding
        self._changed.set()
        self._changed = asyncio.Event()
        if new & {Hang.name, EngineDead.name}:
            inside = [r.request_id for r in self.requests.values() if self.engine.ranks[r.ticket.rank].hung]
            self.journal.note("hung", in_flight=inside)
        if EngineDead.name in new:
            for live in self.requests.values():
                live.woken.set()
        if MemoryGrowth.name not in holding:
            self.ballast.stop()
        elif MemoryGrowth.name in new and (growth := self.faults.get(MemoryGrowth, now)) and growth.allocate:
            self.ballast.start(growth.bytes_per_second, growth.most_bytes, self._loop.time)
        crash = self.faults.get(Crash, now)
        if crash and Crash.name in new:
            self.journal.note("crashed", exit_code=crash.exit_code, in_flight=self.request_ids())
            self.on_crash(crash.exit_code)

    # -- time ------------------------------------------------------------------------------------------------

    def request_ids(self) -> list[str]:
        return [live.request_id for live in self.requests.values()]

    def page(self) -> str:
        text = self.engine.page(self.now)
        self._tick()
        return text

    def record(self) -> list[dict[str, object]]:
        """What each rank measured last, as the telemetry's files tell it."""
        found = self.engine.record(self.now, wall_clock())
        self._tick()
        return found

    def _tick(self) -> None:
        """Run what is due and wake who waits for it. After every call into the engine: any of them runs steps."""
        self.engine.advance(self.now)
        self._note_changes()
        for live in self.requests.values():
            sequence = live.ticket.sequence
            if (
                sequence.phase in (Phase.FINISHED, Phase.ABORTED)
                or self.engine.produced(live.ticket) > live.seen
            ):
                live.woken.set()
        self._arm()

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        wake = self.engine.wake_at
        if wake is not None:
            self._timer = self._loop.call_at(wake, self._tick)

    def stop(self) -> None:
        """No more steps."""
        self.ballast.stop()
        if self._timer:
            self._timer.cancel()
            self._timer = None

    async def drain(self, timeout: float) -> bool:
        """Refuse new requests and let those inside finish for `timeout` seconds; False where some were cut.

        Where steps have stopped, or the fault `hangOnSigterm` holds, nothing is cut: the requests stay until their
        clients leave, as in the real engine.
        """
        self.draining = True
        stuck = self.holds(HangOnSigterm) and bool(self.requests)
        if stuck:
            self.engine.inject(Hang(), self.now)
        try:
            async with asyncio.timeout(None if stuck or any(r.hung for r in self.engine.ranks) else timeout):
                await self._none_left()
        except TimeoutError:
            for live in self.requests.values():
                self.engine.abort(live.ticket, self.now)
            self._tick()
            async with asyncio.timeout(_LAST_WORDS):
                await self._none_left()
            return False
        return True

    async def _none_left(self) -> None:
        while self.requests:
            self._left.clear()
            await self._left.wait()


def wall_clock() -> float:
    """Seconds since the epoch."""
    return time.time()
