"""What was said of each instance over time, as spans, and the incidents that they make."""

from dataclasses import dataclass, field
from typing import Final

from kintsugi.core.finding import Detector, Evidence, Finding, InstanceVerdict, Severity, Verdict
from kintsugi.core.snapshot import Instance, ProcessKey

WELL: Final = frozenset({Verdict.HEALTHY, Verdict.IDLE, Verdict.SATURATED})
RECOVERED: Final = "recovered"
RESTARTED: Final = "restarted"
GONE: Final = "gone"
STILL_SICK: Final = "stillSick"


@dataclass(slots=True)
class Span:
    """One verdict for as long as it was the same. Epoch seconds; `last` is its last pass."""

    verdict: Verdict
    reason: str
    message: str
    first: float
    last: float


@dataclass(slots=True)
class Incident:
    """One time that one process was Sick: from the first such pass until it was well, restarted or gone."""

    instance: str
    uid: str
    pool: str
    node: str
    process: ProcessKey | None
    finding: Finding
    """What was found first, with its arithmetic."""
    sick_at: float
    reasons: list[str]
    """Every `detector/reason` that was Sick in the course of it, in order."""
    ended_at: float | None = None
    ended: str = STILL_SICK
    restarted: bool = False
    inferred: bool = False
    """It rests on canaries that were not sent, but could not have been answered."""

    @property
    def candidate(self) -> bool:
        """It got well by itself, in the same process: what would have been done may have been wrong."""
        return self.ended == RECOVERED


@dataclass(slots=True)
class Doubt:
    """A suspicion, or an advice, for as long as it stood."""

    instance: str
    severity: Severity
    detector: str
    reason: str
    message: str
    first: float
    last: float
    evidence: tuple[Evidence, ...]


@dataclass(slots=True)
class Track:
    """All that was said of one pod."""

    name: str
    uid: str
    pool: str
    revision: str
    node: str
    assumed: bool = False
    spans: list[Span] = field(default_factory=list)
    pages: int = 0
    missed: int = 0
    processes: set[ProcessKey] = field(default_factory=set)


class Timeline:
    """Collects passes. `spans` join over passes at most `bridge` seconds apart."""

    def __init__(self, bridge: float) -> None:
        self._bridge = bridge
        self._open: dict[str, Incident] = {}
        self._doubts: dict[tuple[str, str, str], Doubt] = {}
        self.tracks: dict[str, Track] = {}
        self.incidents: list[Incident] = []
        self.doubts: list[Doubt] = []

    def note(self, instance: Instance, said: InstanceVerdict, read: bool, now: float) -> None:
        """Take in one verdict; `read`: this pass had a page of it."""
        track = self.tracks.setdefault(
            instance.uid, Track(instance.name, instance.uid, instance.pool, instance.revision, instance.node)
        )
        track.node = instance.node or track.node
        track.pages += read
        track.missed += not read
        if instance.process is not None:
            track.processes.add(instance.process)
        self._span(track, said, now)
        self._incident(instance, said, now)
        self._doubt(instance, said, now)

    def close(self, present: set[str], now: float) -> None:
        """End what belongs to pods that are not there any more."""
        for uid in [uid for uid in self._open if uid not in present]:
            self._end(uid, GONE, now)

    def _span(self, track: Track, said: InstanceVerdict, now: float) -> None:
        last = track.spans[-1] if track.spans else None
        near = last is not None and now - last.last <= self._bridge
        if last is not None and near and (last.verdict, last.reason) == (said.verdict, said.reason):
            last.last = now
            return
        if last is not None and near:
            last.last = now
        track.spans.append(Span(said.verdict, said.reason, said.message, now, now))

    def _incident(self, instance: Instance, said: InstanceVerdict, now: float) -> None:
        found = self._open.get(instance.uid)
        if found is not None and instance.process is not None and found.process != instance.process:
            found.process, found.restarted = instance.process, True
            if found.finding.detector is not Detector.DEAD:  # its processes are what a dead one is about
                self._end(instance.uid, RESTARTED, now)
                found = None
        sick = [f for f in said.findings if f.severity is Severity.SICK]
        if sick and found is None:
            found = self._open[instance.uid] = Incident(
                instance=instance.name,
                uid=instance.uid,
                pool=instance.pool,
                node=instance.node,
                process=instance.process,
                finding=sick[0],
                sick_at=now,
                reasons=[],
            )
            self.incidents.append(found)
        if found is None:
            return
        for each in sick:
            name = f"{each.detector.value}/{each.reason}"
            found.reasons += [] if name in found.reasons else [name]
            found.inferred = found.inferred or (each.detector is Detector.STALLED and each.reason != "Silent")
        if not sick and said.verdict in WELL:
            self._end(instance.uid, RESTARTED if found.restarted else RECOVERED, now)

    def _end(self, uid: str, how: str, now: float) -> None:
        ended = self._open.pop(uid)
        ended.ended, ended.ended_at = how, now

    def _doubt(self, instance: Instance, said: InstanceVerdict, now: float) -> None:
        for each in said.findings:
            if each.severity not in (Severity.SUSPECT, Severity.ADVICE):
                continue
            key = (instance.uid, each.detector.value, each.reason)
            old = self._doubts.get(key)
            if old is not None and old.severity is each.severity and now - old.last <= self._bridge:
                old.last, old.message, old.evidence = now, each.message, each.evidence
                continue
            made = self._doubts[key] = Doubt(
                instance=instance.name,
                severity=each.severity,
                detector=each.detector.value,
                reason=each.reason,
                message=each.message,
                first=now,
                last=now,
                evidence=each.evidence,
            )
            self.doubts.append(made)


def unresolved(timeline: Timeline) -> list[Doubt]:
    """Suspicions that never became an incident of the same detector on the same instance."""
    sick = {(i.instance, reason.partition("/")[0]) for i in timeline.incidents for reason in i.reasons}
    return [
        doubt
        for doubt in timeline.doubts
        if doubt.severity is Severity.SUSPECT and (doubt.instance, doubt.detector) not in sick
    ]
