"""`gpu use`: how busy the GPUs of an instance are, against the band in which they serve well. Advice only, always.

A GPU that spins in a hung kernel is as busy as one that serves, and one that waits for requests is idle: use says what
a pool's size should be, and nothing about health (article A13; design §5).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from kintsugi.core.detect.growing import MEASURED_AGE
from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.snapshot import Measured
from kintsugi.core.times import Times

KNOWN_SHARE: Final = 0.6
"""Share of the window's samples that must be there, as for steps (slow §3)."""
SAMPLE_SECONDS: Final = 60.0
"""Real seconds between two samples: a Prometheus server is asked that often, in a rehearsal too."""


@dataclass(slots=True)
class GpuUseState:
    """The GPUs of one process over the window."""

    rows: deque[tuple[float, float]] = field(default_factory=deque)
    """(monotonic seconds, percent over its GPUs), oldest first."""
    mean: float | None = None
    """Percent over the window; None until enough of it is known."""
    outside_since: float | None = None
    """Epoch seconds of when it left the band, for people."""


def see_gpu_use(
    state: GpuUseState,
    measured: Measured | None,
    least: float,
    most: float,
    mono: float,
    now: float,
    times: Times,
) -> None:
    """Take in one pass. The same word of the server counts once. `now` in epoch seconds, for people."""
    rows = state.rows
    if measured is not None and measured.gpu_use and (not rows or measured.mono > rows[-1][0]):
        rows.append((measured.mono, sum(measured.gpu_use) / len(measured.gpu_use)))
    window = max(times.advice_window, 5 * SAMPLE_SECONDS)
    while rows and rows[0][0] <= mono - window:
        rows.popleft()
    enough = len(rows) >= KNOWN_SHARE * window / SAMPLE_SECONDS and mono - rows[-1][0] <= MEASURED_AGE
    state.mean = sum(percent for _, percent in rows) / len(rows) if enough else None
    if state.mean is None or least <= state.mean <= most:
        state.outside_since = None
    elif state.outside_since is None:
        state.outside_since = now


def gpu_use_finding(state: GpuUseState, least: float, most: float) -> Finding | None:
    """The advice on use outside `least` to `most` percent, or None."""
    if state.mean is None or state.outside_since is None:
        return None
    seconds = state.rows[-1][0] - state.rows[0][0]
    text = f"GPU use is {state.mean:.0f} % over {seconds / 60:.0f} min, "
    if state.mean < least:
        reason = "GpuUnderused"
        text += f"below {least:.0f} %: the pool could do with fewer instances, or take more requests"
    else:
        reason = "GpuOverused"
        text += f"above {most:.0f} %: little is left for a burst; scale out, or lower maxNumSeqs"
    evidence = (
        Evidence("GPU use", state.mean, "%", len(state.rows)),
        Evidence("GPU use, least", least, "%", 1),
        Evidence("GPU use, most", most, "%", 1),
    )
    return Finding(
        Detector.GPU_USE, reason, Severity.ADVICE, text, state.outside_since, evidence, removable=False
    )
