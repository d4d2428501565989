"""An explanation as lines for people, worst first."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

Json: TypeAlias = Mapping[str, Any]

MOST_TROUBLES: Final = 10
LONGEST: Final = 20
"""Instances that are told one by one; of more, the rest is counted."""
_ORDER: Final = ("Sick", "Suspect", "Unknown", "Starting", "Saturated", "Idle", "Healthy")
_STEPS: Final = (
    "detected",
    "decided",
    "withdrawn",
    "released",
    "drained",
    "deleted",
    "replaced",
    "ready",
    "verified",
    "finished",
)


def lines(report: Json, now: datetime | None = None) -> Iterator[str]:
    """`now` adds ages to the times; None leaves them out, as of a saved file."""
    whose = f"{report['deployment']}" + (f", {report['instance']}" if report["instance"] else "")
    yield f"{whose}: {report['summary']}"
    ready = f"ready {report['ready']}, " if report["ready"] else ""
    yield f"  {ready}healing {report['healing'] or 'unknown'}"
    if report["rehearsal"]:
        yield f"  a rehearsal is on: every duration of the judge is divided by {report['rehearsal']:g}"
    for each in report["pools"] if report["instance"] is None else ():
        counts = ", ".join(
            f"{number} {verdict}" for verdict, number in each.get("verdicts", {}).items() if number
        )
        said = f" ({counts})" if counts else ""
        yield f"  pool {each['name']}: {each.get('ready', 0)} of {each.get('replicas', 0)} serve{said}"
    for each in report["conditions"] if report["instance"] is None else ():
        if each["good"] is False or (each["message"] and each["type"] != "Progressing"):
            yield f"  {each['type']}={each['status']} {each['reason']}{_since(each['since'], now)}: {each['message']}"
    for each in report["rollouts"]:
        if each["state"] != "Done":
            yield f"  rollout of pool {each['pool']}: {each['state']}: {each['message']}"
    for each in report["holds"]:
        yield f"  held back: {each['what']}{_since(each['since'], now)}: {each['message']}"
        yield f"    means: {each['means']}"
        yield f"    opens when: {each['opens']}"
    yield from _instances(report, now)
    for each in report["withheldElsewhere"]:
        yield ""
        yield f"{each['instance']} (not in the list of instances)"
        yield from _withheld(each)
    shown = {one["attempt"]["name"] for one in report["instances"] if one["attempt"]}
    for each in report["attempts"]:
        if each["name"] not in shown:
            yield ""
            yield f"{each['instance']} (gone)"
            yield from _attempt(each, now)
    yield from _past(report, now)
    if report["events"]:
        yield ""
        yield "Events"
        for each in report["events"]:
            often = f" ({each['count']} times)" if each["count"] > 1 else ""
            yield f"  {each['at'] or 'time unknown'} {each['reason']} {each['about']}{often}: {each['message']}"
    if report["instance"] is None and report["watched"]:
        yield ""
        yield from _watched(report)
    yield from troubles_of(report)


def troubles_of(report: Json) -> Iterator[str]:
    """What could not be read, the first few told."""
    for trouble in report["troubles"][:MOST_TROUBLES]:
        yield f"not read: {trouble}"
    if (more := len(report["troubles"]) - MOST_TROUBLES) > 0:
        yield f"not read: {more} more parts, which -o json names"


def printable(line: str) -> str:
    """A line without what would move a terminal's cursor: messages hold texts of engines."""
    return "".join(char if char.isprintable() else " " for char in line)


def _instances(report: Json, now: datetime | None) -> Iterator[str]:
    rank = {verdict: place for place, verdict in enumerate(_ORDER)}
    ordered = sorted(report["instances"], key=lambda one: rank.get(one["verdict"], 0))
    told = [one for one in ordered if report["instance"] or _worth_telling(one)]
    for one in told[:LONGEST]:
        yield ""
        yield from _instance(one, now)
    if len(told) > LONGEST:
        yield ""
        yield f"and {len(told) - LONGEST} more like these: name an instance, or -o json"


def _worth_telling(one: Json) -> bool:
    quiet = one["verdict"] in ("Healthy", "Idle") and not one["findings"]
    return not quiet or bool(one["withheld"] or one["attempt"])


