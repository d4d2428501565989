"""Memory that is really taken, so that a container's own figures grow as a leak's do."""

import asyncio
from collections.abc import Callable
from typing import Final

_BEAT: Final = 0.5
_PAGE: Final = 4096


class Ballast:
    """Takes memory at a steady pace while it runs, and gives it back when it is stopped."""

    def __init__(self) -> None:
        self._held: list[bytearray] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(map(len, self._held))

    def start(self, bytes_per_second: float, most: float, clock: Callable[[], float]) -> None:
        """Begin (anew) to take memory, `most` bytes in all."""
        self.stop()
        self._task = asyncio.ensure_future(self._take(bytes_per_second, most, clock))

    async def _take(self, bytes_per_second: float, most: float, clock: Callable[[], float]) -> None:
        begun = clock()
        while self.size < most:
            await asyncio.sleep(_BEAT)
            missing = int(min(most, bytes_per_second * (clock() - begun)) - self.size)
            if missing > 0:
                block = bytearray(missing)
                block[::_PAGE] = b"\x01" * len(range(0, missing, _PAGE))  # untouched pages are not resident
                self._held.append(block)

    def stop(self) -> None:
        """Give everything back."""
        if self._task:
            self._task.cancel()
            self._task = None
        self._held.clear()
