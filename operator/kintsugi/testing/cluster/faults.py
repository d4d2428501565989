"""Trouble on demand for one client of the fake cluster: failing calls, outages, and death in the middle of a write."""

from collections.abc import Callable
from dataclasses import dataclass

from kintsugi.ports.errors import PortError, Unavailable


class OperatorKilled(BaseException):
    """`kill -9` of the operator: no handler of ordinary errors may catch it."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write that reached the API server. `at` in epoch seconds; `detail` is what was sent, in brief."""

    at: float
    verb: str
    kind: str
    namespace: str
    name: str
    detail: str = ""


@dataclass(slots=True)
class _Failing:
    verb: str
    kind: str
    error: Callable[[], PortError]
    times: int
    performed: bool


@dataclass(slots=True)
class _Death:
    writes_left: int
    before: bool


class Faults:
    """What is planned to go wrong, consulted before and after every call."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failing: list[_Failing] = []
        self._outages: list[tuple[float, float]] = []
        self._death: _Death | None = None

    def fail_next(
        self,
        verb: str,
        kind: str,
        error: PortError | type[PortError],
        times: int = 1,
        performed: bool = False,
    ) -> None:
        """The next `times` calls of `verb` on `kind` ('*' = any) raise `error`.

        `performed`: the write is done all the same, only its answer is lost.
        """
        make = (
            (lambda: error(f"{verb} {kind}: failed on demand"))
            if isinstance(error, type)
            else (lambda: error)
        )
        self._failing.append(_Failing(verb, kind, make, times, performed))

    def outage(self, seconds: float, after: float = 0.0) -> None:
        """No call of this client gets an answer for `seconds`, beginning `after` seconds from now."""
        self._outages.append((self._now() + after, self._now() + after + seconds))

    def crash_after(self, writes: int, before: bool = False) -> None:
        """The `writes`-th write from now (1 = the next) kills the operator: after it is done, or `before` it is."""
        self._death = _Death(writes, before)

    def spare(self) -> None:
        """Forget everything planned."""
        self._failing.clear()
        self._outages.clear()
        self._death = None

    def before_call(self, verb: str, kind: str, write: bool) -> PortError | None:
        """Raise what is planned for this call; an error to raise once the write is done, or None."""
        if write and self._death is not None:
            self._death.writes_left -= 1
            if self._death.writes_left == 0 and self._death.before:
                self._death = None
                raise OperatorKilled(f"before {verb} {kind}")
        now = self._now()
        if any(start <= now < end for start, end in self._outages):
            raise Unavailable(f"{verb} {kind}: the API server does not answer")
        for planned in self._failing:
            if planned.times > 0 and planned.verb in ("*", verb) and planned.kind in ("*", kind):
                planned.times -= 1
                if not planned.performed:
                    raise planned.error()
                return planned.error()
        return None

    def after_write(self, verb: str, kind: str) -> None:
        """Die here if that is planned."""
        if self._death is not None and self._death.writes_left <= 0:
            self._death = None
            raise OperatorKilled(f"after {verb} {kind}")
