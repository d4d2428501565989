"""One attempt to cure one instance: what it sees, where it stands, and how it ends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kintsugi.api.healing import Mode
from kintsugi.api.status import ActiveRemediation, StormStatus
from kintsugi.core.finding import Detector, Finding, InstanceVerdict, Severity, Verdict
from kintsugi.core.gate import Answer
from kintsugi.core.moment import epoch, moment
from kintsugi.core.names import ATTEMPT_ANNOTATION, RETIRING_SINCE_ANNOTATION
from kintsugi.core.plan import Action, Restore
from kintsugi.core.poolview import PoolView
from kintsugi.core.snapshot import Instance
from kintsugi.core.times import Times

DRAIN_SETTLE_SECONDS: Final = 3.0
"""After a withdrawal, before `running = 0` counts: the EndpointSlice lost the pod after 0.2 s in measurements,
and a client may have connected just before. Real seconds, also in a rehearsal."""
STALLED_GRACE_SECONDS: Final = 10
"""An engine without a step has nothing to finish (design §3)."""
EVICTION_SECONDS: Final = 10.0
"""An eviction that is granted shows in the pod at once; one that did not by then was refused. Real seconds."""
CLOCK_SKEW_SECONDS: Final = 30.0
"""Creation times are the API server's, ours are the operator's."""
COMPLETE_SECONDS: Final = 60.0
"""A ReplicaSet makes a missing pod within a second; ten times as long on a server in trouble (S26), and more."""
FATAL_WAITS: Final = frozenset(
    {"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError"}
)
"""Reasons for which a container does not come up by waiting."""


@dataclass(frozen=True, slots=True)
class World:
    """What one remediation sees in this pass."""

    now: float
    times: Times
    view: PoolView
    ask: Callable[[Instance, Finding], tuple[Answer, ...]]
    """The gates, asked for a removal."""
    storm: StormStatus | None
    claimed: frozenset[str]
    """UIDs of pods that already stand for another victim."""
    answers: Mapping[str, bool]
    start_budget: float
    observed_for: float
    """Seconds since this operator process first looked at the deployment."""
    mode: Callable[[str], Mode]
    """The mode in force for a trigger."""
    told_to_avoid: bool = True
    """New pods in the victim's place keep off its node already, where they have to."""
    compacted: Mapping[str, bool] = field(default_factory=dict)
    """By attempt id: what engines answered that were asked to release cached memory."""
    fragmentation_line: float = 25.0
    """Percent from which on fragmentation counts (`triggers.fragmentation.thresholdPercent`)."""
    approver: str = ""
    """Who approved this very attempt; '' where nobody did."""
    namespace: str = ""
    clock_set_at: float | None = None
    """Epoch seconds at which the wall clock was last found to have been set."""

    def since(self, then: float) -> float:
        """`then`, in epoch seconds, as what may be waited from: a clock that was set since says nothing of how long ago it was."""
        if self.clock_set_at is None or self.clock_set_at < then <= self.now:
            return then
        return self.clock_set_at


@dataclass(frozen=True, slots=True)
class Step:
    """Where the remediation stands after this pass, and what to do for it."""

    active: ActiveRemediation
    actions: tuple[Action, ...] = ()
    withheld: Answer | None = None
    answers: tuple[Answer, ...] = field(default=())


def finding_of(verdict: InstanceVerdict | None, trigger: str) -> Finding | None:
    """The Sick finding of the detector behind `trigger`, or None."""
    if verdict is None:
        return None
    return next(
        (f for f in verdict.findings if f.detector.value == trigger and f.severity is Severity.SICK), None
    )


def silent_finding(verdict: InstanceVerdict | None) -> Finding | None:
    """What proves that the victim serves nobody and may go for that alone, whatever it was withdrawn for; or None."""
    findings = verdict.findings if verdict else ()
    return next(
        (f for f in findings if f.severity is Severity.SICK and f.serves_nothing and f.removable), None
    )


