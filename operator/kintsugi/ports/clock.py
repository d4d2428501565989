"""Time, as a port: read once per pass, an argument everywhere else."""

from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time in seconds, and a way to wait."""

    def now(self) -> float:
        """Epoch seconds."""
        ...

    def mono(self) -> float:
        """Monotonic seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...
