"""The first half of a remediation: the victim is held back, drained and evicted."""

from typing import Any, Final

from kintsugi.api.status import ActiveRemediation
from kintsugi.core.aftermath import before
from kintsugi.core.attempt import (
    DRAIN_SETTLE_SECONDS,
    EVICTION_SECONDS,
    STALLED_GRACE_SECONDS,
    Step,
    World,
    cancelled,
    cleared,
    evidence_is_lost,
    finished,
    new_process,
    other_trigger,
    said,
    silent_finding,
    standing_finding,
)
from kintsugi.core.finding import Detector, Finding, InstanceVerdict
from kintsugi.core.gate import Answer, first_closed
from kintsugi.core.moment import epoch, moment
from kintsugi.core.names import RESET_LADDERS_ANNOTATION
from kintsugi.core.plan import Action, Evict, Release, Withdraw
from kintsugi.core.poolview import PoolView
from kintsugi.core.snapshot import Instance
from kintsugi.core.succession import with_replacement

GIVEN_BACK: Final = frozenset(
    {
        "paused",
        "spec",
        "mode",
        "approval",
        "exhausted",
        "elsewhere",
        "breaker",
        "minHealthy",
        "capacity",
        "disruptionBudget",
    }
)
"""Gates that only a person or the return of others opens: meanwhile a victim that still serves had better serve."""


def quarantined(active: ActiveRemediation, world: World) -> Step:
    victim = world.view.instance(active.uid)
    if victim is None or victim.deleting:
        return Step(finished(active, "Cancelled", "the pod went away by itself", world.now))
    dead = active.trigger == Detector.DEAD.value
    if not dead and new_process(active, victim):
        return cancelled(
            active, victim, "its process was restarted: the evidence was about another one", world.now
        )
    finding = standing_finding(active, world.view.verdicts.get(active.uid), victim)
    if finding is None:
        if cleared(active, world):
            return cancelled(active, victim, "the trigger cleared: given back untouched", world.now)
        other = other_trigger(active, world)
        if other:
            return cancelled(
                active, victim, f"{other.detector.value} was found since, and takes over", world.now
            )
        if evidence_is_lost(active, world):
            why = (
                "an operator restart lost its evidence, and it did not come back in a full window: given back"
            )
            return cancelled(active, victim, why, world.now)
        waiting = said(active, "waits: nothing certain is known of it now")
        return Step(
            waiting,
            (),
            Answer(
                "noData", False, "nothing certain is known of it now: it is neither removed nor given back"
            ),
        )
    if world.storm and world.storm.state == "Open" and finding.detector is not Detector.STALLED:
        return cancelled(
            active, victim, "a storm opened: put back, since a shared cause is likely", world.now
        )
    gone = dead and finding.serves_nothing  # one that is up again between two restarts serves, and is held
    out: tuple[Action, ...] = ()
    gives_up = active.remedy == "GiveUp"
    stays = gives_up and not finding.serves_nothing  # nothing will be done about it, and it serves
    if victim.in_rotation and not world.view.of_one and not gone and not stays:
        out = (Withdraw(victim.name, victim.uid, active.id),)
        active = active.model_copy(update={"withdrawn_at": active.withdrawn_at or moment(world.now)})
    held_since = world.since(
        max(epoch(active.detected_at), epoch(active.reserved_at))
    )  # the verdict may be hours older
    hold_over = held_since + (0.0 if gone else world.times.hold)
    place = "stays in rotation" if world.view.of_one or gone or stays else "withdrawn"
    if world.now < hold_over or out:  # a victim that is not seen to be out has not been held
        text = f"{place}; removed when the hold is over, if nobody else falls sick"
        hold = Answer("hold", False, text, hold_over)
        return Step(said(active, hold.message), out, hold)
    if not finding.removable:
        early = Answer("removalTime", False, f"{place}; its removal time is not reached ({finding.reason})")
        return Step(said(active, early.message), out, early)
    answers = world.ask(victim, finding)
    closed = first_closed(answers)
    silent = silent_finding(world.view.verdicts.get(active.uid))
    if closed and silent and first_closed(anew := world.ask(victim, silent)) is None:
        finding, answers, closed = silent, anew, None
    if closed and closed.gate in GIVEN_BACK and not (silent or finding.serves_nothing):
        return cancelled(active, victim, f"put back: {closed.message}", world.now)
    if closed:
        return Step(said(active, closed.message), out, closed, answers)
    if gives_up:
        return Step(finished(active, "Exhausted", _given_up(active), world.now), out, None, answers)
    if world.view.room is None:
        return Step(said(active, "looks for room for its replacement"), out, None, answers)
    return _removal(active, victim, world, out, answers)


def _removal(
    active: ActiveRemediation,
    victim: Instance,
    world: World,
    out: tuple[Action, ...],
    answers: tuple[Answer, ...],
) -> Step:
    gone_already = victim.phase in ("Failed", "Succeeded")
    elsewhere = active.remedy == "RecreateElsewhere"
    room = world.view.room_without({victim.node}) if elsewhere else world.view.room
    surge = (room or 0) > 0 and victim.member and not gone_already
    update: dict[str, Any] = {
        "phase": "Draining",
        "draining_since": moment(world.now),
        **before(world.view, victim.uid),
        "counts_towards_budget": True,
        "path": "Surge" if surge else "DeleteFirst",
        "message": "a replacement starts first"
        if surge
        else "removed first: no free GPU for its replacement",
    }
    if elsewhere:
        update["message"] = _told_first(victim)
    elif surge:
        update["released_at"] = moment(world.now)
        out = (*out, Release(victim.name, victim.uid, active.id))
    return Step(active.model_copy(update=update), out, None, answers)


