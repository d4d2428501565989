"""What `collapsed` says of one instance, in words and numbers."""

from collections.abc import Mapping

from kintsugi.core.detect.collapsed import CANARIES, QueueState, RankQueue
from kintsugi.core.detect.stalled import RankClock
from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.times import Times


def collapsed_findings(
    state: QueueState,
    clocks: Mapping[str, RankClock],
    fresh: bool,
    mono: float,
    now: float,
    times: Times,
) -> list[Finding]:
    """The statement on each starved rank. A suspicion that the admission clock has too, it tells alone."""
    found: list[Finding] = []
    for name, queue in sorted(state.ranks.items()):
        if not queue.sick and not queue.starved:
            continue
        clock = clocks.get(name)
        told_already = clock is not None and clock.admit_ping is not None
        if queue.sick or not told_already:
            found.append(_finding(name, state, queue, fresh, mono, now, times))
    return found


def _finding(
    name: str, state: QueueState, queue: RankQueue, fresh: bool, mono: float, now: float, times: Times
) -> Finding:
    rows = queue.rows
    waiting = rows[-1].queue if rows else None
    waited = queue.waited(mono, times)
    text = f"rank {name} lets hardly anybody in though slots and KV cache are free"
    if waiting is not None:
        text = f"{waiting:.0f} requests wait while {text}"
    text += f"; {waited} of {len(queue.asks)} canaries waited in vain"
    evidence = [Evidence("canaries in vain", float(waited), "count", len(queue.asks))]
    if rows:
        evidence += [
            Evidence("requests waiting", sum(r.queue for r in rows) / len(rows), "count", len(rows)),
            Evidence("KV usage", 100 * max(r.kv_usage for r in rows), "%", len(rows)),
        ]
    if queue.prefill is not None:
        evidence.append(Evidence("time spent in prefills", 100 * queue.prefill, "%", len(rows)))
    since = queue.since if queue.since is not None else now

    def told(reason: str, severity: Severity, more: str) -> Finding:
        sick = severity is Severity.SICK
        return Finding(
            Detector.COLLAPSED, reason, severity, f"{text}{more}", since, tuple(evidence), removable=sick
        )

    if queue.sick and fresh:
        return told("StarvedAdmission", Severity.SICK, "")
    if queue.sick:
        return told("StarvedUnknown", Severity.SUSPECT, "; it can't be read now")
    if state.shared:
        return told(
            "StarvedEverywhere", Severity.ADVICE, "; siblings show it too, so no new pod would cure it"
        )
    if state.alone and waited >= CANARIES:
        more = "; some were served late, and it has no sibling to compare with: a person is asked"
        return told("StarvedAlone", Severity.SUSPECT, more)
    return told("StarvedSuspected", Severity.SUSPECT, f"; {CANARIES} of them decide")
