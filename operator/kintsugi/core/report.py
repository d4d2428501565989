"""The status after a pass: it says what is, why, and what is held back, and changes only when something did."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kintsugi.api.condition import set_condition
from kintsugi.api.effective import scaled_pool
from kintsugi.api.status import (
    DeploymentStatus,
    FindingStatus,
    InstanceStatus,
    PoolStatus,
    RehearsalStatus,
    RemediationsStatus,
    SignalValues,
    VerdictCounts,
    WithheldAction,
)
from kintsugi.core.capacity import capacity_after
from kintsugi.core.conditions import State, conditions_of, worst_message
from kintsugi.core.finding import Finding, InstanceVerdict, Verdict
from kintsugi.core.judged import Judged
from kintsugi.core.moment import epoch, moment
from kintsugi.core.poolview import PoolView
from kintsugi.core.render import rotation_selector
from kintsugi.core.rollout import Course
from kintsugi.core.snapshot import Instance, Snapshot

_FIGURES: Final = re.compile(r"\b[0-9]+(\.[0-9]+)?\b")
QUIET = frozenset({Verdict.HEALTHY, Verdict.IDLE, Verdict.SATURATED})
"""Verdicts of instances that are well: no findings and no signals of theirs are kept in status."""
QUIET_SECONDS = 60.0
"""Between well and well (idle, busy, full) status follows no faster than this: load alone causes no stream of writes."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a pass found and decided, for the report."""

    snapshot: Snapshot
    views: tuple[PoolView, ...]
    judged: Judged
    courses: Mapping[str, Course]
    problems: tuple[str, ...]
    remediations: RemediationsStatus


def report(facts: Facts, before: DeploymentStatus) -> DeploymentStatus:
    """The new status. Parts whose meaning did not change are taken over as they were, figures included."""
    snapshot = facts.snapshot
    spec = snapshot.deployment.spec
    now = moment(snapshot.now)
    instances = _instances(facts, before)
    pools = tuple(_pool(view, facts, before, instances) for view in facts.views)
    state = State(
        snapshot=snapshot,
        views=facts.views,
        judged=facts.judged,
        courses=facts.courses,
        problems=facts.problems,
        remediations=facts.remediations,
        instances=instances,
    )
    conditions = before.conditions
    for condition in conditions_of(state):
        conditions = set_condition(conditions, condition, now)
    wanted = sum(view.wanted for view in facts.views)
    serving = sum(pool.ready for pool in pools)
    scaled = next((v for v in facts.views if v.name == scaled_pool(spec)), None)
    speed_up = spec.healing.speed_up
    rollouts = [course.rollout for course in facts.courses.values() if course.rollout]
    return DeploymentStatus(
        observed_generation=snapshot.deployment.metadata.generation,
        replicas=len(scaled.members) if scaled else 0,
        selector=_selector(snapshot.key.name, scaled),
        ready=f"{serving}/{wanted}",
        why=worst_message(conditions),
        healing=_healing_word(conditions, spec.healing.mode),
        conditions=conditions,
        pools=pools,
        instances=instances,
        remediations=_steady(facts.remediations, before.remediations),
        rehearsal=RehearsalStatus(speed_up=speed_up) if speed_up != 1 else None,
        rollouts=tuple(sorted(rollouts, key=lambda rollout: rollout.pool)),
        capacity=capacity_after(before.capacity, snapshot, facts.views, not facts.problems),
    )


def _selector(deployment: str, view: PoolView | None) -> str:
    if view is None:
        return ""
    return ",".join(f"{key}={value}" for key, value in rotation_selector(deployment, view.name).items())


def _healing_word(conditions: Iterable[object], mode: str) -> str:
    for condition in conditions:
        if getattr(condition, "type", "") == "HealingAllowed" and getattr(condition, "status", "") == "False":
            return str(getattr(condition, "reason", mode))
    return mode


def _steady(new: RemediationsStatus, old: RemediationsStatus) -> RemediationsStatus:
    """`new`, with withheld entries as they were where nothing but figures differs: those alone cause no write."""
    known = {_words(entry): entry for entry in old.withheld}
    kept = tuple(known.get(_words(entry), entry) for entry in new.withheld)
    return new.model_copy(update={"withheld": kept})


