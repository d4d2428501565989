"""One instance explained: verdict, findings, what holds back, what is under way, and what would change that."""

from typing import Any, Final, TypeAlias

from kintsugi.api.model import format_timestamp
from kintsugi.api.status import ActiveRemediation, FindingStatus, InstanceStatus, WithheldAction
from kintsugi.core.explain.case import Case
from kintsugi.core.explain.findings import UNKNOWN_FINDING, finding_words
from kintsugi.core.explain.gates import gate_words
from kintsugi.core.explain.phases import NEXT, OUTCOMES, UNDONE_UNTIL

Json: TypeAlias = dict[str, Any]

_WELL: Final = frozenset({"Healthy", "Idle", "Saturated"})


def instances_of(case: Case, only: str | None = None) -> list[Json]:
    """Every instance in the status, or the one of that name."""
    withheld = {entry.instance: entry for entry in case.status.remediations.withheld}
    active = {a.uid: a for a in case.status.remediations.active}
    return [
        _instance(case, one, withheld.get(one.name), active.get(one.uid) if one.uid else None)
        for one in case.status.instances
        if only is None or one.name == only
    ]


def _instance(
    case: Case, one: InstanceStatus, held: WithheldAction | None, active: ActiveRemediation | None
) -> Json:
    words = finding_words(one.reason)
    return {
        "name": one.name,
        "pool": one.pool,
        "node": one.node,
        "revision": one.revision,
        "verdict": one.verdict,
        "reason": one.reason,
        "means": "" if words is UNKNOWN_FINDING else words.means,
        "since": when(one.since),
        "findings": [_finding(case, each) for each in one.findings],
        "signals": {} if one.signals is None else one.signals.dump(),
        "withheld": None if held is None else withheld_of(case, held),
        "attempt": None if active is None else attempt_of(active),
        "change": _change(case, one, held, active),
    }


def _finding(case: Case, each: FindingStatus) -> Json:
    words = finding_words(each.reason)
    return {
        "detector": each.detector,
        "reason": each.reason,
        "severity": each.severity.capitalize(),
        "message": each.message,
        "since": when(each.since),
        "mode": _mode(case, each.detector),
        "means": "" if words is UNKNOWN_FINDING else words.means,
        "then": "" if words is UNKNOWN_FINDING else words.then,
    }


def withheld_of(case: Case, held: WithheldAction) -> Json:
    """A closed gate in words, and when it is asked again."""
    words = gate_words(held.gate)
    return {
        "instance": held.instance,
        "gate": held.gate,
        "message": held.message,
        "means": words.means,
        "opens": words.opens,
        "who": words.who,
        "nextCheck": when(held.next_check),
        "askedAgain": _asked_again(case, held),
    }


def _asked_again(case: Case, held: WithheldAction) -> str:
    every = "in every pass"
    if case.spec is not None:
        every = f"in every pass, each {case.spec.monitoring.scrape_interval_seconds:g} s"
    return every if held.next_check is None else f"{every}; it may open by itself at {when(held.next_check)}"


def attempt_of(active: ActiveRemediation) -> Json:
    """An attempt under way, and what comes next."""
    over = active.outcome is not None
    return {
        "name": active.name,
        "instance": active.instance,
        "trigger": active.trigger,
        "remedy": active.remedy,
        "attempt": active.attempt,
        "phase": active.phase,
        "since": when(active.reserved_at),
        "path": active.path,
        "replacement": active.replacement_name,
        "message": active.message,
        "outcome": active.outcome,
        "next": NEXT["Done"] if over else NEXT.get(active.phase, "not known to this version"),
        "givenBackIfItClears": not over and (active.phase in UNDONE_UNTIL or not _touched(active)),
        "means": OUTCOMES.get(active.outcome or "", ""),
    }


def _touched(active: ActiveRemediation) -> bool:
    return active.released_at is not None or active.evicting_since is not None


def _change(
    case: Case, one: InstanceStatus, held: WithheldAction | None, active: ActiveRemediation | None
) -> list[str]:
    """What would have to change for something to happen, in sentences."""
    said: list[str] = []
    if active is not None:
        said.append(f"{active.remedy} is under way ({active.phase}): {attempt_of(active)['next']}")
    if held is not None:
        said.append(f"gate {held.gate}: {gate_words(held.gate).opens}")
    if one.verdict in _WELL and not one.findings:
        return said or ["nothing: it is well, and judged in every pass"]
    for each in one.findings:
        words, mode = finding_words(each.reason), _mode(case, each.detector)
        then = words.then if words is not UNKNOWN_FINDING else ""
        if then:
            only = f" (its trigger is on {mode})" if mode not in ("Act", "") else ""
            said.append(f"{each.reason}: {then}{only}")
    if not one.findings and one.verdict not in _WELL:
        words = finding_words(one.reason)
        if words is not UNKNOWN_FINDING:
            said.append(f"{one.reason}: {words.then}")
        elif one.verdict == "Starting":
            said.append("it becomes Ready, or goes over its start budget")
        elif one.verdict == "Unknown":
            said.append("it can be read again: until then it is neither acted on nor called well")
    if one.verdict == "Sick" and held is None and active is None:
        said.append("the next pass decides: no gate is noted as closed")
    return list(dict.fromkeys(said))


def _mode(case: Case, detector: str) -> str:
    """The mode in force; '' where the spec can't be read, or for findings that no trigger owns."""
    if case.spec is None or detector in ("data", "load"):
        return ""
    return case.spec.healing.mode_of(detector)


def when(moment: Any) -> str | None:
    """A timestamp as text, or None."""
    return None if moment is None else format_timestamp(moment)
