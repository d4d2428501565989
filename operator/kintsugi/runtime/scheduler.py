"""When to look again: a due time per deployment, one pass at a time each, a cap on passes at once, back-off on errors.

controller-runtime's queue in miniature; the one place where any exception is caught, counted and survived.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kintsugi.core.snapshot import Key
from kintsugi.ports.clock import Clock
from kintsugi.ports.errors import PortError, Refused

log = logging.getLogger("kintsugi.scheduler")

Pass = Callable[[Key, float], Awaitable[float | None]]
"""Runs one pass, given by how many seconds it is late; returns seconds until the next, or None to forget."""
Note = Callable[[Key, str, float], None]

FIRST_BACKOFF_SECONDS: Final = 1.0
LONGEST_BACKOFF_SECONDS: Final = 60.0


class Scheduler:
    """Runs passes over the deployments that were touched and not forgotten."""

    def __init__(self, run: Pass, clock: Clock, note: Note, max_passes: int = 32) -> None:
        self._run = run
        self._clock = clock
        self._note = note
        self._slots = asyncio.Semaphore(max_passes)
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._woken: dict[Key, asyncio.Event] = {}
        self.last_completed: float = clock.mono()
        """Monotonic time of the last completed pass, of any deployment."""

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(self._tasks)

    def touch(self, key: Key) -> None:
        """Look at this deployment as soon as may be."""
        if key not in self._tasks:
            self._woken[key] = asyncio.Event()
            self._tasks[key] = asyncio.create_task(self._watch(key), name=f"pass {key}")
        self._woken[key].set()

    def forget(self, key: Key) -> None:
        """Stop looking. A pass under way ends by itself."""
        task = self._tasks.pop(key, None)
        self._woken.pop(key, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def close(self) -> None:
        """Stop everything and wait for it."""
        tasks = list(self._tasks.values())
        for key in list(self._tasks):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, key: Key) -> None:
        errors = 0
        due = self._clock.mono()
        while key in self._tasks:
            woken = self._woken[key]
            woken.clear()
            async with self._slots:
                began = self._clock.mono()
                delay, ok = await self._one(key, max(0.0, began - due), errors)
            errors = 0 if ok else errors + 1
            if delay is None:
                self.forget(key)
                return
            # A steady beat: the next is due an interval after this one was, unless that is past already.
            due = max(due + delay, self._clock.mono()) if ok else self._clock.mono() + delay
            if await self._wait(woken, due):
                due = self._clock.mono()

    async def _one(self, key: Key, late_by: float, errors: int) -> tuple[float | None, bool]:
        began = self._clock.mono()
        try:
            delay = await self._run(key, late_by)
        except asyncio.CancelledError:
            raise
        except PortError as error:
            log.warning("pass failed", extra={"fleet": str(key), "why": f"{type(error).__name__}: {error}"})
            said = error.retry_after if isinstance(error, Refused) else None
            self._note(key, "error", self._clock.mono() - began)
            return max(said or 0.0, _backoff(errors)), False
        except Exception:
            log.exception("pass failed unexpectedly", extra={"fleet": str(key)})
            self._note(key, "error", self._clock.mono() - began)
            return _backoff(errors), False
        self.last_completed = self._clock.mono()
        self._note(key, "ok", self.last_completed - began)
        return delay, True

    async def _wait(self, woken: asyncio.Event, due: float) -> bool:
        """Wait until `due`, or until touched; whether it was touched."""
        sleep = asyncio.ensure_future(self._clock.sleep(max(0.0, due - self._clock.mono())))
        touched = asyncio.ensure_future(woken.wait())
        try:
            await asyncio.wait({sleep, touched}, return_when=asyncio.FIRST_COMPLETED)
            return touched.done()
        finally:
            sleep.cancel()
            touched.cancel()


def _backoff(errors: int) -> float:
    return float(min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**errors))