def _words(entry: WithheldAction) -> tuple[str, str, str, datetime | None]:
    return entry.instance, entry.gate, _FIGURES.sub("", entry.message), entry.next_check


def _pool(
    view: PoolView, facts: Facts, before: DeploymentStatus, instances: tuple[InstanceStatus, ...]
) -> PoolStatus:
    old = next((p for p in before.pools if p.name == view.name), None)
    course = facts.courses.get(view.name, Course())
    counts = dict.fromkeys((v.value.lower() for v in Verdict), 0)
    alive = {i.uid for i in view.instances if not i.deleting}
    for entry in instances:
        if entry.uid in alive:
            counts[entry.verdict.lower()] += 1
    return PoolStatus.model_validate(
        {
            "name": view.name,
            "replicas": len(view.members),
            "ready": sum(1 for i in view.instances if i.in_rotation and i.ready and not i.deleting),
            "updated": sum(1 for i in view.members if i.revision == view.revision),
            "selector": _selector(facts.snapshot.key.name, view),
            "revision": view.revision,
            "strategy": course.strategy or (old.strategy if old else None),
            "headroom": old.headroom if view.room is None and old else view.room,
            "verdicts": VerdictCounts.model_validate(counts),
        }
    )


def _instances(facts: Facts, before: DeploymentStatus) -> tuple[InstanceStatus, ...]:
    known = {entry.uid: entry for entry in before.instances}
    active = {a.uid: a for a in facts.remediations.active if a.outcome is None}
    given_up = {entry.uid for entry in facts.remediations.lineages if entry.exhausted}
    found = []
    for instance in sorted(facts.snapshot.instances, key=lambda i: (i.pool, i.created_at, i.name)):
        verdict = facts.judged.verdicts.get(instance.uid)
        entry = _instance(instance, verdict, known.get(instance.uid), facts.snapshot.now)
        remedy = active.get(instance.uid)
        found.append(
            _treated(
                entry,
                remedy.remedy if remedy else "GiveUp" if instance.uid in given_up else None,
                remedy.attempt if remedy else None,
            )
        )
    return tuple(found)


def _treated(entry: InstanceStatus, remedy: str | None, attempt: int | None) -> InstanceStatus:
    """`entry` with what is done about it; itself where that stands in it already."""
    if (entry.remedy, entry.attempt) == (remedy, attempt):
        return entry
    return entry.model_copy(update={"remedy": remedy, "attempt": attempt})


def _instance(
    instance: Instance, verdict: InstanceVerdict | None, old: InstanceStatus | None, now: float
) -> InstanceStatus:
    said = verdict.verdict if verdict else Verdict.UNKNOWN
    reason = verdict.reason if verdict else ""
    findings = verdict.findings if verdict and said not in QUIET else ()
    if old is not None and said in QUIET and Verdict(old.verdict) in QUIET and old.verdict != said.value:
        since = epoch(old.since) if old.since else 0.0
        if now - since < QUIET_SECONDS:
            return old
    same_verdict = old is not None and old.verdict == said.value
    shape = tuple((f.detector.value, f.reason, f.severity.name) for f in findings)
    if (
        old is not None
        and same_verdict
        and old.reason == reason
        and tuple((f.detector, f.reason, f.severity) for f in old.findings) == shape
    ):
        return old if old.node == instance.node else old.model_copy(update={"node": instance.node})
    signals = SignalValues.model_validate(dict(verdict.signals)) if verdict and said not in QUIET else None
    return InstanceStatus.model_validate(
        {
            "name": instance.name,
            "uid": instance.uid,
            "pool": instance.pool,
            "revision": instance.revision,
            "node": instance.node,
            "verdict": said.value,
            "reason": reason,
            "since": old.since if old is not None and same_verdict else moment(now),
            "findings": tuple(_finding(f) for f in findings[:16]),
            "signals": signals if signals and signals.dump() else None,
        }
    )


def _finding(finding: Finding) -> FindingStatus:
    return FindingStatus(
        detector=finding.detector.value,
        reason=finding.reason,
        severity=finding.severity.name,
        message=finding.message[:512],
        since=moment(finding.since),
    )
