"""`fragmented`: measured fragmentation above the line for ten minutes, in a process that was below it after warm-up.

The own past is the second witness: it shows that a restart is known to help. A process that was high from the start
only gets advice, whatever a single dip says (hang paper §3).
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.times import Times

HYSTERESIS_POINTS: Final = 5.0
"""Percentage points under the line that count as below: 20 where the line is 25 (hang §3)."""
FRESH_SHARE: Final = 0.6
"""Share of a window's expected samples that must be there (hang §3)."""
REFERENCE_SHARE: Final = 0.5
"""The same for the first 10 minutes: 60 of 120 samples at 5 s."""
ABOVE_LOW_SHARE: Final = 0.9
"""Share of the samples that must be above the lower line (hang §3)."""


@dataclass(slots=True)
class Window:
    """Samples of one length of time with running counts, so that a look costs no walk over them."""

    seconds: float
    low: float
    high: float
    rows: deque[tuple[float, float]] = field(default_factory=deque)
    above_high: int = 0
    above_low: int = 0
    below_low: int = 0

    def add(self, mono: float, value: float) -> None:
        """Add one sample and drop those older than the window."""
        rows, oldest = self.rows, mono - self.seconds
        rows.append((mono, value))
        self._count(value, 1)
        while rows and rows[0][0] <= oldest:
            self._count(rows.popleft()[1], -1)

    def _count(self, value: float, by: int) -> None:
        if value < self.low:
            self.below_low += by
        elif value > self.low:
            self.above_low += by
            self.above_high += by * (value > self.high)

    def empty(self) -> None:
        """Start again."""
        self.rows.clear()
        self.above_high = self.above_low = self.below_low = 0

    def full(self, interval: float) -> bool:
        """Whether the samples span the window and are as many as evidence needs."""
        count = len(self.rows)
        spans = count > 1 and self.rows[-1][0] - self.rows[0][0] >= self.seconds - 2 * interval
        return spans and count >= FRESH_SHARE * self.seconds / interval


@dataclass(slots=True)
class WorkerState:
    """The reference of one worker (rank) of one process."""

    samples: list[float] = field(default_factory=list)
    reference: float | None = None
    """Median of the first 10 minutes after warm-up, percent."""


@dataclass(slots=True)
class FragmentationState:
    """One source of one process."""

    workers: dict[str, WorkerState] = field(default_factory=dict)
    window: Window | None = None
    clear_window: Window | None = None
    last: float | None = None
    """Monotonic time of the last fresh sample."""
    value: float | None = None
    """The last value, worst worker, percent."""
    high_since: float | None = None
    """Epoch seconds from which on the value has been above the line, for people."""
    sick: bool = False
    sick_since: float | None = None
    cleared: bool = False
    blind: bool = False
    """Nothing was seen for too long. A verdict of before counts again only once a full window has been seen anew."""
    watched_from_start: bool | None = None
    """False where this process was first seen after its reference time: what a restart gives back is then unknown."""
    proven: bool = False
    """A committed reservation says that this very process was below the line after its warm-up, as an operator saw
    that has been restarted since. The window above the line must still be seen anew."""


MEANING: Final = {
    "Allocator": "GPU memory lies in pieces: allocator fragmentation",
    "OrphanedBlocks": "KV cache is lost: blocks that no request explains",
    "BlockWaste": "KV cache is held and not used: block waste",
}
"""What is told of each source to someone who only asks why a pod was replaced."""


@dataclass(slots=True)
class Line:
    """The line that counts, percent, and the times around it. Not changed once made."""

    threshold: float
    times: Times
    low: float = field(init=False)
    """Below this counts as below."""

    def __post_init__(self) -> None:
        self.low = self.threshold - HYSTERESIS_POINTS


def see(
    state: FragmentationState,
    values: dict[str, float] | None,
    mono: float,
    age: float,
    line: Line,
    now: float,
) -> None:
    """Take in one look: percent by worker, or None where there is no fresh sample. `age` = seconds since first Ready."""
    times = line.times
    window, clear_window = _windows(state, line)
    if state.last is not None and mono - state.last > times.fragmentation_gap:
        window.empty()
        clear_window.empty()
        state.blind, state.cleared = True, False
    if values is None or (state.last is not None and mono <= state.last):
        return
    state.last, state.blind = mono, state.blind and state.sick
    state.value = max(values.values())
    above = state.value > line.threshold
    state.high_since = (now if state.high_since is None else state.high_since) if above else None
    if age < times.warm_up:
        return
    if state.watched_from_start is None:
        slack = times.fragmentation_reference * (1 - REFERENCE_SHARE)
        state.watched_from_start = age <= times.warm_up + slack
    worst: float | None = None
    for name, value in values.items():
        reference = _reference(state, name, value, age, times)
        # A restart is known to help: this worker was below the lower line after its warm-up.
        helps = state.proven or (reference is not None and reference <= line.low)
        if helps and (worst is None or value > worst):
            worst = value
    if worst is None:
        return
    window.add(mono, worst)
    clear_window.add(mono, worst)
    _decide(state, line, now)


