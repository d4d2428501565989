"""Mode Recommend: an attempt that touches nothing until a person has approved this very one (safety rule 24)."""

from typing import Final

from kintsugi.api.objects import Remediation
from kintsugi.api.status import ActiveRemediation
from kintsugi.core.attempt import (
    Step,
    World,
    cancelled,
    cleared,
    evidence_is_lost,
    finding_of,
    finished,
    new_process,
    said,
)
from kintsugi.core.finding import Detector, Finding, Severity
from kintsugi.core.gate import Answer, first_closed
from kintsugi.core.moment import moment
from kintsugi.core.names import APPROVE_ANNOTATION
from kintsugi.core.snapshot import Instance

REFUSALS: Final = frozenset({"", "no", "false", "never", "0", "deny", "denied", "reject", "rejected"})
"""What nobody would write who approves."""
APPROVER_LENGTH: Final = 63
FOR_A_PERSON: Final = frozenset({"approval", "mode"})


def approver_of(remediation: Remediation | None) -> str:
    """Who approved this attempt, as written in the annotation; '' where nobody did."""
    written = remediation.metadata.annotations.get(APPROVE_ANNOTATION, "") if remediation else ""
    return "" if written.strip().lower() in REFUSALS else written.strip()[:APPROVER_LENGTH]


def how_to_approve(namespace: str, name: str) -> str:
    """The two ways in which a person approves."""
    return (
        f"approve it by `kubectl annotate mend -n {namespace} {name} {APPROVE_ANNOTATION}=<your name>` "
        f"or `kintsugi approve {name} -n {namespace}`"
    )


def waiting(reserved: ActiveRemediation, namespace: str) -> ActiveRemediation:
    """`reserved` as a recommendation: it uses no budget, and nothing of its victim is touched."""
    text = f"waits for a person: {how_to_approve(namespace, reserved.name)}"
    update = {"phase": "AwaitingApproval", "counts_towards_budget": False, "message": text}
    return reserved.model_copy(update=update)


def awaiting(active: ActiveRemediation, world: World) -> Step:
    """A recommendation expires with its trigger; once approved, every gate is asked anew before anything is done."""
    victim = world.view.instance(active.uid)
    if victim is None or victim.deleting:
        return Step(
            finished(active, "Cancelled", "the pod went away by itself: nothing to approve", world.now)
        )
    if active.trigger != Detector.DEAD.value and new_process(active, victim):
        why = "its process was restarted: the evidence was about another one, and the approval expires"
        return cancelled(active, victim, why, world.now)
    finding = finding_of(world.view.verdicts.get(active.uid), active.trigger)
    if finding is None:
        if cleared(active, world):
            return cancelled(active, victim, "the trigger cleared: the recommendation expires", world.now)
        if evidence_is_lost(active, world):
            why = "an operator restart lost its evidence, and it did not come back in a full window: expires"
            return cancelled(active, victim, why, world.now)
        text = "waits: nothing certain is known of it now"
        return Step(said(active, text), (), Answer("noData", False, text))
    if world.mode(active.trigger) == "Observe":
        why = f"mode Observe for {active.trigger} now: the recommendation expires"
        return cancelled(active, victim, why, world.now)
    taking_over = _acts_by_itself(active, world)
    if taking_over:
        why = f"{taking_over.detector.value} was found since, whose mode is Act"
        return cancelled(active, victim, why, world.now)
    active = _heard(active, world)
    return _asked_again(active, victim, finding, world)


def _acts_by_itself(active: ActiveRemediation, world: World) -> Finding | None:
    verdict = world.view.verdicts.get(active.uid)
    sick = [f for f in verdict.findings if f.severity is Severity.SICK] if verdict else []
    others = [f for f in sick if f.detector.value != active.trigger]
    recommends = world.mode(active.trigger) == "Recommend"
    return next((f for f in others if recommends and world.mode(f.detector.value) == "Act"), None)


def _heard(active: ActiveRemediation, world: World) -> ActiveRemediation:
    """`active` with the approval as it stands in its object at this moment: what was taken back counts no more."""
    if world.approver == active.approved_by:
        return active
    at = moment(world.now) if world.approver else None
    return active.model_copy(update={"approved_at": at, "approved_by": world.approver})


def _asked_again(active: ActiveRemediation, victim: Instance, finding: Finding, world: World) -> Step:
    answers = world.ask(victim, finding)
    closed = first_closed(answers)
    if closed is None:
        by = f"approved by {active.approved_by}" if active.approved_by else "the mode is Act now"
        update = {
            "phase": "Quarantined",
            "counts_towards_budget": finding.detector is not Detector.STALLED,
            "message": f"{by}: goes on",
        }
        return Step(active.model_copy(update=update), (), None, answers)
    if active.approved_by:
        text = f"approved by {active.approved_by}, and asks the gates again: {closed.message}"
        return Step(said(active, text), (), closed, answers)
    other = first_closed([answer for answer in answers if answer.gate not in FOR_A_PERSON])
    text = f"waits for a person: {how_to_approve(world.namespace, active.name)}"
    if other:
        text = f"{text}; at this moment it would wait all the same: {other.message}"
    return Step(said(active, text), (), Answer("approval", False, text), answers)
