"""What changed between two statuses, told as events: each cause once, never each pass."""

from typing import Final

from kintsugi.api.condition import find_condition
from kintsugi.api.status import ActiveRemediation, DeploymentStatus
from kintsugi.core.classify.kinds import KIND_NAMES
from kintsugi.core.plan import Happening

TOLD_CONDITIONS = (
    ("SpecAccepted", "False", "SpecRefused"),
    ("DataFresh", "False", "DataMissing"),
    ("HealingAllowed", "False", "HealingWithheld"),
)
"""A condition, the status that is told when it is reached, and the event's reason."""

EVICTED: Final = "nothing runs on it any more: evicted"
STEPS = (
    ("withdrawn_at", "Withdrawn", "taken out of rotation"),
    ("released_at", "Released", "let go, so that its replacement starts"),
    ("evicting_since", "Evicting", EVICTED),
    ("ready_at", "Replaced", "its replacement is Ready"),
)


def happenings(before: DeploymentStatus, after: DeploymentStatus) -> tuple[Happening, ...]:
    """Events for what is new in `after`."""
    return (
        *_verdicts(before, after),
        *_attempts(before, after),
        *_strikes(before, after),
        *_conditions(before, after),
        *_starts(before, after),
        *_rollouts(before, after),
        *_capacity(before, after),
    )


def _verdicts(before: DeploymentStatus, after: DeploymentStatus) -> list[Happening]:
    was = {entry.uid: entry.verdict for entry in before.instances}
    told = []
    for entry in after.instances:
        if entry.verdict == "Sick" and was.get(entry.uid) != "Sick":
            why = entry.findings[0].message if entry.findings else entry.reason
            told.append(Happening("InstanceSick", f"{entry.name} is sick: {why}", True, "Judge"))
        elif was.get(entry.uid) == "Sick" and entry.verdict != "Sick":
            told.append(Happening("InstanceNoLongerSick", f"{entry.name} is {entry.verdict}", False, "Judge"))
    return told


def _attempts(before: DeploymentStatus, after: DeploymentStatus) -> list[Happening]:
    was = {a.id: a for a in before.remediations.active}
    told = []
    for attempt in after.remediations.active:
        old = was.get(attempt.id)
        told += [
            Happening(
                reason, f"{attempt.instance} ({attempt.name}, {attempt.trigger}): {_told(attempt, text)}"
            )
            for name, reason, text in STEPS
            if getattr(attempt, name) is not None and (old is None or getattr(old, name) is None)
        ]
        if old is None and attempt.phase == "AwaitingApproval":
            text = f"{attempt.instance} ({attempt.name}, {attempt.trigger}) {attempt.message}"
            told.append(Happening("ApprovalAsked", text, True))
        told += _ended(attempt, old)
    return told


def _told(attempt: ActiveRemediation, text: str) -> str:
    """The text of a step; an eviction says how many streams it cuts."""
    if text != EVICTED or attempt.streams_cut == 0:
        return text
    if attempt.streams_cut is None:
        return "its time to drain is over: evicted, and nobody knows how many streams that cuts"
    return f"its time to drain is over: evicted, which cuts {attempt.streams_cut} running streams"


def _ended(attempt: ActiveRemediation, old: ActiveRemediation | None) -> list[Happening]:
    if attempt.outcome is None or (old is not None and old.outcome is not None):
        return []
    bad = attempt.outcome not in ("Cured", "Cancelled")
    return [
        Happening(
            f"Remediation{attempt.outcome}", f"{attempt.instance} ({attempt.name}): {attempt.message}", bad
        )
    ]


def _strikes(before: DeploymentStatus, after: DeploymentStatus) -> list[Happening]:
    """Nodes that are avoided from now on, also told of the node itself: for people, and for what mends nodes."""
    was = {(s.node, s.device): s.expires_at for s in before.remediations.strikes}
    told = []
    for entry in after.remediations.strikes:
        if entry.device or entry.expires_at is None or entry.expires_at == was.get((entry.node, "")):
            continue
        gpus = [s.device for s in after.remediations.strikes if s.node == entry.node and s.device]
        blamed = f" (GPU {', '.join(gpus)})" if gpus else ""
        text = (
            f"node {entry.node}{blamed}: strike {entry.count} for {entry.reason}; new pods of pool "
            f"{', '.join(entry.pools)} avoid it until {entry.expires_at:%Y-%m-%d %H:%M} UTC. Look at the node; cordon it "
            "where other work should keep off too"
        )
        told.append(Happening("NodeSuspect", text, True, "Heal", entry.node))
    return told


def _conditions(before: DeploymentStatus, after: DeploymentStatus) -> list[Happening]:
    told = []
    for kind, status, reason in TOLD_CONDITIONS:
        new, old = find_condition(after.conditions, kind), find_condition(before.conditions, kind)
        changed = new is not None and (old is None or (old.status, old.reason) != (new.status, new.reason))
        if new is not None and changed and new.status == status:
            told.append(Happening(reason, f"{new.reason}: {new.message}", True, "Report"))
    return told


def _starts(before: DeploymentStatus, after: DeploymentStatus) -> list[Happening]:
    """Why pods do not start, once for each cause."""
    new, old = find_condition(after.conditions, "Degraded"), find_condition(before.conditions, "Degraded")
    if new is None or new.status != "True" or new.reason not in KIND_NAMES:
        return []
    known = old is not None and (old.status, old.reason) == (new.status, new.reason)
    return [] if known else [Happening("StartFailed", f"{new.reason}: {new.message}", True, "Report")]


def _rollouts(before: DeploymentStatus, after: DeploymentStatus) -> list[Happening]:
    was = {entry.pool: (entry.state, entry.revision) for entry in before.rollouts}
    return [
        Happening(
            f"Rollout{entry.state}",
            f"pool {entry.pool}: {entry.message}",
            entry.state == "Stalled",
            "Rollout",
        )
        for entry in after.rollouts
        if was.get(entry.pool) != (entry.state, entry.revision)
    ]


def _capacity(before: DeploymentStatus, after: DeploymentStatus) -> list[Happening]:
    was = (
        {(pool.name, pool.revision): pool.reason for pool in before.capacity.pools} if before.capacity else {}
    )
    return [
        Happening("CapacityReduced", f"pool {pool.name}: {pool.message}", True, "Report")
        for pool in (after.capacity.pools if after.capacity else ())
        if pool.reason == "CapacityReduced" and was.get((pool.name, pool.revision)) != pool.reason
    ]
