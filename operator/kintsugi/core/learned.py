"""What the judge has learned slowly, as a plain JSON value: step-cost models, own baselines, fragmentation references.

Nothing that is evidence of a fault is in it: after a restart every window starts empty, but an instance that was
already slow is not learned as normal, and what a process had after its warm-up stays known.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kintsugi.core.detect.cost_model import CostModel, features
from kintsugi.core.evidence import Kept, Memory, ProcessEvidence
from kintsugi.core.snapshot import ProcessKey

VERSION: Final = 1
MOVED: Final = 0.1
"""A step cost or a baseline that moved by less than this share is not worth a write."""
_TYPICAL: Final = (features(1, 0, 0.1), features(16, 256, 0.3), features(64, 2048, 0.7))
"""Contents of a step at which two cost models are compared: one request, a busy engine, a full one."""
_DIGITS: Final = 7
"""Significant digits that are kept: those of a float32 (slow paper §5)."""


def learned(memory: Memory) -> dict[str, Any]:
    """The learned part of `memory`: lists, dicts, strings and finite numbers only."""
    models = [
        {"pool": pool, "revision": revision, "numbers": [_short(number) for number in model.exported()]}
        for (pool, revision), model in sorted(memory.slow.models.items())
    ]
    known = {key: Kept(p.slow.baseline, _references_of(p)) for key, p in memory.processes.items()}
    processes = [
        {
            "uid": key.uid,
            "startedAt": key.started_at,
            "baseline": None if kept.baseline is None else _short(kept.baseline),
            "references": {
                source: {worker: _short(value) for worker, value in sorted(workers.items())}
                for source, workers in sorted(kept.references.items())
            },
        }
        for key, kept in sorted(
            (memory.kept | known).items(), key=lambda item: (item[0].uid, item[0].started_at)
        )
        if kept.baseline is not None or kept.references
    ]
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


def worth_writing(stored: Memory, now: Memory) -> bool:
    """Whether losing `now` for `stored` (a memory that `from_learned` gave) would lose something.

    True for a process whose baseline or reference is not stored, a baseline that moved by 10 %, and a usable model
    that is new or says a step cost that differs by 10 %. What is stored and gone is no reason.
    """
    return any(
        _model_moved(stored.slow.models.get(key), model) for key, model in now.slow.models.items()
    ) or any(_process_moved(stored.kept.get(key), process) for key, process in now.processes.items())


def _model_moved(old: CostModel | None, new: CostModel) -> bool:
    for content in _TYPICAL:
        cost = new.cost(content)
        known = old.cost(content) if old is not None and cost is not None else None
        if cost is not None and (known is None or abs(cost / known - 1.0) > MOVED):
            return True
    return False


def _process_moved(old: Kept | None, new: ProcessEvidence) -> bool:
    baseline, known = new.slow.baseline, old.baseline if old is not None else None
    if baseline is not None and (known is None or abs(baseline - known) > MOVED):
        return True
    stored = old.references if old is not None else {}
    return any(
        worker not in stored.get(source, {})
        for source, workers in _references_of(new).items()
        for worker in workers
    )


def _references_of(process: ProcessEvidence) -> dict[str, dict[str, float]]:
    """Fragmentation after warm-up, percent, by source and worker, as far as it is known."""
    found = {
        source: {name: w.reference for name, w in state.workers.items() if w.reference is not None}
        for source, state in process.fragmentation.items()
    }
    return {source: workers for source, workers in found.items() if workers}


def _short(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


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
