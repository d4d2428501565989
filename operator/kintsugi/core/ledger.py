"""The book of remediations in the deployment's status: reservations, budgets, lineages, breakers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kintsugi.api.status import (
    ActiveRemediation,
    BreakerStatus,
    DeploymentStatus,
    LastRemediation,
    LineageStatus,
    RecentRemediation,
    RemediationsStatus,
    StormStatus,
    StrikeStatus,
    WithheldAction,
)
from kintsugi.core.attempt import owes_restore
from kintsugi.core.finding import Detector, Finding
from kintsugi.core.moment import epoch, moment
from kintsugi.core.names import RESET_LADDERS_ANNOTATION
from kintsugi.core.snapshot import Instance, Snapshot
from kintsugi.core.strikes import reset_at
from kintsugi.core.times import Times

RESET_BREAKERS_ANNOTATION: Final = "kintsugi.dev/reset-breakers"
"""On the deployment, an RFC 3339 time: a person closes every breaker that opened before it. A time to come does
nothing yet."""
UID_PART: Final = 8
KEPT_RECENT: Final = 1000


def reserve(
    snapshot: Snapshot, instance: Instance, finding: Finding, remedy: str, attempt: int, lineage: str
) -> ActiveRemediation:
    """A new reservation. A stalled engine's withdrawal uses no budget; its removal does (hang paper §1.3)."""
    costs = finding.detector is not Detector.STALLED or remedy == "Compact"
    status = snapshot.deployment.status
    entry = next((e for e in status.instances if e.uid == instance.uid and e.verdict == "Sick"), None)
    detected = entry.since if entry and entry.since else moment(snapshot.now)
    return ActiveRemediation.model_validate(
        {
            "id": f"{instance.uid}-{attempt}",
            "name": f"{snapshot.key.name}-{instance.uid[:UID_PART]}-{attempt}",
            "instance": instance.name,
            "uid": instance.uid,
            "node": instance.node,
            "started_at": moment(instance.started_at) if instance.started_at is not None else None,
            "pool": instance.pool,
            "revision": instance.revision,
            "trigger": finding.detector.value,
            "remedy": remedy,
            "attempt": attempt,
            "lineage": lineage,
            "phase": "Quarantined",
            "reserved_at": moment(snapshot.now),
            "detected_at": detected,
            "counts_towards_budget": costs and remedy != "GiveUp",
            "message": "withdrawn",
        }
    )


def book(
    status: DeploymentStatus,
    active: tuple[ActiveRemediation, ...],
    snapshot: Snapshot,
    storms: tuple[StormStatus, ...],
    withheld: tuple[WithheldAction, ...],
    strikes: tuple[StrikeStatus, ...],
    times: Times,
) -> RemediationsStatus:
    """The book after this pass. An attempt leaves `active` only when its Remediation says Done too, and a cancelled
    one only when its victim is seen to be back in rotation."""
    before = status.remediations
    victims = {i.uid: i for i in snapshot.instances}
    settled = [
        a
        for a in active
        if a.outcome is not None
        and _recorded(a, snapshot)
        and not (a.uid in victims and owes_restore(a, victims[a.uid]))
    ]
    standing = tuple(a for a in active if a not in settled)
    changed = bool(settled) or {a.id for a in active} != {a.id for a in before.active}
    recent = (*before.recent, *(_entry(a) for a in settled))
    last = max(settled, key=lambda a: a.finished_at or a.reserved_at, default=None)
    return RemediationsStatus(
        in_flight=sum(1 for a in standing if a.outcome is None and a.phase != "AwaitingApproval"),
        last=before.last if last is None else _last(last),
        active=standing,
        recent=_kept(recent, snapshot.now, times) if changed else recent,
        breakers=_breakers(before.breakers, active, snapshot),
        storms=storms,
        withheld=tuple(sorted(withheld, key=lambda entry: entry.instance)),
        lineages=_lineages(before.lineages, active, snapshot),
        strikes=strikes,
    )


def _recorded(active: ActiveRemediation, snapshot: Snapshot) -> bool:
    found = snapshot.remediations.get(active.id)
    return found is not None and found.status.phase == "Done"


