"""The machine's own time: the only place of the operator that reads it."""

import asyncio
import time


class SystemClock:
    """`ports.clock.Clock` by the system's clocks."""

    def now(self) -> float:
        """Epoch seconds."""
        return time.time()

    def mono(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        await asyncio.sleep(seconds)