def draining(active: ActiveRemediation, world: World) -> Step:
    victim = world.view.instance(active.uid)
    if victim is None or victim.deleting:
        update = {
            "phase": "Replacing",
            "deleted_at": moment(world.now),
            "message": "waits for its replacement",
        }
        return Step(with_replacement(active.model_copy(update=update), world))
    active = with_replacement(active, world)
    verdict = world.view.verdicts.get(active.uid)
    finding = standing_finding(active, verdict, victim)
    if active.path != "Surge" or victim.member:
        revoked = _revoked(active, victim, finding, world)
        if revoked:
            return revoked
        if not world.told_to_avoid:
            return Step(said(active, _told_first(victim)))
        if active.path == "Surge":
            active = active.model_copy(update={"released_at": active.released_at or moment(world.now)})
            release = Release(victim.name, victim.uid, active.id)
            return Step(said(active, "is let go, so that its replacement starts"), (release,))
    elif finding is None and cleared(active, world):
        active = active.model_copy(update={"cancelling": True})
    finding = silent_finding(verdict) or finding
    actions: list[Action] = []
    if victim.in_rotation:
        serves = not (finding and finding.serves_nothing)
        if world.view.of_one and active.path == "Surge" and serves and not _relieved(active, world.view):
            return Step(said(active, "stays in rotation until its replacement is Ready"))
        actions.append(Withdraw(victim.name, victim.uid, active.id))
        active = active.model_copy(update={"withdrawn_at": moment(world.now)})  # the drain counts from here
    drained, cut = _drained(active, victim, verdict, finding, world)
    if not drained:
        return Step(said(active, "drains: waits for its running requests"), tuple(actions))
    refused = _refused(active, world)
    if active.evicting_since is None:
        cuts = (
            "" if cut == 0 else f": {'an unknown number of' if cut is None else cut} running streams are cut"
        )
        update = {"evicting_since": moment(world.now), "streams_cut": cut, "message": f"evicted{cuts}"}
        active = active.model_copy(update=update)
    grace = STALLED_GRACE_SECONDS if finding and finding.serves_nothing else None
    actions.append(Evict(victim.name, victim.uid, active.id, grace))
    if refused:
        return Step(said(active, refused.message), tuple(actions), refused)
    return Step(active, tuple(actions))


def _given_up(active: ActiveRemediation) -> str:
    return (
        f"every remedy was tried in this line and {active.trigger} came back: it is left as it is, and a person is "
        f"asked. `kintsugi reset`, or the annotation {RESET_LADDERS_ANNOTATION} with the time, lets healing begin anew"
    )


def _told_first(victim: Instance) -> str:
    return f"its ReplicaSet is told to avoid node {victim.node or 'unknown'} before it goes"


def _refused(active: ActiveRemediation, world: World) -> Answer | None:
    """Said of a victim that stands though its eviction was asked for; it is asked for again, and never forced."""
    if active.evicting_since is None or world.now - epoch(active.evicting_since) < EVICTION_SECONDS:
        return None
    text = (
        "its eviction is not granted: a PodDisruptionBudget that is not ours covers it, or Kubernetes refuses"
    )
    return Answer("eviction", False, text)


def _revoked(
    active: ActiveRemediation, victim: Instance, finding: Finding | None, world: World
) -> Step | None:
    """The end, or the pause, of a removal of which nothing has happened yet; None where it goes on.

    A refused eviction and a release that was never made are asked about in every pass, and by then the reason may be
    gone. What is not known does not count towards a removal (safety rules 2 and 14).
    """
    if active.trigger != Detector.DEAD.value and new_process(active, victim):
        why = "its process was restarted: the evidence was about another one"
        return cancelled(_not_released(active), victim, why, world.now)
    if finding is None:
        if cleared(active, world):
            why = "the trigger cleared while it drained: given back"
            return cancelled(_not_released(active), victim, why, world.now)
        if other_trigger(active, world):
            return cancelled(_not_released(active), victim, "another finding takes over", world.now)
        unsure = Answer("noData", False, "waits: nothing certain is known of it now")
        return Step(said(active, unsure.message), (), unsure)
    if world.storm and world.storm.state == "Open" and finding.detector is not Detector.STALLED:
        why = "a storm opened while it drained: put back"
        return cancelled(_not_released(active), victim, why, world.now)
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
    running = verdict.running if verdict and verdict.fresh else None
    if (
        finding and finding.serves_nothing
    ):  # nothing to wait for: whoever still waits for an answer is cut off
        return True, 0 if running is None else int(running)
    since = epoch(active.draining_since) if active.draining_since else world.now
    withdrawn = epoch(active.withdrawn_at) if active.withdrawn_at else world.now
    if victim.started_at is None or victim.phase in ("Failed", "Succeeded"):
        return True, 0
    read_at = world.now - (verdict.page_age if verdict else 0.0)
    if running == 0 and read_at - withdrawn >= DRAIN_SETTLE_SECONDS:
        return True, 0
    if world.now - max(since, withdrawn) >= world.times.drain_timeout:
        return True, None if running is None else int(running)
    return False, 0