def _instance(one: Json, now: datetime | None) -> Iterator[str]:
    where = ", ".join(f"{name} {one[name]}" for name in ("pool", "node") if one[name])
    why = f" ({one['reason']})" if one["reason"] else ""
    yield f"{one['name']}: {one['verdict']}{why}{_since(one['since'], now)}" + (f"; {where}" if where else "")
    if one["means"] and not one["findings"]:
        yield f"  {one['means']}"
    for each in one["findings"]:
        yield f"  {each['severity']} {each['detector']}/{each['reason']}{_since(each['since'], now)}: {each['message']}"
    if one["signals"]:
        shown = ", ".join(
            f"{k} {v:g}" if isinstance(v, float | int) else f"{k} {v}" for k, v in one["signals"].items()
        )
        yield f"  at the last change: {shown}"
    if one["withheld"]:
        yield from _withheld(one["withheld"])
    if one["attempt"]:
        yield from _attempt(one["attempt"], now)
    told = f"gate {one['withheld']['gate']}:" if one["withheld"] else "\n"
    for each in one["change"]:
        if not each.startswith(told):
            yield f"  what would change it: {each}"


def _withheld(each: Json) -> Iterator[str]:
    yield f"  held back by {each['gate']}: {each['message']}"
    yield f"    means: {each['means']}"
    yield f"    opens when: {each['opens']}"
    yield f"    asked again: {each['askedAgain']}"


def _attempt(each: Json, now: datetime | None) -> Iterator[str]:
    path = f", {each['path']}" if each["path"] else ""
    yield (
        f"  under way: {each['remedy']} for {each['trigger']} (attempt {each['attempt']}{path}), "
        f"{each['phase']}{_since(each['since'], now)}: {each['message']}"
    )
    yield f"    next: {each['next']}"
    if each["givenBackIfItClears"]:
        yield "    nothing of it is final yet: it is given back if the trigger clears"


def _past(report: Json, now: datetime | None) -> Iterator[str]:
    if report["past"]:
        yield ""
        yield "Remediations, newest first"
    elif report["last"]:
        last = report["last"]
        yield ""
        yield (
            f"Last remediation: {last['name']} of {last.get('instance', '')} for {last.get('trigger', '')}: "
            f"{last.get('outcome', 'not over')}{_since(last.get('finishedAt'), now)}"
        )
    for each in report["past"]:
        outcome = each["outcome"] or f"under way ({each['phase'] or 'not begun'})"
        yield f"  {each['name']}: {each['instance']}, {each['remedy']} for {each['trigger']}: {outcome}"
        if each["message"]:
            yield f"    why: {each['message']}"
        if each["means"]:
            yield f"    means: {each['means']}"
        for value in each["evidence"][:6]:
            said = f" ({value['message']})" if value.get("message") else ""
            yield (
                f"    evidence: {value['signal']} {value['value']:g} {value.get('unit', '')}"
                f" from {value.get('samples', 0)} readings{said}"
            )
        steps = [f"{step} {each['timeline'][step]}" for step in _STEPS if step in each["timeline"]]
        if steps:
            yield f"    steps: {', '.join(steps)}"
        for gate in each["closedGates"]:
            yield f"    gate {gate['gate']} was closed: {gate['message']}"
        if each["hasBlackBox"]:
            yield f"    what it left behind: kubectl get remediation {each['name']} -o yaml (status.blackBox)"


def _watched(report: Json) -> Iterator[str]:
    yield "What is watched"
    for each in report["watched"]:
        now, record = each["now"], each["record"]
        line = f"  {each['trigger']:<17} {each['effect']}"
        yield line if not each["built"] else f"{line}: {each['watches']}; {each['figures']}"
        if each["blind"]:
            yield f"  {'':<17} BLIND: {each['blind']}"
        if each["built"] and not each["adviceOnly"] and each["mode"] != "Act":
            yield f"  {'':<17} to trust it before it acts: {each['proof']}"
            if each["query"]:
                yield f"  {'':<17} how near to the line healthy weeks come: {each['query']}"
        if now["sick"] or now["suspect"]:
            held = f", {now['heldBackByMode']} held back by its mode" if now["heldBackByMode"] else ""
            yield f"  {'':<17} now: {now['sick']} sick, {now['suspect']} suspect{held}"
        if record["attempts"]:
            yield (
                f"  {'':<17} attempts so far: {record['attempts']} ({record['cured']} cured, {record['notCured']} not, "
                f"{record['cancelled']} called off)"
            )


def _since(at: str | None, now: datetime | None) -> str:
    if at is None:
        return ""
    if now is None:
        return f" since {at}"
    return f" since {at} ({age((now - datetime.fromisoformat(at)).total_seconds())})"


def age(seconds: float) -> str:
    """A duration in one unit or two: `45 s`, `7 min`, `3 h`, `12 d`."""
    if seconds < 0:
        return "in the future"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
