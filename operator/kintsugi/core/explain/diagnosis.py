"""The article's troubleshooting list, walked with evidence: leak, fallen throughput, wrong output."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kintsugi.core.explain.drop import drop
from kintsugi.core.explain.leak import leak
from kintsugi.core.explain.scene import Scene, Step
from kintsugi.core.explain.wrong import wrong

Json: TypeAlias = dict[str, Any]

LISTS: Final[Mapping[str, tuple[str, Callable[[Scene], list[Step]]]]] = {
    "leak": ("Does memory leak?", leak),
    "drop": ("Why has throughput fallen?", drop),
    "wrong": ("Why is the output wrong?", wrong),
}
"""By symptom: the question, and its steps."""


def diagnosed(scene: Scene, symptoms: tuple[str, ...] = tuple(LISTS)) -> Json:
    """Every step of the lists asked for. Unknown is said, and never counts as well."""
    left_out = [why for pool in (scene.traffic or {}).values() for why in pool.left_out]
    lists = {name: [_step(each, len(left_out)) for each in LISTS[name][1](scene)] for name in symptoms}
    counted = Counter(step["state"] for steps in lists.values() for step in steps)
    engines = scene.engines()
    return {
        "deployment": scene.name,
        "seen": {
            "status": scene.case is not None and scene.case.has_status,
            "spec": scene.case is not None and scene.case.spec is not None,
            "instancesRead": len(engines),
            "pages": sum(len(one.looks) for one in engines),
            "windowSeconds": round(max((one.seconds for one in engines), default=0.0), 1),
            "leftOut": left_out,
        },
        "counts": {state: counted[state] for state in ("suspect", "unknown", "ok")},
        "symptoms": [
            {"symptom": name, "question": LISTS[name][0], "steps": steps} for name, steps in lists.items()
        ],
        "troubles": [] if scene.case is None else list(scene.case.troubles),
    }


OF_PAGES: Final = frozenset(
    {"gpu-memory", "orphaned-blocks", "cache-hit-rate", "preemptions", "demand", "errors", "nan"}
)
"""Steps that pages answer: what was not read is not well on that account."""


def _step(each: Step, left_out: int) -> Json:
    about = ""
    if left_out and each.state == "ok" and each.name in OF_PAGES:
        about = f" (not of {left_out} that were left out)"
    return {
        "claim": each.claim,
        "step": each.name,
        "question": each.question,
        "state": each.state,
        "said": each.said + about,
        "numbers": dict(each.numbers),
        "truth": each.truth,
        "cure": each.cure,
    }