def standing_finding(
    active: ActiveRemediation, verdict: InstanceVerdict | None, victim: Instance
) -> Finding | None:
    """What the attempt rests on. A withdrawn engine without traffic makes no steps by which it could be called slow:
    what convinced stands while its page is read, until its steps are seen to be fast again or the evidence lapses."""
    found = finding_of(verdict, active.trigger)
    if (
        found
        or verdict is None
        or not verdict.fresh
        or victim.in_rotation
        or active.trigger != Detector.SLOW.value
    ):
        return found
    known = next((f for f in verdict.findings if f.reason == "SlowUnknown"), None)
    return replace(known, removable=True) if known else None


def owes_restore(active: ActiveRemediation, victim: Instance) -> bool:
    """A cancelled attempt's victim that is still out of rotation, and nobody else wants it out.

    The operator may have died right after it committed the cancel: the attempt is closed only when this is False.
    """
    ours = victim.annotations.get(ATTEMPT_ANNOTATION) == active.id
    out = ours and not victim.in_rotation and not victim.deleting and victim.member
    return active.outcome == "Cancelled" and out and RETIRING_SINCE_ANNOTATION not in victim.annotations


def finished(active: ActiveRemediation, outcome: str, message: str, now: float) -> ActiveRemediation:
    """`active` at its end. A cancelled attempt that removed nothing uses no budget."""
    update: dict[str, Any] = {
        "phase": "Done",
        "outcome": outcome,
        "message": message,
        "finished_at": moment(now),
    }
    if outcome == "Cancelled" and active.released_at is None and active.evicting_since is None:
        update["counts_towards_budget"] = False
    return active.model_copy(update=update)


def orphaned(active: ActiveRemediation, now: float) -> ActiveRemediation:
    """The end of an attempt whose pool the spec names no more: the pool's removal takes the victim along."""
    if active.outcome is not None:
        return active
    return finished(active, "Cancelled", "its pool was removed from the spec", now)


def cancelled(active: ActiveRemediation, victim: Instance | None, message: str, now: float) -> Step:
    actions: tuple[Action, ...] = ()
    ended = finished(active, "Cancelled", message, now)
    if victim and owes_restore(ended, victim):
        actions = (Restore(victim.name, victim.uid, active.id),)
    return Step(ended, actions)


def cleared(active: ActiveRemediation, world: World) -> bool:
    """Positively well again: fresh data says so. Absence of data is no recovery.

    Where the evidence merely lapsed (a slow engine without traffic can't be measured) and this process itself
    reserved the attempt, a well verdict is enough; after an operator restart only the detector's own word is.
    """
    verdict = world.view.verdicts.get(active.uid)
    if verdict is None or not verdict.fresh or finding_of(verdict, active.trigger):
        return False
    if any(detector.value == active.trigger for detector in verdict.cleared):
        return True
    well = verdict.verdict in (Verdict.HEALTHY, Verdict.IDLE, Verdict.SATURATED)
    return well and not reserved_before(active, world)


def other_trigger(active: ActiveRemediation, world: World) -> Finding | None:
    """What else the victim is sick of: a hung engine exports nothing more, and its first trigger would never end.

    What serves nothing gives way only to what serves nothing: a stalled victim goes back on a step or an answer alone.
    """
    verdict = world.view.verdicts.get(active.uid)
    sick = [f for f in verdict.findings if f.severity is Severity.SICK] if verdict else []
    idle = active.trigger in (Detector.STALLED.value, Detector.DEAD.value)
    return next((f for f in sick if f.serves_nothing or not idle), None)


def reserved_before(active: ActiveRemediation, world: World) -> bool:
    """The attempt was reserved by an operator process before this one, whose evidence is gone."""
    return epoch(active.reserved_at) < world.now - world.observed_for


def evidence_is_lost(active: ActiveRemediation, world: World) -> bool:
    """Reserved by an operator process before this one, which has watched a readable engine for a full window since."""
    verdict = world.view.verdicts.get(active.uid)
    readable = verdict is not None and verdict.fresh
    window = max(world.times.fragmentation_window, world.times.throughput_window, world.times.stall_remove)
    return readable and reserved_before(active, world) and world.observed_for > 1.5 * window


def new_process(active: ActiveRemediation, victim: Instance) -> bool:
    started = epoch(active.started_at) if active.started_at else None
    return started is not None and victim.started_at is not None and victim.started_at > started + 0.5


def said(active: ActiveRemediation, message: str) -> ActiveRemediation:
    return active if active.message == message else active.model_copy(update={"message": message})
