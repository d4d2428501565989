"""Where a pass's results go beside the API: the operator's own metrics. Never fails a pass."""

from typing import Protocol

from kintsugi.core.judged import Judged
from kintsugi.core.plan import Plan
from kintsugi.core.snapshot import Key, Snapshot


class Recorder(Protocol):
    """Takes notes for `/metrics`."""

    def note(self, snapshot: Snapshot, judged: Judged, plan: Plan) -> None:
        """Remember the latest pass over one deployment."""
        ...

    def forget(self, key: Key) -> None:
        """Drop a deployment's series."""
        ...

    def passed(self, key: Key, result: str, seconds: float) -> None:
        """Count one pass: `result` is ok, conflict or error; `seconds` its duration."""
        ...