def _windows(state: FragmentationState, line: Line) -> tuple[Window, Window]:
    """The windows of this line; a changed line or length starts them again."""
    window, clear, wanted = state.window, state.clear_window, line.times.fragmentation_window
    if window is None or clear is None or window.high != line.threshold or window.seconds != wanted:
        window = state.window = Window(wanted, line.low, line.threshold)
        clear = state.clear_window = Window(line.times.fragmentation_clear, line.low, line.threshold)
        state.sick, state.cleared = False, False
    return window, clear


def _reference(state: FragmentationState, name: str, value: float, age: float, times: Times) -> float | None:
    """What worker `name` had after its warm-up; None while that is not known. `value` is its newest sample."""
    worker = state.workers.get(name)
    if worker is None:
        worker = state.workers[name] = WorkerState()
    if worker.reference is not None:
        return worker.reference
    if age <= times.warm_up + times.fragmentation_reference:
        worker.samples.append(value)
    elif len(worker.samples) >= REFERENCE_SHARE * times.fragmentation_reference / times.scrape_interval:
        worker.reference = median(worker.samples)
        worker.samples = []
    return worker.reference


def _decide(state: FragmentationState, line: Line, now: float) -> None:
    window, clear, interval = state.window, state.clear_window, line.times.scrape_interval
    if window is not None and (state.blind or _is_high(window)) and window.full(interval):
        state.blind = False
        if _is_high(window):
            state.sick_since = now - window.seconds if not state.sick else state.sick_since
            state.sick, state.cleared = True, False
    if state.cleared or clear is None or clear.below_low <= len(clear.rows) / 2:
        return
    if clear.full(interval):
        state.sick, state.sick_since, state.cleared = False, None, True


def _is_high(window: Window) -> bool:
    """Above the line half of the time, and above the lower line nearly always."""
    count = len(window.rows)
    return window.above_high > count / 2 and window.above_low >= ABOVE_LOW_SHARE * count


def finding(state: FragmentationState, source: str, line: Line, fresh: bool) -> Finding | None:
    """What this source says. An existing verdict without fresh samples becomes Unknown: a suspicion, no recovery."""
    value = state.value
    if value is None or (not state.sick and (state.blind or value <= line.threshold)):
        return None
    known = [w.reference for w in state.workers.values() if w.reference is not None]
    reference = max(known, default=None)
    count = len(state.window.rows) if state.window is not None else 0
    evidence = [Evidence(f"fragmentation ({source})", value, "%", count)]
    if reference is not None:
        evidence.append(Evidence("fragmentation after warm-up", reference, "%", 1))
    if state.sick:
        live = fresh and not state.blind and count > 0
        text = f"{MEANING.get(source, source)} {value:.0f} %, above {line.threshold:.0f} % in most readings"
        text += f" of {line.times.fragmentation_window:.0f} s"
        text += f", {reference:.0f} % after warm-up" if reference is not None else ""
        text += "" if live else ", but it could not be read of late"
        severity, reason = (
            (Severity.SICK, "Fragmented") if live else (Severity.SUSPECT, "FragmentationUnknown")
        )
        since = state.sick_since or 0.0
        return Finding(Detector.FRAGMENTED, reason, severity, text, since, tuple(evidence), source=source)
    if reference is not None and reference > line.low:
        text = f"{source} fragmentation {value:.0f} % was {reference:.0f} % right after warm-up: a restart won't help"
        return Finding(
            Detector.FRAGMENTED,
            "HighSinceStart",
            Severity.ADVICE,
            text,
            state.high_since or 0.0,
            tuple(evidence),
            removable=False,
        )
    if state.watched_from_start is False and reference is None:
        text = f"{source} fragmentation {value:.0f} %; what this process had after warm-up was not seen"
        return Finding(
            Detector.FRAGMENTED,
            "ReferenceUnknown",
            Severity.ADVICE,
            text,
            state.high_since or 0.0,
            tuple(evidence),
            removable=False,
        )
    return None
