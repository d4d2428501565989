"""What the judge has learned slowly, as a plain JSON value: step-cost models, own baselines, fragmentation references.

Nothing that is evidence of a fault is in it: after a restart every window starts empty, but an instance that was
already slow is not learned as normal, and what a process had after its warm-up stays known.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kintsugi.core.detect.cost_model import CostModel
from kintsugi.core.evidence import Kept, Memory
from kintsugi.core.snapshot import ProcessKey

VERSION: Final = 1


def learned(memory: Memory) -> dict[str, Any]:
    """The learned part of `memory`: lists, dicts, strings and finite numbers only."""
    models = [
        {"pool": pool, "revision": revision, "numbers": model.exported()}
        for (pool, revision), model in sorted(memory.slow.models.items())
    ]
    processes = []
    for key, process in sorted(memory.processes.items(), key=lambda item: (item[0].uid, item[0].started_at)):
        references = {
            source: known
            for source, state in sorted(process.fragmentation.items())
            if (
                known := {w: s.reference for w, s in sorted(state.workers.items()) if s.reference is not None}
            )
        }
        if process.slow.baseline is not None or references:
            processes.append(
                {
                    "uid": key.uid,
                    "startedAt": key.started_at,
                    "baseline": process.slow.baseline,
                    "references": references,
                }
            )
    return {"version": VERSION, "models": models, "processes": processes}


def from_learned(value: object) -> Memory:
    """A new memory with what `learned` gave. Whatever can't be read is left out, to be learned anew; never raises."""
    memory = Memory()
    if not isinstance(value, Mapping) or value.get("version") != VERSION:
        return memory
    for item in _items(value.get("models")):
        pool, revision, numbers = item.get("pool"), item.get("revision"), item.get("numbers")
        if isinstance(pool, str) and isinstance(revision, str) and isinstance(numbers, list):
            model = _model(numbers)
            if model is not None:
                memory.slow.models[pool, revision] = model
    for item in _items(value.get("processes")):
        uid, started = item.get("uid"), _finite(item.get("startedAt"))
        if isinstance(uid, str) and started is not None:
            memory.kept[ProcessKey(uid, started)] = Kept(_finite(item.get("baseline")), _references(item))
    return memory


def _items(value: object) -> Iterable[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _finite(value: object) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number and isinstance(value, int | float) else None


def _model(numbers: list[Any]) -> CostModel | None:
    plain = [_finite(number) for number in numbers]
    try:
        return CostModel.imported([number for number in plain if number is not None])
    except ValueError:
        return None


def _references(item: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    written = item.get("references")
    for source, workers in written.items() if isinstance(written, Mapping) else ():
        for worker, value in workers.items() if isinstance(workers, Mapping) else ():
            number = _finite(value)
            if number is not None:
                found.setdefault(str(source), {})[str(worker)] = number
    return found
