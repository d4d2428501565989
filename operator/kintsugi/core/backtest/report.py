"""What a backtest found, as one JSON document: times in RFC 3339, seconds as numbers, names in camelCase."""

from collections.abc import Mapping
from typing import Any, Final

from kintsugi.api.model import format_timestamp
from kintsugi.core.backtest.replay import Deed, Held, Replay
from kintsugi.core.backtest.timeline import Doubt, Incident, Track, unresolved
from kintsugi.core.finding import Evidence, Severity
from kintsugi.core.moment import moment

WHAT: Final[Mapping[str, str]] = {
    "Withdraw": "withdraw",
    "Restore": "putBack",
    "Release": "release",
    "Evict": "evict",
}
HOLDING: Final = frozenset({"hold", "removalTime"})
"""What is no refusal but the way that every remediation goes."""

CANARIES: Final = (
    "stall: history answers no canary. One that the operator would have sent to an engine with work counts as "
    "unanswered while the page shows no step, since an answer takes one; to an idle engine none is imagined, so a "
    "hang without work is not found, and an engine whose counters lie is taken for hung"
)
NO_CANARIES: Final = "stall: no canary is imagined, so a stall stays a suspicion"
ROUNDS: Final = (
    "errors, starved admission and corrupted output: what convinces are the answers to canaries and probes, and none "
    "can be sent: they stay suspicions"
)
PODS: Final = (
    "dead, device health and starts over budget: the pods' own states are not in this history (kintsugi record keeps "
    "them); a process is taken for Ready since its first page here, unless it had been running for two hours by then"
)


def report(made: Replay, source: str) -> dict[str, Any]:
    """The document. `source` says in words where the history is from."""
    timeline, terms = made.timeline, made.terms
    return {
        "deployment": terms.deployment.metadata.name,
        "source": source,
        "from": _when(made.first),
        "to": _when(made.last),
        "everySeconds": terms.every,
        "passes": made.passes,
        "pages": made.pages,
        "incidents": [_incident(each, made) for each in timeline.incidents],
        "falsePositiveCandidates": [
            {"instance": each.instance, "reason": each.reasons[0], "from": _when(each.sick_at)}
            for each in timeline.incidents
            if each.candidate
        ],
        "suspicions": [_doubt(each) for each in unresolved(timeline)],
        "advice": [_doubt(each) for each in timeline.doubts if each.severity is Severity.ADVICE],
        "actions": [_deed(each) for each in made.deeds],
        "withheld": [_held(each) for each in made.held if each.gate not in HOLDING],
        "pools": [
            {"pool": pool, "finding": finding, "from": _when(first), "to": _when(last)}
            for (pool, finding), (first, last) in sorted(made.pool_findings.items())
        ],
        "instances": [_track(each, made) for each in timeline.tracks.values()],
        "data": dict(made.data),
        "missing": made.missing,
        "notReplayed": not_replayed(made),
        "assumed": assumptions(made),
        "refused": list(made.refused),
    }


def not_replayed(made: Replay) -> list[str]:
    """What this history can't show, in words."""
    found = [CANARIES if made.terms.infer else NO_CANARIES, ROUNDS]
    return [*found, PODS] if made.assumed else found


def assumptions(made: Replay) -> list[str]:
    """What was assumed, in words."""
    room = (
        "a node has room for one more instance" if made.terms.free_gpu else "no GPU is free for a replacement"
    )
    return [
        f"{room}; a replacement is Ready after {made.terms.start_seconds:.0f} s, and well",
        "an engine that would have been withdrawn still had its traffic: how long it drains is not known",
    ]


def _incident(each: Incident, made: Replay) -> dict[str, Any]:
    end = each.ended_at if each.ended_at is not None else made.last
    within = [d for d in made.deeds if d.uid == each.uid and d.time >= each.sick_at]
    if each.ended_at is not None:
        within = [d for d in within if d.time <= each.ended_at]
    held = [
        h
        for h in made.held
        if h.instance == each.instance and h.last >= each.sick_at and (end is None or h.first <= end)
    ]
    return {
        "instance": each.instance,
        "pool": each.pool,
        "node": each.node,
        "detector": each.finding.detector.value,
        "reason": each.finding.reason,
        "reasons": each.reasons,
        "message": each.finding.message,
        "symptomSince": _when(each.finding.since),
        "from": _when(each.sick_at),
        "to": _when(each.ended_at),
        "ended": each.ended,
        "evidence": _evidence(each.finding.evidence),
        "restsOnUnsentCanaries": each.inferred,
        "falsePositiveCandidate": each.candidate,
        "wouldHave": [{"time": _when(d.time), "action": WHAT[d.what]} for d in within],
        "withheld": [_held(h) for h in held if h.gate not in HOLDING],
        "attempts": [
            {"id": id_, "state": state, "message": message}
            for id_, (state, message) in made.outcomes.items()
            if id_ in {d.attempt for d in within}
        ],
    }


def _doubt(each: Doubt) -> dict[str, Any]:
    return {
        "instance": each.instance,
        "detector": each.detector,
        "reason": each.reason,
        "message": each.message,
        "from": _when(each.first),
        "to": _when(each.last),
        "evidence": _evidence(each.evidence),
    }


def _evidence(found: tuple[Evidence, ...]) -> list[dict[str, Any]]:
    return [
        {"signal": e.signal, "value": round(e.value, 4), "unit": e.unit, "samples": e.samples} for e in found
    ]


def _deed(each: Deed) -> dict[str, Any]:
    return {
        "time": _when(each.time),
        "action": WHAT[each.what],
        "instance": each.instance,
        "attempt": each.attempt,
        "trigger": each.trigger,
        "remedy": each.remedy,
        "why": each.why,
        "gates": [{"gate": gate, "message": message} for gate, message in each.gates],
    }


def _held(each: Held) -> dict[str, Any]:
    return {
        "instance": each.instance,
        "gate": each.gate,
        "message": each.message,
        "from": _when(each.first),
        "to": _when(each.last),
    }


def _track(each: Track, made: Replay) -> dict[str, Any]:
    return {
        "name": each.name,
        "uid": each.uid,
        "pool": each.pool,
        "node": each.node,
        "processes": len(each.processes),
        "pages": each.pages,
        "passesWithoutPage": each.missed,
        "canariesNotSent": made.canaries.get(each.uid, 0),
        "verdicts": [
            {
                "verdict": span.verdict.value,
                "reason": span.reason,
                "message": span.message,
                "from": _when(span.first),
                "to": _when(span.last),
            }
            for span in each.spans
        ],
    }


def _when(seconds: float | None) -> str | None:
    return None if seconds is None else format_timestamp(moment(round(seconds, 3)))
