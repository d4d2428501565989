"""Whether engines list the adapters that they were given: asked of each after its start, and again from time to time."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kintsugi.ports.engines import Address, EnginePort

SOON_SECONDS: Final = 10.0
"""Between two questions while an adapter is missing, for the first `SOON_TIMES` of them."""
SOON_TIMES: Final = 12
LATER_SECONDS: Final = 300.0
"""Between two questions once all are listed, or once it has been asked often enough."""
TIMEOUT_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Asked:
    listed: frozenset[str] | None = None
    at: float = float("-inf")
    times: int = 0
    asking: asyncio.Task[None] | None = None


class Listings:
    """What the engines of one deployment list, by pod UID and process; nothing is asked where there are no adapters."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, float | None], _Asked] = {}

    def of(self, uid: str, started_at: float | None) -> frozenset[str] | None:
        """What that process last listed; None where it has not said."""
        found = self._known.get((uid, started_at))
        return found.listed if found else None

    def look(
        self,
        engines: EnginePort,
        ready: Mapping[tuple[str, float | None], Address],
        adapters: Collection[str],
        mono: float,
    ) -> None:
        """Begin to ask the processes in `ready` that are due; answers are there in later passes."""
        for gone in set(self._known) - set(ready if adapters else ()):
            asked = self._known.pop(gone)
            if asked.asking is not None:
                asked.asking.cancel()
        if not adapters:
            return
        for process, address in ready.items():
            asked = self._known.setdefault(process, _Asked())
            missing = asked.listed is None or not set(adapters) <= asked.listed
            pause = SOON_SECONDS if missing and asked.times < SOON_TIMES else LATER_SECONDS
            if asked.asking is None and mono - asked.at >= pause:
                asked.at, asked.times = mono, asked.times + 1
                asked.asking = asyncio.create_task(_ask(engines, address, asked), name=f"models {address.ip}")


async def _ask(engines: EnginePort, address: Address, asked: _Asked) -> None:
    try:
        said = await engines.models(address, TIMEOUT_SECONDS)
        asked.listed = asked.listed if said is None else said
    finally:
        asked.asking = None
