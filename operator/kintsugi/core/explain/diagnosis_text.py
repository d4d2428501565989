"""A diagnosis as lines for people."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from kintsugi.core.explain.text import troubles_of

Json: TypeAlias = Mapping[str, Any]

_MARK: Final = {"suspect": "SUSPECT", "unknown": "unknown", "ok": "ok"}
MOST_LEFT_OUT: Final = 5


def diagnosis_lines(report: Json) -> Iterator[str]:
    """Every step with its numbers; the cure where it is suspect, and how to know where it is unknown."""
    seen, counts = report["seen"], report["counts"]
    pages = f"{seen['pages']} pages of {seen['instancesRead']} instances over {seen['windowSeconds']:g} s"
    what = [pages if seen["pages"] else "no pages"]
    what += ["status"] if seen["status"] else []
    what += ["spec"] if seen["spec"] else []
    yield (
        f"{report['deployment'] or 'saved pages'}: {counts['suspect']} suspect, {counts['unknown']} unknown, "
        f"{counts['ok']} ok (seen: {', '.join(what)})"
    )
    for each in report["symptoms"]:
        yield ""
        yield each["question"]
        for step in each["steps"]:
            yield f"  {_MARK[step['state']]:<8} {step['claim']} {step['question']} {step['said']}"
            if step["state"] == "suspect":
                yield f"           true: {step['truth']}"
                yield f"           cure: {step['cure']}"
            elif step["state"] == "unknown":
                yield f"           to know it: {step['cure']}"
    left_out = seen["leftOut"]
    if left_out:
        yield ""
    for why in left_out[:MOST_LEFT_OUT]:
        yield f"left out: {why}"
    if len(left_out) > MOST_LEFT_OUT:
        yield f"left out: {len(left_out) - MOST_LEFT_OUT} more"
    yield from troubles_of(report)
    yield "Nothing was changed."
