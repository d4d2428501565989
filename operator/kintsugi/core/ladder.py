"""The ladder: which remedy comes next for one instance, and what ends it (design §1, §2; safety rules 17, 21, 22).

Compact → Recreate → RecreateElsewhere → GiveUp. A rung is used up by an attempt in the instance's line that was not
cancelled and lies within the memory; attempts of before are forgotten, so that a fault after a long healthy time begins at
the bottom again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kintsugi.api.healing import Rung
from kintsugi.api.remediation import Remedy
from kintsugi.core.finding import Detector, Finding, InstanceVerdict, Severity
from kintsugi.core.moment import epoch
from kintsugi.core.snapshot import Instance, Snapshot
from kintsugi.core.strikes import reset_at
from kintsugi.core.times import Times

SAME_NODE_REMEDIES: Final = frozenset({"Compact", "Recreate"})
"""Rungs that may bring the same GPU back: no cure for a sick one, whose ladder starts at RecreateElsewhere."""
ALLOCATOR: Final = "Allocator"
"""The source of fragmentation that giving back cached memory can cure."""


@dataclass(frozen=True, slots=True)
class Climb:
    """The next remedy for one instance. `remedy` None: no rung of this ladder helps, and none was tried."""

    remedy: Remedy | None
    attempt: int
    """Counts every attempt in the line, cancelled ones too, since it names the object."""
    lineage: str
    skipped: str = ""
    """Which rung was left out, and why, for people."""


def next_rung(
    snapshot: Snapshot,
    instance: Instance,
    finding: Finding,
    verdict: InstanceVerdict | None,
    elsewhere: int | None,
    times: Times,
) -> Climb:
    """The remedy for `finding`. `elsewhere`: instances that other nodes could take; None where nobody looked yet."""
    status = snapshot.deployment.status
    entry = next((e for e in status.remediations.lineages if e.uid == instance.uid), None)
    lineage = entry.lineage if entry else instance.uid
    attempt = (entry.attempts if entry else 0) + 1
    rungs, skipped = _rungs(snapshot.deployment.spec.healing.ladder, instance, finding, verdict, elsewhere)
    used = _used(snapshot, lineage, times)
    left = _left(rungs, used)
    if left:
        return Climb(left[0], attempt, lineage, skipped if left[0] == "Recreate" else "")
    return Climb("GiveUp" if used else None, attempt, lineage)


def wants_another_node(finding: Finding, verdict: InstanceVerdict | None) -> bool:
    """Whether a GPU of the instance is sick, so that another node must be looked for whatever else it has."""
    findings = verdict.findings if verdict else ()
    sick = any(f.detector is Detector.DEVICE and f.severity is Severity.SICK for f in findings)
    return sick or finding.detector is Detector.DEVICE


def _rungs(
    ladder: Sequence[Rung],
    instance: Instance,
    finding: Finding,
    verdict: InstanceVerdict | None,
    elsewhere: int | None,
) -> tuple[list[Rung], str]:
    """The rungs that can help against this finding, and which one is left out and why.

    An instance with a sick GPU goes elsewhere whatever else it has; where no other node fits, what else it has is cured in
    place, since a sick GPU that serves is better than none (S55).
    """
    another = wants_another_node(finding, verdict)
    if another and (finding.detector is Detector.DEVICE or elsewhere != 0):
        return [rung for rung in ladder if rung not in SAME_NODE_REMEDIES], ""
    if "Compact" not in ladder or finding.detector is not Detector.FRAGMENTED:
        return [rung for rung in ladder if rung != "Compact"], ""
    if _only_allocator(verdict, finding) and instance.compactable:
        return list(ladder), ""
    why = "only fragmentation of the allocator can be cured in place"
    if _only_allocator(verdict, finding):
        why = "this engine can't release cached allocator memory while it serves"
    return [rung for rung in ladder if rung != "Compact"], f"Compact is skipped: {why}"


def _only_allocator(verdict: InstanceVerdict | None, finding: Finding) -> bool:
    findings = verdict.findings if verdict else (finding,)
    sick = [f for f in findings if f.severity is Severity.SICK]
    return bool(sick) and all(f.detector is Detector.FRAGMENTED and f.source == ALLOCATOR for f in sick)


def _used(snapshot: Snapshot, lineage: str, times: Times) -> list[str]:
    """Remedies that were tried in the line within the memory, in their order; those before a person's reset count not."""
    reset = reset_at(snapshot.deployment, snapshot.now)
    found = []
    for entry in snapshot.deployment.status.remediations.recent:
        ended = entry.finished_at or entry.started_at
        if entry.lineage != lineage or entry.outcome in ("Cancelled", "Exhausted"):
            continue
        if reset is not None and ended <= reset:
            continue
        if snapshot.now - epoch(ended) <= times.lineage_memory:
            found.append((ended, entry.remedy or "Recreate"))
    return [remedy for _, remedy in sorted(found)]


def _left(rungs: Sequence[Rung], used: Sequence[str]) -> list[Rung]:
    """The rungs above the highest that was used. One used that this finding has no use for counts as the nearest below."""
    order = {"Compact": 0, "Recreate": 1, "RecreateElsewhere": 2}
    place = 0
    for remedy in used:
        at = next((n for n in range(place, len(rungs)) if rungs[n] == remedy), None)
        if at is not None:
            place = at + 1
            continue
        while place < len(rungs) and order[rungs[place]] < order.get(remedy, 3):
            place += 1
    return list(rungs[place:])
