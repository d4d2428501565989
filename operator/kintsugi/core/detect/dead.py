"""`dead`: the container ended, or refuses connections after having been ready.

The kubelet's restart in place is the first remedy and takes no action of ours. Only a pod that ended as a whole, that
is not Ready again within its start budget, or that restarts for the third time within 30 minutes needs a new one. Exit
codes say nothing (0 is possible). A pod that was never Ready is starting, however it fails: its start is a matter of
configuration, capacity or rollout, and gets advice, which names the cause where `core.classify` knows it. One cause
alone asks for a new pod though nobody saw the engine serve: what a crash left in /dev/shm.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from kintsugi.core.classify import StartFailure
from kintsugi.core.classify.kinds import SHM_LEFTOVER
from kintsugi.core.detect.starting import over_budget
from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.snapshot import Failed, Failure, Instance
from kintsugi.core.times import Times

RESTARTS_NEEDED: Final = 3
"""Restarts within `dead_restarts_window` that show a fault which only a fresh pod cures (design §5)."""
NOT_TAKEN: Final = re.compile(r"^(?:UnexpectedAdmissionError|OutOf[\w./-]+|TopologyAffinityError)$")
"""The kubelet's reasons that speak of devices which the node has not, though the scheduler counts them
(k8s-device-plugin#231). Of a shutdown or a changed label it is said in other words."""
_ENDED: Final = frozenset({"Failed", "Succeeded"})


@dataclass(slots=True)
class PodState:
    """What was seen of one pod over its processes. Monotonic seconds."""

    ready_process: float | None = None
    """Start time of the process that was last seen Ready; None where none ever was."""
    restarts: int | None = None
    restarted_at: list[float] = field(default_factory=list)
    down_at: float | None = None
    """Since when a pod that had been Ready has had no process that is."""
    down_since: float | None = None
    """The same in epoch seconds, for people."""
    refused_at: float | None = None
    """Since when the port refuses though the kubelet says Ready."""
    recovered: bool = False
    """Ready again after having been down, in a new process."""


def see_pod(state: PodState, instance: Instance, mono: float, now: float, times: Times) -> None:
    """Take in one look at a pod."""
    if state.restarts is not None and instance.restarts > state.restarts:
        state.restarted_at += [mono] * (instance.restarts - state.restarts)
    state.restarts = instance.restarts
    if state.restarted_at:
        state.restarted_at = [at for at in state.restarted_at if mono - at <= times.dead_restarts_window]
    if not (instance.ready and _refuses(instance)):
        state.refused_at = None
    elif state.refused_at is None:
        state.refused_at = mono
    if instance.ready and instance.started_at is not None:
        state.recovered = bool(state.restarted_at)
        state.ready_process, state.down_at, state.down_since = instance.started_at, None, None
    elif is_down(state, instance) and state.down_at is None:
        state.down_at, state.down_since = mono, now


def is_down(state: PodState, instance: Instance) -> bool:
    """A pod that was Ready and whose process is gone, replaced or refusing. A process that hangs is not this."""
    if instance.phase in _ENDED:
        return True
    if state.ready_process is None or instance.ready:
        return False
    return instance.started_at is None or instance.started_at != state.ready_process or _refuses(instance)


def was_refused(instance: Instance) -> bool:
    """Whether the kubelet did not take a pod that the scheduler had bound to its node: no container of it ran (S24)."""
    ended = (
        instance.last_termination
    )  # a kubelet that knows nothing of a container calls it ContainerStatusUnknown
    known = ended is not None and ended.reason != "ContainerStatusUnknown"
    ran = instance.started_at is not None or instance.restarts > 0 or known
    return instance.phase == "Failed" and not ran and NOT_TAKEN.match(instance.phase_reason) is not None


def dead_finding(
    state: PodState, instance: Instance, mono: float, start_budget: float, times: Times
) -> Finding | None:
    """What is to be said of this pod's life, or None where nothing is. `start_budget` in seconds."""
    down = 0.0 if state.down_at is None else mono - state.down_at
    if state.ready_process is None and not instance.served_before and was_refused(instance):
        text = f"node {instance.node} did not take the pod ({instance.phase_reason}): {instance.waiting_message[:300]}"
        return Finding(Detector.DEAD, "NodeRefused", Severity.ADVICE, text.rstrip(": "), instance.created_at)
    if instance.phase in _ENDED:
        text = f"the pod is {instance.phase}" + (
            f" ({instance.phase_reason})" if instance.phase_reason else ""
        )
        return _sick("PodEnded", text, state, down)
    if state.ready_process is None:
        return None
    count = len(state.restarted_at)
    if count >= RESTARTS_NEEDED:
        text = f"restarted {count} times in place and ended again{_last(instance)}"
        return _sick("RestartsRepeat", text, state, down, serves_nothing=not instance.ready)
    if state.down_at is not None:
        if down > start_budget:
            text = f"not Ready again for {down:.0f} s, more than its start budget{_last(instance)}"
            return _sick("NotReadyAgain", text, state, down)
        started_anew = instance.started_at is not None and instance.started_at != state.ready_process
        return Finding(
            detector=Detector.DEAD,
            reason="RestartedInPlace" if started_anew else "ContainerEnded",
            severity=Severity.INFO if started_anew else Severity.SUSPECT,
            message=f"was Ready and is down for {down:.0f} s; the kubelet restarts it{_last(instance)}",
            since=state.down_since or 0.0,
            evidence=_evidence(state, down),
            serves_nothing=True,
            silent_seconds=down,
        )
    if state.refused_at is not None and mono - state.refused_at >= times.readable_gap:
        text = f"refuses connections for {mono - state.refused_at:.0f} s though the kubelet calls it Ready"
        return Finding(Detector.DEAD, "Refused", Severity.SUSPECT, text, instance.ready_since or 0.0)
    if state.recovered:
        text = f"restarted in place and Ready again, {count} times lately{_last(instance)}"
        return Finding(Detector.DEAD, "RestartedInPlace", Severity.INFO, text, instance.started_at or 0.0)
    return None


def start_finding(
    state: PodState, instance: Instance, now: float, start_budget: float, failure: StartFailure | None = None
) -> Finding | None:
    """Advice on a pod that was never Ready: what keeps it from starting, or that its start takes too long."""
    if state.ready_process is not None or instance.ready or instance.phase in _ENDED:
        return None
    if failure is not None:
        return _failed_start(instance, failure)
    if instance.waiting_reason and instance.waiting_reason not in ("ContainerCreating", "PodInitializing"):
        text = instance.waiting_message[:400] or "the engine container waits"
        return Finding(Detector.DEAD, instance.waiting_reason, Severity.ADVICE, text, instance.created_at)
    return over_budget(instance, now, start_budget)


def _failed_start(instance: Instance, failure: StartFailure) -> Finding:
    fresh_pod_cures = failure.kind == SHM_LEFTOVER.name and instance.restarts >= RESTARTS_NEEDED
    return Finding(
        detector=Detector.DEAD,
        reason=failure.kind,
        severity=Severity.SICK if fresh_pod_cures else Severity.ADVICE,
        message=failure.message,
        since=instance.created_at,
        serves_nothing=fresh_pod_cures,
    )


def _refuses(instance: Instance) -> bool:
    return isinstance(instance.scrape, Failed) and instance.scrape.failure is Failure.REFUSED


def _sick(reason: str, text: str, state: PodState, down: float, serves_nothing: bool = True) -> Finding:
    return Finding(
        detector=Detector.DEAD,
        reason=reason,
        severity=Severity.SICK,
        message=text,
        since=state.down_since or 0.0,
        evidence=_evidence(state, down),
        serves_nothing=serves_nothing,
        silent_seconds=down,
    )


def _evidence(state: PodState, down: float) -> tuple[Evidence, ...]:
    restarts = float(len(state.restarted_at))
    return (Evidence("seconds down", down, "s", 1), Evidence("restarts seen lately", restarts, "count", 1))


def _last(instance: Instance) -> str:
    ended = instance.last_termination
    return "" if ended is None else f" (last end: {ended.reason or 'exit'} {ended.exit_code})"
