"""Simulated time: nothing happens between two moments, so weeks pass in seconds of the machine's own time."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

EPOCH = 1_767_225_600.0
"""Where simulated time begins unless told: 2026-01-01T00:00:00Z."""


@dataclass(order=True, slots=True)
class Timer:
    """Something due at monotonic time `when`; equal times fire in the order in which they were set."""

    when: float
    number: int
    call: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        """Never fire."""
        self.call = None


class SimulatedClock:
    """A `ports.clock.Clock` that moves only when told.

    `move` fires timers and returns at once: for a test that awaits each pass itself. `advance` also lets the
    event loop run dry after each firing: for tests with tasks that wait in `sleep`.
    """

    def __init__(self, start: float = EPOCH) -> None:
        self._start = start
        self._mono = 0.0
        self._timers: list[Timer] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        """Epoch seconds."""
        return self._start + self._mono

    def mono(self) -> float:
        """Monotonic seconds since this clock was made."""
        return self._mono

    async def sleep(self, seconds: float) -> None:
        """Wait until somebody has moved the clock by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def due() -> None:
            if not done.done():
                done.set_result(None)

        timer = self.call_later(seconds, due)
        try:
            await done
        finally:
            timer.cancel()

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Call `call()` once the clock has moved by `seconds`."""
        timer = Timer(self._mono + max(0.0, seconds), next(self._numbers), lambda: _drop(call()))
        heapq.heappush(self._timers, timer)
        return timer

    def move(self, seconds: float) -> None:
        """Move on by `seconds`, firing what falls due, each at its own moment."""
        until = self._mono + seconds
        while self._fire_next(until):
            pass
        self._mono = until

    async def advance(self, seconds: float) -> None:
        """As `move`, and after each firing the event loop runs until nobody has anything to do."""
        until = self._mono + seconds
        await settle()
        while self._fire_next(until):
            await settle()
        self._mono = until
        await settle()

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward (or back, if negative) without any time passing: an NTP step."""
        self._start += seconds

    def next_due(self) -> float | None:
        """Monotonic time of the next timer, or None."""
        while self._timers and self._timers[0].call is None:
            heapq.heappop(self._timers)
        return self._timers[0].when if self._timers else None

    def _fire_next(self, until: float) -> bool:
        due = self.next_due()
        if due is None or due > until:
            return False
        timer = heapq.heappop(self._timers)
        self._mono = max(self._mono, timer.when)
        if timer.call is not None:
            timer.call()
        return True


async def settle(most: int = 10_000) -> None:
    """Let every task run until all of them wait for a timer, a thread or a socket.

    RuntimeError where they are still busy after `most` turns of the loop.
    """
    loop = asyncio.get_running_loop()
    ready = getattr(loop, "_ready", None)
    """CPython's own queue of callbacks; loops without one get a fixed number of turns instead."""
    for _ in range(most if ready is not None else 100):
        await asyncio.sleep(0)
        if ready is not None and not ready:
            return
    if ready is not None:
        raise RuntimeError(f"the event loop is still busy after {most} turns")


def _drop(_: object) -> None:
    """A timer's call may return anything."""
