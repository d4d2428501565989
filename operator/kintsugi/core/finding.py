"""What one detector says of one instance, and the verdict that follows from all of them."""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum, IntEnum, unique

from kintsugi.core.frozen import frozen


@unique
class Detector(Enum):
    """The detectors, by the name of the trigger that users configure under `spec.healing.triggers`."""

    __hash__ = object.__hash__
    """There is one of each. `Enum`'s own is written in Python, and a pass looks up dozens for each instance."""
    DEAD = "dead"
    STALLED = "stall"
    FRAGMENTED = "fragmentation"
    SLOW = "throughput"
    ERRORING = "errors"
    CORRUPTED = "corruptedOutput"
    COLLAPSED = "starvedAdmission"
    DEVICE = "deviceHealth"
    GROWING = "memoryGrowth"
    CACHE_HIT = "cacheHitRate"
    PREEMPTING = "preemptions"
    GPU_USE = "gpuUtilization"
    DIVERGING = "rankDivergence"
    DATA = "data"
    LOAD = "load"
    """How much work there is and how it is spread: advice only, never a reason to act."""


@unique
class Severity(IntEnum):
    """How much a finding weighs, from best to worst."""

    INFO = 0
    ADVICE = 1
    SUSPECT = 2
    SICK = 3


@unique
class Verdict(Enum):
    """What an instance is, worst finding that has lasted long enough."""

    HEALTHY = "Healthy"
    IDLE = "Idle"
    STARTING = "Starting"
    SATURATED = "Saturated"
    UNKNOWN = "Unknown"
    SUSPECT = "Suspect"
    SICK = "Sick"


@frozen
class Evidence:
    """One number that convinced: `signal` in words, `value` in `unit`, from `samples` readings."""

    signal: str
    value: float
    unit: str
    samples: int


@frozen
class Finding:
    """One detector's statement. `since` is in epoch seconds, of when the symptom began."""

    detector: Detector
    reason: str
    severity: Severity
    message: str
    since: float
    evidence: tuple[Evidence, ...] = ()
    removable: bool = True
    """False while only a withdrawal is justified (a stall before its removal time)."""
    serves_nothing: bool = False
    """True where it is proven that the instance answers nobody (dead, or stalled with failed canaries)."""
    source: str = ""
    """Of a fragmentation: which source it was read from."""
    silent_seconds: float = 0.0
    """For how long this process has made no engine step while it had work, or has been dead."""
    deadline: float | None = None
    """Epoch seconds of when it ends by itself if nothing is done, where that is forecast."""


@frozen
class InstanceVerdict:
    """The verdict on one instance, with every finding, worst first."""

    uid: str
    name: str
    pool: str
    verdict: Verdict
    reason: str
    message: str
    findings: tuple[Finding, ...] = ()
    signals: Mapping[str, float] = field(default_factory=dict)
    """Signal values for people, keyed by the names of `api.status.InstanceSignals` in snake case."""
    fresh: bool = True
    """False while nothing is known of this instance (no readable page in the window)."""
    missing: tuple[str, ...] = ()
    """Series that a trigger needs and this instance does not export."""
    running: float | None = None
    """Requests running on the newest page, own canaries not counted; None where unknown."""
    page_age: float = 0.0
    """Seconds since that page was read: a drain is over only by a page read after the withdrawal."""
    last_progress_seconds: float | None = None
    """Seconds since this process last made an engine step, as far as it was watched; None where unknown."""
    cleared: frozenset[Detector] = frozenset()
    """Detectors whose symptom is positively gone (fresh data below the hysteresis line for its clearing time)."""

    lacking: Mapping[Detector, tuple[str, ...]] = field(default_factory=dict)
    """Detectors that this engine gives too little to act by, with the series that each one misses."""

    @property
    def serves(self) -> bool:
        """Not Sick, or Sick only by a forecast: an engine that grows serves well until it reaches its limit."""
        if self.verdict is not Verdict.SICK:
            return True
        sick = [f for f in self.findings if f.severity is Severity.SICK]
        return bool(sick) and all(f.detector is Detector.GROWING for f in sick)

    def sick(self) -> Finding | None:
        """The worst finding of severity Sick, or None."""
        return next((f for f in self.findings if f.severity is Severity.SICK), None)
