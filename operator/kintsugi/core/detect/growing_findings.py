"""What the growth of an engine's memory means, in words and numbers."""

import math
from typing import Final

from kintsugi.core.detect.growing import MemoryState, Source
from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.times import Times

GIB: Final = 2**30
NO_LIMIT: Final = "resources.limits.memory of the engine's container, or its node's allocatable memory"
"""What DataFresh says where nobody knows at how much memory the engine is killed."""


def growth_findings(state: MemoryState, mono: float, now: float, times: Times) -> list[Finding]:
    """The statement on the memory, if there is one. `now` in epoch seconds.

    Sick asks for a planned recycle, smallest forecast first; an engine that grows serves until it reaches its limit.
    """
    seen = state.forecast
    if seen is None or state.source is None or not (state.sick or state.agreed > 0):
        return []
    left = max(0.0, seen.seconds - (mono - state.looked_at))
    evidence = (
        Evidence("memory, highest of the last two buckets", seen.top / GIB, "GiB", seen.samples),
        Evidence("memory limit", seen.limit / GIB, "GiB", 1),
        Evidence("slope of the floor", seen.slope * 3600 / GIB, "GiB/h", seen.samples),
        Evidence("forecast to the limit", left if math.isfinite(left) else 0.0, "s", seen.samples),
        Evidence("looks in a row", float(max(0, state.agreed)), "count", 1),
    )
    text = (
        f"memory ({state.source.value}) rose by {seen.slope * 3600 / GIB:.1f} GiB an hour over {seen.span / 60:.0f} min, "
        f"peaks at {100 * seen.top / seen.limit:.0f} % of {seen.limit / GIB:.1f} GiB"
    )
    if math.isfinite(left):
        text += f", and reaches the limit in {left / 60:.0f} min"
    deadline = now + left if math.isfinite(left) else None

    def told(reason: str, severity: Severity, more: str = "") -> list[Finding]:
        return [
            Finding(
                Detector.GROWING,
                reason,
                severity,
                text + more,
                state.since,
                evidence,
                removable=severity is Severity.SICK,
                deadline=deadline,
            )
        ]

    if state.source is Source.WORKING_SET:
        more = (
            "; page cache is part of it, so nothing is done: let the engine or cadvisor tell anonymous memory"
        )
        return told("WorkingSetGrows", Severity.ADVICE, more)
    if not state.fresh(mono, times):
        return told("GrowthUnknown", Severity.SUSPECT, "; nothing is said of it now")
    if state.sick:
        return told("MemoryGrows", Severity.SICK)
    again = times.growth_look / 60
    return told(
        "GrowthSuspected", Severity.SUSPECT, f"; it counts if the next look, {again:.0f} min later, agrees"
    )


def memory_percent(state: MemoryState, mono: float, times: Times) -> float | None:
    """Memory in use, in percent of the limit; None where either is not known now."""
    if state.limit is None or not state.fresh(mono, times):
        return None
    return 100.0 * state.used / state.limit


def forecast_seconds(state: MemoryState, mono: float, times: Times) -> float | None:
    """Seconds until memory reaches its limit, from the first look on; None where it does not rise, or is not known."""
    seen = state.forecast
    if seen is None or not math.isfinite(seen.seconds) or not state.fresh(mono, times):
        return None
    return max(0.0, seen.seconds - (mono - state.looked_at))
