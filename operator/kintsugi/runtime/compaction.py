"""Engines that can give cached allocator memory back: who can is asked once of each process, and who is to do it when told."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kintsugi.ports.engines import Address, EnginePort

Process: TypeAlias = tuple[str, float | None]

AGAIN_SECONDS: Final = 60.0
"""Between two questions to an engine that did not say."""
MOST_TIMES: Final = 3
"""An engine that did not say so often is asked no more: its rung is skipped."""
CAN_TIMEOUT_SECONDS: Final = 5.0
COMPACT_TIMEOUT_SECONDS: Final = 30.0
"""The engine itself answers within 20 s (`contract.COMPACT_PATH`)."""


@dataclass(slots=True)
class _Asked:
    can: bool | None = None
    at: float = float("-inf")
    times: int = 0
    asking: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Compactions:
    """What is known of the engines of one deployment. Losing it costs one question an engine."""

    answers: dict[str, bool] = field(default_factory=dict)
    """By attempt id: whether the engine said that it did it. Asked again where it failed, until the rung's time is over."""
    _known: dict[Process, _Asked] = field(default_factory=dict)
    _doing: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def can(self, uid: str, started_at: float | None) -> bool | None:
        """Whether that process can; None where it has not said."""
        found = self._known.get((uid, started_at))
        return found.can if found else None

    def look(self, engines: EnginePort, ready: Mapping[Process, Address], wanted: bool, mono: float) -> None:
        """Begin to ask the processes in `ready` that have not said; nobody where the ladder has no such rung."""
        for gone in set(self._known) - set(ready if wanted else ()):
            asked = self._known.pop(gone)
            if asked.asking is not None:
                asked.asking.cancel()
        for process, address in ready.items() if wanted else ():
            asked = self._known.setdefault(process, _Asked())
            due = mono - asked.at >= AGAIN_SECONDS and asked.times < MOST_TIMES
            if asked.can is None and asked.asking is None and due:
                asked.at, asked.times = mono, asked.times + 1
                asked.asking = asyncio.create_task(_ask(engines, address, asked), name=f"can {address.ip}")

    def tell(self, engines: EnginePort, attempt: str, address: Address) -> None:
        """Have an engine do it, beside the pass; one question at a time for each attempt."""
        if attempt not in self._doing:
            doing = asyncio.create_task(self._do(engines, attempt, address), name=f"compact {attempt}")
            self._doing[attempt] = doing

    def forget(self, standing: Collection[str]) -> None:
        """Keep only what is about attempts that stand."""
        self.answers = {attempt: said for attempt, said in self.answers.items() if attempt in standing}

    async def _do(self, engines: EnginePort, attempt: str, address: Address) -> None:
        try:
            if await engines.compact(address, COMPACT_TIMEOUT_SECONDS):
                self.answers[attempt] = True
        finally:
            self._doing.pop(attempt, None)


async def _ask(engines: EnginePort, address: Address, asked: _Asked) -> None:
    try:
        asked.can = await engines.can_compact(address, CAN_TIMEOUT_SECONDS)
    finally:
        asked.asking = None
