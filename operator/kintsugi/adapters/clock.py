"""The operator's time: the only place that reads the machine's clocks."""

import asyncio
import logging
import threading
import time
from dataclasses import dataclass
from typing import Final

SLEW: Final = 0.02
"""Seconds by which epoch time may be put right in each second, so that no duration is wrong by more than 2 %."""
NEAR_SECONDS: Final = 1.0
"""What differs by no more is right: a `Date` header knows whole seconds only."""
PROMPT_SECONDS: Final = 1.0
"""An answer that took longer says nothing of the server's time now: its `Date` may be that old."""
TOLD_SECONDS: Final = 10.0
"""A difference of more than this is logged."""
SENSIBLE: Final = range(1_500_000_000, 4_100_000_000)
"""2017 to 2099: what says another year is no clock."""

log = logging.getLogger("kintsugi.clock")


@dataclass(frozen=True, slots=True)
class _Anchor:
    """Epoch seconds at some steady time, and what is still to be added to them, little by little."""

    epoch: float
    steady: float
    astray: float = 0.0

    def at(self, steady: float) -> float:
        passed = steady - self.steady
        most = SLEW * passed
        return self.epoch + passed + min(max(self.astray, -most), most)


class SystemClock:
    """`ports.clock.Clock` by the system's steady clock and the API server's time. Any thread may call it.

    Epoch time begins at what the API server says first, or at the machine's clock until it has said something, and
    goes on with the steady clock: a machine whose clock is wrong, or jumps, shortens and lengthens no wait.
    """

    def __init__(self) -> None:
        self._anchor = _Anchor(time.time(), steady())
        self._lock = threading.Lock()
        self._trusted = False

    def now(self) -> float:
        """Epoch seconds."""
        return self._anchor.at(steady())

    def wall(self) -> float:
        """Epoch seconds by the machine's own clock, wrong or not."""
        return time.time()

    def mono(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def heard(self, epoch: float, took: float) -> None:
        """The API server's time as it answered, in epoch seconds, and how many seconds its answer took.

        The first is taken as it is, whatever it took: time that is behind only lengthens waits. Later ones are neared
        slowly, where they were prompt.
        """
        with self._lock:
            if int(epoch) not in SENSIBLE or (self._trusted and took > PROMPT_SECONDS):
                return
            since = steady()
            now = self._anchor.at(since)
            astray = epoch - now if abs(epoch - now) > NEAR_SECONDS else 0.0
            if abs(astray) > TOLD_SECONDS >= abs(self._anchor.astray):
                text = "our time differs from the API server's"
                log.warning(text, extra={"seconds": round(astray, 1), "taken at once": not self._trusted})
            self._anchor = _Anchor(now, since, astray) if self._trusted else _Anchor(now + astray, since)
            self._trusted = True

    def begin_anew(self) -> None:
        """Take the next that is heard as it is: for a process that judges from nothing again, after who knows what pause."""
        with self._lock:
            self._trusted = False

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        await asyncio.sleep(seconds)


def steady() -> float:
    """Seconds of a clock that nobody sets. Where the system has one, it goes on while the machine is suspended."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)
