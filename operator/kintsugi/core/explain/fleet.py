"""A whole deployment explained, as plain JSON values."""

from typing import Any, Final, TypeAlias

from kintsugi.api.objects import Remediation
from kintsugi.core.conditions import GOOD_WHEN
from kintsugi.core.explain.case import Case
from kintsugi.core.explain.gates import gate_words
from kintsugi.core.explain.instance import attempt_of, instances_of, when, withheld_of
from kintsugi.core.explain.phases import OUTCOMES
from kintsugi.core.explain.watched import watched

Json: TypeAlias = dict[str, Any]

MOST_PAST: Final = 10
MOST_EVENTS: Final = 15
QUIET: Final = frozenset({"Healthy", "Idle", "Saturated"})


def explained(case: Case, instance: str | None = None) -> Json:
    """Everything that is known of `case`, or of what touches one instance of it."""
    status = case.status
    found = instances_of(case, instance)
    named = {one["name"] for one in found}
    attempts = [attempt_of(a) for a in status.remediations.active if instance in (None, a.instance)]
    stray = [
        w for w in status.remediations.withheld if w.instance not in named and instance in (None, w.instance)
    ]
    past = [r for r in case.remediations if instance in (None, r.spec.instance.name, _replacement(r))]
    events = [e for e in case.events if instance is None or e.about == instance or instance in e.message]
    report: Json = {
        "deployment": case.full_name,
        "instance": instance,
        "summary": "",
        "ready": status.ready,
        "why": status.why,
        "healing": status.healing,
        "generation": case.generation,
        "observedGeneration": status.observed_generation,
        "conditions": [_condition(each) for each in status.conditions],
        "pools": [each.dump() for each in status.pools],
        "holds": holds(case),
        "rollouts": [{**each.dump(), "message": each.message} for each in status.rollouts],
        "rehearsal": status.rehearsal.speed_up if status.rehearsal else None,
        "instances": found,
        "withheldElsewhere": [withheld_of(case, each) for each in stray],
        "attempts": attempts,
        "last": status.remediations.last.dump() if status.remediations.last else None,
        "past": [_past(each) for each in past[:MOST_PAST]],
        "watched": watched(case),
        "events": [
            {
                "at": e.at,
                "type": e.kind,
                "reason": e.reason,
                "about": e.about,
                "count": e.count,
                "message": e.message,
            }
            for e in events[:MOST_EVENTS]
        ],
        "troubles": list(case.troubles),
    }
    report["summary"] = _summary(case, report)
    return report


def _summary(case: Case, report: Json) -> str:
    if not case.has_status:
        return "no operator has written a status yet: nothing is known of it (does one run, and watch this namespace?)"
    if report["instance"] and not report["instances"]:
        return "not among its instances: see its remediations and events"
    behind = ""
    if case.generation is not None and case.status.observed_generation != case.generation:
        behind = " (of an older spec: the operator has not taken in the newest one yet)"
    counts: dict[str, int] = {}
    for one in report["instances"]:
        counts[one["verdict"]] = counts.get(one["verdict"], 0) + 1
    bad = {verdict: n for verdict, n in counts.items() if verdict not in QUIET}
    wrong = [c["type"] for c in report["conditions"] if c["good"] is False]
    total = sum(counts.values())
    noted = any(each["findings"] for each in report["instances"])
    if not bad and not wrong and not report["attempts"] and not report["holds"]:
        what = "it is" if report["instance"] else f"{total} instances are"
        if total:
            return f"nothing is wrong: {what} well{', with advice' if noted else ''}{behind}"
        return f"nothing is wrong, and there is no instance{behind}"
    parts = [f"{n} of {total} {verdict}" for verdict, n in sorted(bad.items())]
    parts += [f"{len(report['attempts'])} remediations under way"] if report["attempts"] else []
    parts += (
        [f"healing is held back: {', '.join(h['what'] for h in report['holds'])}"] if report["holds"] else []
    )
    parts += [f"conditions not as they should be: {', '.join(wrong)}"] if wrong else []
    return "; ".join(parts) + behind


def holds(case: Case) -> list[Json]:
    """What holds healing back for more than one instance: pauses, storms, breakers."""
    status, found = case.status, []
    paused = case.spec.healing.pause_requests if case.spec is not None else ()
    condition = next((c for c in status.conditions if c.type == "HealingAllowed"), None)
    if paused or (condition is not None and condition.reason == "Paused"):
        message = f"pauseRequests: {', '.join(paused)}" if paused else condition.message if condition else ""
        found.append(_hold("paused", "", message, None))
    for storm in status.remediations.storms:
        where = f"pool {storm.pool}" if storm.pool else "all instances of this operator"
        message = (
            f"{storm.state}, {len(storm.sick)} instances of {where}, the last at {when(storm.last_sick_at)}"
        )
        found.append(_hold("storm", storm.pool, message, when(storm.since)))
    for breaker in status.remediations.breakers:
        message = f"{breaker.reason}, revision {breaker.revision}: {breaker.message}"
        found.append(_hold("breaker", breaker.pool, message, when(breaker.since)))
    return found


def _hold(gate: str, pool: str, message: str, since: str | None) -> Json:
    words = gate_words(gate)
    return {
        "what": gate,
        "pool": pool,
        "since": since,
        "message": message,
        "means": words.means,
        "opens": words.opens,
    }


def _condition(each: Any) -> Json:
    wanted = GOOD_WHEN.get(each.type)
    good = None if wanted is None else each.status == wanted
    if each.type == "Progressing" and each.reason == "RolloutStalled":
        good = False
    if each.type == "HealingAllowed" and each.reason.startswith("Mode"):
        good = None  # as its owner wants it
    return {
        "type": each.type,
        "status": each.status,
        "reason": each.reason,
        "message": each.message,
        "since": when(each.last_transition_time),
        "good": good,
    }


def _replacement(record: Remediation) -> str:
    return record.status.replacement.name if record.status.replacement else ""


def _past(record: Remediation) -> Json:
    """Why a pod was replaced, or why not, from its Remediation."""
    spec, status = record.spec, record.status
    closed = [gate for gate in status.gates if not gate.open]
    return {
        "name": record.metadata.name,
        "instance": spec.instance.name,
        "pool": spec.pool,
        "trigger": spec.trigger,
        "remedy": spec.remedy,
        "attempt": spec.attempt,
        "phase": status.phase,
        "outcome": status.outcome,
        "means": OUTCOMES.get(status.outcome or "", ""),
        "message": status.message,
        "replacement": _replacement(record) or None,
        "streamsCut": status.streams_cut,
        "timeline": status.timeline.dump(),
        "evidence": [each.dump() for each in status.evidence],
        "closedGates": [{"gate": gate.name, "message": gate.message} for gate in closed],
        "hasBlackBox": status.black_box is not None,
    }
