"""What the stall clocks say: findings with their evidence, per rank, and of an API server that went silent."""

from typing import Final, NamedTuple

from kintsugi.core.detect.stalled import CANARIES_NEEDED, Limits, RankClock, StallState, blocked, convinced
from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.sample import RankSample, Sample
from kintsugi.core.times import Times

MAX_FINDINGS: Final = 4
"""Findings on the ranks of one instance that are told, worst first."""


class Reach(NamedTuple):
    """How well the engine can be read: within the gap that evidence may have, and recently enough to remove it."""

    fresh: bool
    recent: bool


_UNSEEN: Final = Reach(fresh=False, recent=False)


def findings(
    state: StallState, sample: Sample | None, reach: Reach, times: Times, limit: Limits
) -> list[Finding]:
    """What the clocks say, worst rank first. Without a page of late only a suspicion is left."""
    found: list[Finding] = []
    speaking = [item for item in state.ranks.items() if _speaks(item[1], times)]
    if not speaking:
        return found
    everywhere = all(convinced(clock, limit) for clock in state.ranks.values() if not clock.gone)
    for name, clock in sorted(speaking, key=lambda item: (-item[1].flat, item[0])):
        rank = sample.rank(name) if sample is not None else None
        seen = reach if clock.missing_since is None else _UNSEEN
        if clock.flat >= times.canary_first:
            found.append(_flat_finding(name, clock, rank, seen, everywhere, limit))
        if clock.stale:
            text = f"rank {name} answers, but its counters stand still: its gauges are not to be believed"
            found.append(
                Finding(Detector.STALLED, "StaleGauges", Severity.ADVICE, text, clock.stale_since or 0.0)
            )
        if _admits_nobody(clock, times):
            found.append(_admission_finding(name, clock, rank, seen, limit))
    return sorted(found, key=lambda finding: -finding.severity)[:MAX_FINDINGS]


def _speaks(clock: RankClock, times: Times) -> bool:
    """Whether there is anything to be said of a rank; of most there is not."""
    return clock.flat >= times.canary_first or clock.stale or _admits_nobody(clock, times)


def _admits_nobody(clock: RankClock, times: Times) -> bool:
    return clock.admit >= times.not_admitting_canary and clock.admit_ping is not None


def _numbers(rank: RankSample | None) -> tuple[Evidence, ...]:
    if rank is None:
        return ()
    pairs = (("running", rank.running), ("waiting", rank.waiting), ("engine steps", rank.steps))
    return tuple(Evidence(name, value, "count", 1) for name, value in pairs if value is not None)


def _canary_times(clock: RankClock) -> list[Evidence]:
    """When the first canaries that got no answer were sent; nothing where no step of this process was ever seen."""
    if clock.last_progress is None:
        return []
    began = clock.last_progress
    sent = [ping.sent - began for ping in clock.pings if ping.unanswered][:CANARIES_NEEDED]
    return [
        Evidence(f"canary {number} sent, after the last step", seconds, "s", 1)
        for number, seconds in enumerate(sent, 1)
    ]


def _flat_finding(
    name: str,
    clock: RankClock,
    rank: RankSample | None,
    reach: Reach,
    everywhere: bool,
    limit: Limits,
) -> Finding:
    unanswered = clock.unanswered()
    sick = convinced(clock, limit) and reach.fresh
    evidence = (
        Evidence(f"seconds without a step of rank {name}", clock.flat, "s", unanswered),
        Evidence("canaries unanswered", float(unanswered), "count", len(clock.pings)),
        *_canary_times(clock),
        *_numbers(rank),
    )
    text = f"rank {name} has work and made no step for {clock.flat:.0f} s, {unanswered} canaries unanswered"
    if clock.no_evidence:
        text += f"; a canary said nothing ({clock.no_evidence})"
    return Finding(
        detector=Detector.STALLED,
        reason="Stalled" if reach.fresh else "StallUnknown",
        severity=Severity.SICK if sick else Severity.SUSPECT,
        message=text,
        since=clock.flat_since or 0.0,
        evidence=evidence,
        removable=sick and reach.recent and clock.flat >= limit.remove,
        serves_nothing=sick and everywhere,
        silent_seconds=clock.flat,
    )


def _admission_finding(
    name: str, clock: RankClock, rank: RankSample | None, reach: Reach, limit: Limits
) -> Finding:
    sick = blocked(clock, limit) and reach.fresh
    text = (
        f"rank {name} steps, but admitted nobody for {clock.admit:.0f} s though slots and KV cache are free"
    )
    return Finding(
        detector=Detector.STALLED,
        reason="NotAdmitting" if reach.fresh else "StallUnknown",
        severity=Severity.SICK if sick else Severity.SUSPECT,
        message=text + ", and a canary waits",
        since=clock.admit_since or 0.0,
        evidence=(Evidence("seconds without an admission", clock.admit, "s", 1), *_numbers(rank)),
        removable=sick and reach.recent and clock.admit >= limit.admit_remove,
    )


def silent_finding(state: StallState, ready: bool, siblings_readable: float, now: float) -> Finding:
    """Silent: the API server accepts connections and says nothing for `Times.silent`; it is sick where the kubelet and
    our reach agree (hang §1.3)."""
    sick = not ready and siblings_readable >= 0.5
    text = f"the API server accepts connections and answered nothing for {state.silent:.0f} s"
    if not sick:
        text += "; the kubelet calls it ready" if ready else "; most siblings can't be read either"
        text += ", so the fault may be on our path"
    return Finding(
        detector=Detector.STALLED,
        reason="Silent",
        severity=Severity.SICK if sick else Severity.ADVICE,
        message=text,
        since=now - state.silent,
        evidence=(Evidence("seconds of silence", state.silent, "s", 1),),
        removable=sick,
        serves_nothing=sick,
        silent_seconds=state.silent,
    )