def _entry(active: ActiveRemediation) -> RecentRemediation:
    return RecentRemediation(
        id=active.id,
        pool=active.pool,
        revision=active.revision,
        lineage=active.lineage,
        trigger=active.trigger,
        remedy=active.remedy,
        attempt=active.attempt,
        started_at=active.draining_since or active.reserved_at,
        finished_at=active.finished_at,
        outcome=active.outcome,
        replacement_uid=active.replacement_uid,
        counts_towards_budget=active.counts_towards_budget,
    )


def _last(active: ActiveRemediation) -> LastRemediation:
    return LastRemediation(
        name=active.name,
        instance=active.instance,
        trigger=active.trigger,
        outcome=active.outcome,
        finished_at=active.finished_at,
    )


def _kept(recent: tuple[RecentRemediation, ...], now: float, times: Times) -> tuple[RecentRemediation, ...]:
    memory = max(times.budget_hour, times.budget_window, times.lineage_memory)
    young = [r for r in recent if now - epoch(r.finished_at or r.started_at) <= memory]
    return tuple(young[-KEPT_RECENT:])


def _breakers(
    before: tuple[BreakerStatus, ...], active: tuple[ActiveRemediation, ...], snapshot: Snapshot
) -> tuple[BreakerStatus, ...]:
    reset = _reset_at(snapshot)
    alive = {(s.pool, s.revision) for s in snapshot.replica_sets}
    found = {
        (b.pool, b.revision): b
        for b in before
        if (b.pool, b.revision) in alive and (reset is None or epoch(b.since) > epoch(reset))
    }
    for attempt in active:
        removed = attempt.remedy != "Compact"
        stops = removed and attempt.outcome in ("NotCured", "Ambiguous") and attempt.finished_at is not None
        if not stops or (reset is not None and attempt.finished_at and attempt.finished_at <= reset):
            continue
        found.setdefault(
            (attempt.pool, attempt.revision),
            BreakerStatus.model_validate(
                {
                    "pool": attempt.pool,
                    "revision": attempt.revision,
                    "reason": "WorseAfter" if attempt.worse_after else attempt.outcome,
                    "since": attempt.finished_at,
                    "message": f"{attempt.name}: {attempt.message}. A new revision lets healing go on, or a person "
                    f"by `kintsugi reset {snapshot.key.name} -n {snapshot.key.namespace}`"[:1000],
                }
            ),
        )
    return tuple(found[key] for key in sorted(found))


def reset_marks(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """What a person's resets stand at, as written; another value is another reset."""
    return tuple(annotations.get(name, "") for name in (RESET_BREAKERS_ANNOTATION, RESET_LADDERS_ANNOTATION))


def _reset_at(snapshot: Snapshot) -> datetime | None:
    text = snapshot.deployment.metadata.annotations.get(RESET_BREAKERS_ANNOTATION)
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when if when.tzinfo and epoch(when) <= snapshot.now else None


def _unless_reset(entry: LineageStatus, reset: datetime | None) -> LineageStatus:
    """An exhausted line for which a person lets healing begin anew is exhausted no more."""
    over = entry.exhausted_at
    if not entry.exhausted or reset is None or (over is not None and over > reset):
        return entry
    return entry.model_copy(update={"exhausted": False, "exhausted_at": None})


def _lineages(
    before: tuple[LineageStatus, ...], active: tuple[ActiveRemediation, ...], snapshot: Snapshot
) -> tuple[LineageStatus, ...]:
    reset = reset_at(snapshot.deployment, snapshot.now)
    found = {entry.uid: _unless_reset(entry, reset) for entry in before}
    for attempt in active:
        for uid in (attempt.uid, attempt.replacement_uid):
            if uid:
                known = found.get(uid)
                attempts = max(attempt.attempt, known.attempts if known else 0)
                over = known.exhausted_at if known else None
                if attempt.outcome == "Exhausted" and (
                    reset is None or (attempt.finished_at and attempt.finished_at > reset)
                ):
                    over = attempt.finished_at
                found[uid] = LineageStatus(
                    uid=uid,
                    lineage=attempt.lineage,
                    attempts=attempts,
                    exhausted=over is not None,
                    exhausted_at=over,
                )
    alive = (
        {i.uid for i in snapshot.instances} | {a.uid for a in active} | {a.replacement_uid for a in active}
    )
    return tuple(found[uid] for uid in sorted(found) if uid in alive)
