"""From findings and the state of the evidence to one verdict: the worst finding that has lasted long enough."""

from collections.abc import Sequence
from typing import NamedTuple

from kintsugi.core.detect.dead import is_down
from kintsugi.core.evidence import ProcessEvidence
from kintsugi.core.finding import Detector, Finding, Severity, Verdict
from kintsugi.core.look import Look
from kintsugi.core.times import Times

UNKNOWN_REASONS = frozenset(
    {
        "StallUnknown",
        "FragmentationUnknown",
        "SlowUnknown",
        "ErroringUnknown",
        "CorruptedUnknown",
        "StarvedUnknown",
        "DeviceUnknown",
        "GrowthUnknown",
        "StaleGauges",
    }
)
"""Findings that say that something was seen and can't be seen now: neither sick nor recovered."""


class Named(NamedTuple):
    """A verdict with its reason (one CamelCase word) and a sentence."""

    verdict: Verdict
    reason: str
    message: str


_UNPROVED = Named(Verdict.UNKNOWN, "Watching", "no step and no answer of this engine has been seen yet")
_LOST = Named(
    Verdict.UNKNOWN, "Watching", "a rank left the page while it answered nobody: neither sick nor well"
)
_SATURATED = Named(Verdict.SATURATED, "Saturated", "a queue stands and the engine runs at its limit")
_NO_REQUESTS = Named(Verdict.IDLE, "NoRequests", "no request of late")
_WARMING_UP = Named(Verdict.HEALTHY, "WarmingUp", "answers; not judged before its warm-up is over")
_PROGRESSING = Named(Verdict.HEALTHY, "Progressing", "")


def name_verdict(look: Look, findings: Sequence[Finding], mono: float, times: Times) -> Named:
    """The verdict that follows from `findings` (worst first) and from what is known of the process."""
    instance, process = look.instance, look.process
    worst = findings[0] if findings else None
    if instance.deleting:
        return Named(Verdict.UNKNOWN, "Terminating", "the pod is being deleted")
    if worst is not None and worst.severity is Severity.SICK:
        return _of(Verdict.SICK, worst)
    for finding in findings:
        if finding.reason in UNKNOWN_REASONS:
            return _of(Verdict.UNKNOWN, finding)
    if worst is not None and worst.severity is Severity.SUSPECT:
        return _of(Verdict.SUSPECT, worst)
    if process is None or process.ready_at is None or is_down(look.pod, instance):
        return _starting(look, findings)
    return _alive(process, look.fresh, mono, times)


def _of(verdict: Verdict, finding: Finding) -> Named:
    return Named(verdict, finding.reason, finding.message)


def _starting(look: Look, findings: Sequence[Finding]) -> Named:
    about = next((f for f in findings if f.detector is Detector.DEAD), None)
    if about is not None:
        return _of(Verdict.STARTING, about)
    if look.process is None:
        return Named(Verdict.STARTING, "Pending", "no engine container runs yet")
    return Named(Verdict.STARTING, "Starting", "the engine has not been Ready yet")


def _alive(process: ProcessEvidence, fresh: bool, mono: float, times: Times) -> Named:
    if not fresh:
        why = process.blind.reason if process.blind is not None else "no page read yet"
        return Named(Verdict.UNKNOWN, _blind_reason(process, why), why)
    if process.stall.sleeping:
        return Named(Verdict.IDLE, "Asleep", "the engine was put to sleep")
    clocks = process.stall.ranks.values()
    if not any(clock.proved for clock in clocks):
        return _UNPROVED
    if any(clock.lost for clock in clocks):
        return _LOST
    if process.load.saturated(times):
        return _SATURATED
    if process.load.idle(mono, times):
        return _NO_REQUESTS
    return _WARMING_UP if process.age(mono) < times.warm_up else _PROGRESSING


def _blind_reason(process: ProcessEvidence, why: str) -> str:
    first = why.split(":", 1)[0]
    if first in ("Unrecognised", "RepeatedPage"):
        return first
    return "MetricsUnavailable" if process.blind is not None else "Watching"
