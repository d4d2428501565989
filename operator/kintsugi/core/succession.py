"""The second half of a remediation: the replacement comes up, warms up and is proven."""

from kintsugi.api.status import ActiveRemediation
from kintsugi.core.aftermath import unmeasured, with_traffic, without_traffic, worse
from kintsugi.core.attempt import (
    CLOCK_SKEW_SECONDS,
    COMPLETE_SECONDS,
    FATAL_WAITS,
    Step,
    World,
    finished,
    said,
)
from kintsugi.core.classify.kinds import KIND_NAMES
from kintsugi.core.finding import Detector, Verdict
from kintsugi.core.moment import epoch, moment
from kintsugi.core.plan import Action, Ask
from kintsugi.core.strikes import refused


def with_replacement(active: ActiveRemediation, world: World, skew: float = 0.0) -> ActiveRemediation:
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
        if i.uid != active.uid
        and i.uid not in world.claimed
        and i.created_at >= earliest - skew
        and not refused(world.view.verdicts.get(i.uid))
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


def replacing(active: ActiveRemediation, world: World) -> Step:
    active = with_replacement(active, world)
    if active.replacement_uid is None:
        active = with_replacement(active, world, CLOCK_SKEW_SECONDS)
    replacement = world.view.instance(active.replacement_uid or "")
    if not (replacement and replacement.ready) and world.view.revision != active.revision:
        why = "the spec asks for another revision: its rollout brings the replacement"
        return Step(finished(active, "Cancelled", why, world.now))
    if active.replacement_uid is None:
        if _complete(active, world):
            why = "its pool has all its instances without a replacement that can be told"
            return Step(finished(active, "Cancelled", why, world.now))
        return Step(said(active, "waits for its replacement"))
    if active.cancelling:
        return Step(finished(active, "Cancelled", "the trigger cleared after the release", world.now))
    if replacement and refused(world.view.verdicts.get(replacement.uid)):
        replacement = None  # no node has run it, so nothing is known of the cure
    if replacement is None or replacement.deleting:
        again = active.model_copy(
            update={"replacement_uid": None, "replacement_name": None, "replaced_at": None}
        )
        return Step(said(again, "its replacement went away: waits for the next"))
    if replacement.ready:
        # Counted from here, since the kubelet's clock, which wrote `ready_since`, may be another than ours.
        update = {"phase": "Warming", "ready_at": moment(world.now), "message": "its replacement warms up"}
        return Step(active.model_copy(update=update))
    if replacement.waiting_reason in FATAL_WAITS or replacement.phase == "Failed":
        verdict = world.view.verdicts.get(replacement.uid)
        told = verdict.message if verdict and verdict.reason in KIND_NAMES else ""
        why = told or replacement.waiting_message or replacement.waiting_reason or replacement.phase_reason
        return Step(finished(active, "NotCured", f"its replacement does not start: {why}"[:500], world.now))
    if replacement.node and world.now - replacement.start_began_at > world.start_budget:
        return Step(
            finished(active, "NotCured", "its replacement was not Ready within the start budget", world.now)
        )
    why = replacement.waiting_reason or ("starting" if replacement.node else "not scheduled: no room for it")
    return Step(said(active, f"its replacement {replacement.name} is not Ready yet ({why})"))


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


def warming(active: ActiveRemediation, world: World) -> Step:
    ended = _watched(active, world)
    if ended:
        return ended
    active = with_traffic(active, world.view)
    ready = epoch(active.ready_at) if active.ready_at else world.now
    if world.now < ready + world.times.warm_up:
        return Step(active)
    warm = moment(ready + world.times.warm_up)
    update = {"phase": "Probation", "warm_at": warm, "message": "its replacement is on probation"}
    return Step(active.model_copy(update=update))


def probation(active: ActiveRemediation, world: World) -> Step:
    ended = _watched(active, world)
    if ended:
        return ended
    active = with_traffic(active, world.view)
    uid = active.replacement_uid or ""
    answered = world.answers.get(uid)
    actions: tuple[Action, ...] = () if answered else (Ask(uid),)
    warm = epoch(active.warm_at) if active.warm_at else world.now
    if world.now < warm + world.times.probation:
        return Step(active, actions)
    verdict = world.view.verdicts.get(uid)
    well = {Verdict.HEALTHY, Verdict.IDLE, Verdict.SATURATED}
    sound = verdict if verdict and verdict.fresh and verdict.verdict in well and answered else None
    doubt = (unmeasured(active, sound) or without_traffic(active, world.view)) if sound else ""
    if sound and not doubt:
        return _verified(active, world)
    if world.now < warm + 2 * world.times.probation or answered is None:  # nobody asked: we were away
        why = doubt or "not enough is known of the replacement"
        return Step(said(active, f"on probation for longer: {why}"), actions)
    if answered is False:
        return Step(finished(active, "NotCured", "its replacement does not answer a real request", world.now))
    why = doubt or "too little is known of the replacement to call it cured"
    return Step(finished(active, "Ambiguous", why, world.now))


def _verified(active: ActiveRemediation, world: World) -> Step:
    """The replacement is well; if the pool is worse off all the same, this was the last removal (safety rule 23)."""
    found = worse(active, world.view)
    if not found:
        place = f"{active.replacement_name} took its place, and is well after its probation"
        return Step(finished(active, "Cured", f"{_went(active)}; {place}", world.now))
    stopped = active.model_copy(update={"worse_after": True})
    return Step(finished(stopped, "NotCured", found, world.now))


def _went(active: ActiveRemediation) -> str:
    """How the pod went, for those who ask why it was killed."""
    if active.evicting_since is None:
        return "gone by itself"
    if active.streams_cut == 0:
        return "evicted, with no request cut off"
    return f"evicted, with {'an unknown number of' if active.streams_cut is None else active.streams_cut} requests cut off"
