"""The log of an engine: one JSON object a line, so that a rehearsal can account for every request id."""

import json
import sys
from collections import deque
from collections.abc import Callable
from typing import Final

from kintsugi_engine.contract import CANARY_REQUEST_ID_PREFIX

_KEPT: Final = 1000


class Journal:
    """Writes events and keeps the last thousand for tests. `write` None keeps only."""

    def __init__(
        self, name: str, clock: Callable[[], float], write: Callable[[str], None] | None = None
    ) -> None:
        self._name = name
        self._clock = clock
        self._write = write
        self.entries: deque[dict[str, object]] = deque(maxlen=_KEPT)

    def note(self, event: str, **fields: object) -> None:
        """One event. A canary's request id marks the entry with `canary: true`."""
        entry: dict[str, object] = {
            "time": round(self._clock(), 3),
            "engine": self._name,
            "event": event,
            **fields,
        }
        if str(fields.get("request_id", "")).startswith(CANARY_REQUEST_ID_PREFIX):
            entry["canary"] = True
        self.entries.append(entry)
        if self._write:
            self._write(json.dumps(entry))

    def of(self, event: str) -> list[dict[str, object]]:
        """The kept entries of one event, oldest first."""
        return [entry for entry in self.entries if entry["event"] == event]


def to_stdout(line: str) -> None:
    """Write one line at once: a hung or killed process cannot do it later."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
