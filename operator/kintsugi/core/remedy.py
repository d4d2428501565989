"""One remediation, step by step: a function per phase, from what is seen to what is next.

Phases and their ways out (design §2, §3):

| phase | leaves when | to |
|---|---|---|
| Quarantined | the trigger clears, a storm opens, the pod goes or its process ends by itself | Done (Cancelled) |
| Quarantined | hold over, removal time reached, every gate open | Draining |
| Draining | trigger clears, nothing released yet | Done (Cancelled) |
| Draining | nothing runs, or the deadline: evicted, and seen to go | Replacing |
| Replacing | the replacement is Ready / does not come up | Warming / Done (NotCured) |
| Warming | its warm-up is over / it falls sick / it goes | Probation / Done (NotCured, Ambiguous) |
| Probation | still well, and one real request answered / sick / gone | Done (Cured, NotCured, Ambiguous) |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kintsugi.api.status import ActiveRemediation, StormStatus
from kintsugi.core.finding import Detector, Finding, InstanceVerdict, Severity, Verdict
from kintsugi.core.gate import Answer, first_closed
from kintsugi.core.moment import epoch, moment
from kintsugi.core.names import ATTEMPT_ANNOTATION, RETIRING_SINCE_ANNOTATION
from kintsugi.core.plan import Action, Ask, Evict, Release, Restore, Withdraw
from kintsugi.core.poolview import PoolView
from kintsugi.core.snapshot import Instance
from kintsugi.core.times import Times

DRAIN_SETTLE_SECONDS: Final = 3.0
"""After a withdrawal, before `running = 0` counts: the EndpointSlice lost the pod after 0.2 s in measurements,
and a client may have connected just before. Real seconds, also in a rehearsal."""
STALLED_GRACE_SECONDS: Final = 10
"""An engine without a step has nothing to finish (design §3)."""
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


@dataclass(frozen=True, slots=True)
class Step:
    """Where the remediation stands after this pass, and what to do for it."""

    active: ActiveRemediation
    actions: tuple[Action, ...] = ()
    withheld: Answer | None = None
    answers: tuple[Answer, ...] = field(default=())


def advance(active: ActiveRemediation, world: World) -> Step:
    """The next step of `active`. Pure; every action it asks for is idempotent."""
    if active.outcome is not None:
        victim = world.view.instance(active.uid)
        if victim is not None and owes_restore(active, victim):
            return Step(active, (Restore(victim.name, victim.uid, active.id),))
        return Step(active)
    return PHASES[active.phase](active, world)


def finding_of(verdict: InstanceVerdict | None, trigger: str) -> Finding | None:
    """The Sick finding of the detector behind `trigger`, or None."""
    if verdict is None:
        return None
    return next(
        (f for f in verdict.findings if f.detector.value == trigger and f.severity is Severity.SICK), None
    )


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


def _cancelled(active: ActiveRemediation, victim: Instance | None, message: str, now: float) -> Step:
    actions: tuple[Action, ...] = ()
    ended = finished(active, "Cancelled", message, now)
    if victim and owes_restore(ended, victim):
        actions = (Restore(victim.name, victim.uid, active.id),)
    return Step(ended, actions)


def _cleared(active: ActiveRemediation, world: World) -> bool:
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
    return well and not _reserved_before(active, world)


def _other_trigger(active: ActiveRemediation, world: World) -> Finding | None:
    """What else the victim is sick of: a hung engine exports nothing more, and its first trigger would never end."""
    verdict = world.view.verdicts.get(active.uid)
    return verdict.sick() if verdict else None


def _reserved_before(active: ActiveRemediation, world: World) -> bool:
    """The attempt was reserved by an operator process before this one, whose evidence is gone."""
    return epoch(active.reserved_at) < world.now - world.observed_for


def _evidence_is_lost(active: ActiveRemediation, world: World) -> bool:
    """Reserved by an operator process before this one, which has watched a readable engine for a full window since."""
    verdict = world.view.verdicts.get(active.uid)
    readable = verdict is not None and verdict.fresh
    window = max(world.times.fragmentation_window, world.times.throughput_window, world.times.stall_remove)
    return readable and _reserved_before(active, world) and world.observed_for > 1.5 * window


def _new_process(active: ActiveRemediation, victim: Instance) -> bool:
    started = epoch(active.started_at) if active.started_at else None
    return started is not None and victim.started_at is not None and victim.started_at > started + 0.5


def _quarantined(active: ActiveRemediation, world: World) -> Step:
    victim = world.view.instance(active.uid)
    if victim is None or victim.deleting:
        return Step(finished(active, "Cancelled", "the pod went away by itself", world.now))
    dead = active.trigger == Detector.DEAD.value
    if not dead and _new_process(active, victim):
        return _cancelled(
            active, victim, "its process was restarted: the evidence was about another one", world.now
        )
    finding = finding_of(world.view.verdicts.get(active.uid), active.trigger)
    if finding is None:
        if _cleared(active, world):
            return _cancelled(active, victim, "the trigger cleared: given back untouched", world.now)
        other = _other_trigger(active, world)
        if other:
            return _cancelled(
                active, victim, f"{other.detector.value} was found since, and takes over", world.now
            )
        if _evidence_is_lost(active, world):
            why = (
                "an operator restart lost its evidence, and it did not come back in a full window: given back"
            )
            return _cancelled(active, victim, why, world.now)
        waiting = _said(active, "waits: nothing certain is known of it now")
        return Step(
            waiting,
            (),
            Answer(
                "noData", False, "nothing certain is known of it now: it is neither removed nor given back"
            ),
        )
    if world.storm and world.storm.state == "Open" and finding.detector is not Detector.STALLED:
        return _cancelled(
            active, victim, "a storm opened: put back, since a shared cause is likely", world.now
        )
    out: tuple[Action, ...] = ()
    if victim.in_rotation and not world.view.of_one and not dead:
        out = (Withdraw(victim.name, victim.uid, active.id),)
        active = active.model_copy(update={"withdrawn_at": active.withdrawn_at or moment(world.now)})
    held_since = max(epoch(active.detected_at), epoch(active.reserved_at))  # the verdict may be hours older
    hold_over = held_since + (0.0 if dead else world.times.hold)
    if world.now < hold_over:
        hold = Answer(
            "hold", False, "withdrawn; removed when the hold is over, if nobody else falls sick", hold_over
        )
        return Step(_said(active, hold.message), out, hold)
    if not finding.removable:
        early = Answer("removalTime", False, f"withdrawn; its removal time is not reached ({finding.reason})")
        return Step(_said(active, early.message), out, early)
    answers = world.ask(victim, finding)
    closed = first_closed(answers)
    if closed:
        return Step(_said(active, closed.message), out, closed, answers)
    if world.view.room is None:
        return Step(_said(active, "looks for room for its replacement"), out, None, answers)
    return _removal(active, victim, world, out, answers)


def _removal(
    active: ActiveRemediation,
    victim: Instance,
    world: World,
    out: tuple[Action, ...],
    answers: tuple[Answer, ...],
) -> Step:
    gone_already = victim.phase in ("Failed", "Succeeded")
    surge = (world.view.room or 0) > 0 and victim.member and not gone_already
    update: dict[str, Any] = {
        "phase": "Draining",
        "draining_since": moment(world.now),
        "counts_towards_budget": True,
        "path": "Surge" if surge else "DeleteFirst",
        "message": "a replacement starts first"
        if surge
        else "removed first: no free GPU for its replacement",
    }
    if surge:
        update["released_at"] = moment(world.now)
        out = (*out, Release(victim.name, victim.uid, active.id))
    return Step(active.model_copy(update=update), out, None, answers)


def _draining(active: ActiveRemediation, world: World) -> Step:
    victim = world.view.instance(active.uid)
    if victim is None or victim.deleting:
        update = {
            "phase": "Replacing",
            "deleted_at": moment(world.now),
            "message": "waits for its replacement",
        }
        return Step(_with_replacement(active.model_copy(update=update), world))
    active = _with_replacement(active, world)
    verdict = world.view.verdicts.get(active.uid)
    finding = finding_of(verdict, active.trigger)
    if active.path != "Surge" or victim.member:
        revoked = _revoked(active, victim, finding, world)
        if revoked:
            return revoked
        if active.path == "Surge":
            release = Release(victim.name, victim.uid, active.id)
            return Step(_said(active, "is let go, so that its replacement starts"), (release,))
    elif finding is None and _cleared(active, world):
        active = active.model_copy(update={"cancelling": True})
    actions: list[Action] = []
    if victim.in_rotation:
        serves = not (finding and finding.serves_nothing)
        if world.view.of_one and active.path == "Surge" and serves and not _relieved(active, world.view):
            return Step(_said(active, "stays in rotation until its replacement is Ready"))
        actions.append(Withdraw(victim.name, victim.uid, active.id))
        stamp = active.withdrawn_at or moment(world.now)
        active = active.model_copy(update={"withdrawn_at": stamp})
    drained, cut = _drained(active, victim, verdict, finding, world)
    if not drained:
        return Step(_said(active, "drains: waits for its running requests"), tuple(actions))
    if active.evicting_since is None:
        update = {"evicting_since": moment(world.now), "streams_cut": cut, "message": "evicted"}
        active = active.model_copy(update=update)
    grace = STALLED_GRACE_SECONDS if finding and finding.serves_nothing else None
    actions.append(Evict(victim.name, victim.uid, active.id, grace))
    return Step(active, tuple(actions))


def _revoked(
    active: ActiveRemediation, victim: Instance, finding: Finding | None, world: World
) -> Step | None:
    """The end, or the pause, of a removal of which nothing has happened yet; None where it goes on.

    A refused eviction and a release that was never made are asked about in every pass, and by then the reason may be
    gone. What is not known does not count towards a removal (safety rules 2 and 14).
    """
    if active.trigger != Detector.DEAD.value and _new_process(active, victim):
        why = "its process was restarted: the evidence was about another one"
        return _cancelled(_not_released(active), victim, why, world.now)
    if finding is None:
        if _cleared(active, world):
            why = "the trigger cleared while it drained: given back"
            return _cancelled(_not_released(active), victim, why, world.now)
        if _other_trigger(active, world):
            return _cancelled(_not_released(active), victim, "another finding takes over", world.now)
        unsure = Answer("noData", False, "waits: nothing certain is known of it now")
        return Step(_said(active, unsure.message), (), unsure)
    if world.storm and world.storm.state == "Open" and finding.detector is not Detector.STALLED:
        why = "a storm opened while it drained: put back"
        return _cancelled(_not_released(active), victim, why, world.now)
    return None


def _not_released(active: ActiveRemediation) -> ActiveRemediation:
    return active.model_copy(update={"released_at": None})


def _relieved(active: ActiveRemediation, view: PoolView) -> bool:
    """Another instance of the pool takes requests."""
    return any(i.uid != active.uid and i.ready and i.in_rotation and not i.deleting for i in view.instances)


def _drained(
    active: ActiveRemediation,
    victim: Instance,
    verdict: InstanceVerdict | None,
    finding: Finding | None,
    world: World,
) -> tuple[bool, int | None]:
    """Whether nothing is left to wait for, and how many streams the eviction would cut (None: nobody knows)."""
    if active.evicting_since is not None:
        return True, active.streams_cut
    if finding and finding.serves_nothing:
        return True, 0
    since = epoch(active.draining_since) if active.draining_since else world.now
    withdrawn = epoch(active.withdrawn_at) if active.withdrawn_at else world.now
    running = verdict.running if verdict and verdict.fresh else None
    if victim.started_at is None or victim.phase in ("Failed", "Succeeded"):
        return True, 0
    if running == 0 and world.now - withdrawn >= DRAIN_SETTLE_SECONDS:
        return True, 0
    if world.now - max(since, withdrawn) >= world.times.drain_timeout:
        return True, None if running is None else int(running)
    return False, 0


def _with_replacement(active: ActiveRemediation, world: World, skew: float = 0.0) -> ActiveRemediation:
    """`active` with the pod that took the victim's place, once one is seen; `skew` seconds between the clocks."""
    if active.replacement_uid is not None:
        return active
    began = active.released_at or active.evicting_since or active.draining_since or active.reserved_at
    earliest = epoch(began) // 1 - 1  # creation times have whole seconds
    if active.trigger == Detector.DEAD.value:
        earliest = min(earliest, epoch(active.detected_at) // 1 - 1, _ended_at(active, world) - 1)
    new = [
        i
        for i in world.view.members
        if i.uid != active.uid and i.uid not in world.claimed and i.created_at >= earliest - skew
    ]
    if not new:
        return active
    found = min(new, key=lambda i: (i.created_at, i.name))
    return active.model_copy(
        update={
            "replacement_uid": found.uid,
            "replacement_name": found.name,
            "replaced_at": moment(found.created_at),
        }
    )


def _ended_at(active: ActiveRemediation, world: World) -> float:
    """When a pod that is over ended: its ReplicaSet replaced it then, however late we saw it. Epoch seconds."""
    victim = world.view.instance(active.uid)
    if victim is None or victim.phase not in ("Failed", "Succeeded"):
        return world.now
    return victim.last_termination.finished_at if victim.last_termination else victim.created_at


def _replacing(active: ActiveRemediation, world: World) -> Step:
    active = _with_replacement(active, world)
    if active.replacement_uid is None:
        active = _with_replacement(active, world, CLOCK_SKEW_SECONDS)
    replacement = world.view.instance(active.replacement_uid or "")
    if not (replacement and replacement.ready) and world.view.revision != active.revision:
        why = "the spec asks for another revision: its rollout brings the replacement"
        return Step(finished(active, "Cancelled", why, world.now))
    if active.replacement_uid is None:
        if _complete(active, world):
            why = "its pool has all its instances without a replacement that can be told"
            return Step(finished(active, "Cancelled", why, world.now))
        return Step(_said(active, "waits for its replacement"))
    if active.cancelling:
        return Step(finished(active, "Cancelled", "the trigger cleared after the release", world.now))
    if replacement is None or replacement.deleting:
        again = active.model_copy(
            update={"replacement_uid": None, "replacement_name": None, "replaced_at": None}
        )
        return Step(_said(again, "its replacement went away: waits for the next"))
    if replacement.ready:
        ready = moment(replacement.ready_since or world.now)
        return Step(
            active.model_copy(
                update={"phase": "Warming", "ready_at": ready, "message": "its replacement warms up"}
            )
        )
    if replacement.waiting_reason in FATAL_WAITS or replacement.phase == "Failed":
        why = replacement.waiting_message or replacement.waiting_reason or replacement.phase_reason
        return Step(finished(active, "NotCured", f"its replacement does not start: {why}"[:500], world.now))
    if replacement.node and world.now - replacement.created_at > world.start_budget:
        return Step(
            finished(active, "NotCured", "its replacement was not Ready within the start budget", world.now)
        )
    why = replacement.waiting_reason or ("starting" if replacement.node else "not scheduled: no room for it")
    return Step(_said(active, f"its replacement {replacement.name} is not Ready yet ({why})"))


def _complete(active: ActiveRemediation, world: World) -> bool:
    """The pool was scaled down in the meantime, say: Kubernetes will make no further pod."""
    since = epoch(active.deleted_at) if active.deleted_at else world.now
    view = world.view
    short = any(s.actual < s.wanted for s in view.sets)
    return not short and len(view.members) >= view.wanted and world.now - since >= COMPLETE_SECONDS


def _watched(active: ActiveRemediation, world: World) -> Step | None:
    """The end of an attempt whose replacement went away or fell sick; None while it is well."""
    replacement = world.view.instance(active.replacement_uid or "")
    gone = replacement is None or replacement.deleting
    if gone and world.view.revision != active.revision:
        return Step(finished(active, "Cancelled", "a rollout replaced its replacement", world.now))
    if replacement is None or replacement.deleting:
        return Step(
            finished(active, "Ambiguous", "its replacement was removed before it was verified", world.now)
        )
    verdict = world.view.verdicts.get(replacement.uid)
    sick = verdict.sick() if verdict else None
    if sick:
        return Step(
            finished(active, "NotCured", f"its replacement is sick too: {sick.message}"[:500], world.now)
        )
    return None


def _warming(active: ActiveRemediation, world: World) -> Step:
    ended = _watched(active, world)
    if ended:
        return ended
    ready = epoch(active.ready_at) if active.ready_at else world.now
    if world.now < ready + world.times.warm_up:
        return Step(active)
    warm = moment(ready + world.times.warm_up)
    update = {"phase": "Probation", "warm_at": warm, "message": "its replacement is on probation"}
    return Step(active.model_copy(update=update))


def _probation(active: ActiveRemediation, world: World) -> Step:
    ended = _watched(active, world)
    if ended:
        return ended
    uid = active.replacement_uid or ""
    answered = world.answers.get(uid)
    actions: tuple[Action, ...] = () if answered else (Ask(uid),)
    warm = epoch(active.warm_at) if active.warm_at else world.now
    if world.now < warm + world.times.probation:
        return Step(active, actions)
    verdict = world.view.verdicts.get(uid)
    well = {Verdict.HEALTHY, Verdict.IDLE, Verdict.SATURATED}
    if verdict and verdict.fresh and verdict.verdict in well and answered:
        return Step(finished(active, "Cured", "its replacement is well after its probation", world.now))
    if world.now < warm + 2 * world.times.probation or answered is None:  # nobody asked: we were away
        return Step(_said(active, "on probation for longer: not enough is known of the replacement"), actions)
    if answered is False:
        return Step(finished(active, "NotCured", "its replacement does not answer a real request", world.now))
    return Step(
        finished(active, "Ambiguous", "too little is known of the replacement to call it cured", world.now)
    )


def _said(active: ActiveRemediation, message: str) -> ActiveRemediation:
    return active if active.message == message else active.model_copy(update={"message": message})


PHASES: Final[Mapping[str, Callable[[ActiveRemediation, World], Step]]] = {
    "Quarantined": _quarantined,
    "Draining": _draining,
    "Replacing": _replacing,
    "Warming": _warming,
    "Probation": _probation,
}
