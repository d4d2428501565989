"""The operator's time: the only place that reads the machine's clocks."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

SLEW: Final = 0.02
"""Seconds by which epoch time may be put right in each second, so that no duration is wrong by more than 2 %."""
NEAR_SECONDS: Final = 1.0
"""What differs by no more is right: a `Date` header knows whole seconds only."""


@dataclass(frozen=True, slots=True)
class _Anchor:
    """Epoch seconds at some monotonic time, and what is still to be added to them, little by little."""

    epoch: float
    mono: float
    astray: float = 0.0

    def at(self, mono: float) -> float:
        passed = mono - self.mono
        most = SLEW * passed
        return self.epoch + passed + min(max(self.astray, -most), most)


class SystemClock:
    """`ports.clock.Clock` by the system's monotonic clock and the API server's time.

    Epoch time begins at what the API server says first, or at the machine's clock until it has said something, and
    goes on with the monotonic clock: a machine whose clock is wrong, or jumps, shortens and lengthens no wait.
    """

    def __init__(self) -> None:
        self._anchor = _Anchor(time.time(), time.monotonic())
        self._heard = False

    def now(self) -> float:
        """Epoch seconds."""
        return self._anchor.at(time.monotonic())

    def wall(self) -> float:
        """Epoch seconds by the machine's own clock, wrong or not."""
        return time.time()

    def mono(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def heard(self, epoch: float) -> None:
        """The API server's time just now, in epoch seconds. The first is taken as it is, later ones are neared slowly."""
        mono = time.monotonic()
        now = self._anchor.at(mono)
        astray = epoch - now if abs(epoch - now) > NEAR_SECONDS else 0.0
        self._anchor = _Anchor(now, mono, astray) if self._heard else _Anchor(now + astray, mono)
        self._heard = True

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        await asyncio.sleep(seconds)
