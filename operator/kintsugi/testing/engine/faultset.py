"""Which faults hold at a moment: injected, begun, not yet ended."""

from dataclasses import dataclass
from typing import TypeVar

from kintsugi.testing.engine.faults import Fault

F = TypeVar("F", bound=Fault)


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault and when (on the engine's clock) it begins and ends."""

    fault: Fault
    begins: float
    ends: float | None

    def holds(self, now: float) -> bool:
        return self.begins <= now and (self.ends is None or now < self.ends)

    def share(self, now: float, over_seconds: float) -> float:
        """How much of a ramp of `over_seconds` is done, 0 to 1."""
        return 1.0 if over_seconds <= 0 else max(0.0, min(1.0, (now - self.begins) / over_seconds))


class FaultSet:
    """The faults of one engine, at most one of each name; a second of the same name replaces the first."""

    def __init__(self) -> None:
        self._faults: dict[str, Injected] = {}

    def inject(self, fault: Fault, now: float) -> Injected:
        begins = now + fault.after_seconds
        ends = None if fault.lasts is None else begins + fault.lasts
        injected = Injected(fault, begins, ends)
        self._faults[fault.name] = injected
        return injected

    def clear(self, name: str | None = None) -> list[str]:
        """Take one fault away, or all; the names of those that were there."""
        gone = [name] if name in self._faults else ([] if name else list(self._faults))
        for one in gone:
            del self._faults[one]
        return gone

    def get(self, kind: type[F], now: float) -> F | None:
        """The fault of this kind, if it holds now."""
        injected = self.injected(kind, now)
        return injected.fault if injected and isinstance(injected.fault, kind) else None

    def injected(self, kind: type[Fault], now: float) -> Injected | None:
        injected = self._faults.get(kind.name)
        return injected if injected and injected.holds(now) else None

    def next_change(self, now: float) -> float | None:
        """When the next fault begins or ends by itself after `now`; None = never."""
        times = [
            t for one in self._faults.values() for t in (one.begins, one.ends) if t is not None and t > now
        ]
        return min(times, default=None)

    def holding(self, now: float) -> frozenset[str]:
        """The names of the faults that hold now."""
        return frozenset(name for name, one in self._faults.items() if one.holds(now))

    def documents(self, now: float) -> list[dict[str, object]]:
        return [one.fault.document() | {"holds": one.holds(now)} for one in self._faults.values()]
