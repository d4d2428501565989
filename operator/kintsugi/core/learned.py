"""What the judge has learned slowly, as a plain JSON value: step-cost models, and what each process was like at its start.

Nothing that is evidence of a fault is in it: after a restart every window starts empty, but an instance that was
already slow is not learned as normal, and what a process had, used and answered after its warm-up stays known.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kintsugi.core.detect.cost_model import CostModel, features
from kintsugi.core.detect.growing import Source
from kintsugi.core.detect.slow import ModelKey
from kintsugi.core.evidence import Memory, kept_of
from kintsugi.core.kept import Answers, Kept, Mark
from kintsugi.core.known_answers import NAMES, QUESTIONS
from kintsugi.core.snapshot import Answer, ProcessKey
from kintsugi.core.times import Times

VERSION: Final = 3
"""2 knew one way of counting prompt tokens. 1 said nothing by which a process that started again inside its container
could be told from the one before."""
_READ: Final = (2, VERSION)
MOVED: Final = 0.1
"""A step cost or a baseline that moved by less than this share is not worth a write."""
_TYPICAL: Final = (features(1, 0, 0.1), features(16, 256, 0.3), features(64, 2048, 0.7))
"""Contents of a step at which two cost models are compared: one request, a busy engine, a full one."""
_DIGITS: Final = 7
"""Significant digits that are kept: those of a float32 (slow paper §5)."""
_MARK_DIGITS: Final = 15
"""The same of what tells one process from another: counters are whole numbers below 2^53."""
_LONGEST_TOKEN: Final = 64
"""Characters; a vocabulary's tokens are shorter, and a page of text would not fit beside a thousand others."""
QUESTIONS_ID: Final = hashlib.sha256(repr([(q.name, q.prompt) for q in QUESTIONS]).encode()).hexdigest()[:12]
"""Answers to other questions, of another version of the operator, are none."""


def learned(memory: Memory) -> dict[str, Any]:
    """The learned part of `memory`: lists, dicts, strings and finite numbers only."""
    models = [
        {
            **key._asdict(),
            "numbers": [_short(number) for number in model.exported()],
            "highest": _short(model.highest),
        }
        for key, model in sorted(memory.slow.models.items())
    ]
    known = {key: kept_of(process) for key, process in memory.processes.items()} | memory.kept
    by_name = sorted(known.items(), key=lambda item: (item[0].uid, item[0].started_at))
    processes = [_written(key, kept) for key, kept in by_name if not kept.empty]
    return {"version": VERSION, "questions": QUESTIONS_ID, "models": models, "processes": processes}


def from_learned(value: object) -> Memory:
    """A new memory with what `learned` gave. Whatever can't be read is left out, to be learned anew; never raises."""
    memory = Memory()
    if not isinstance(value, Mapping) or value.get("version") not in _READ:
        return memory
    for item in _items(value.get("models")):
        pool, revision, numbers = item.get("pool"), item.get("revision"), item.get("numbers")
        if isinstance(pool, str) and isinstance(revision, str) and isinstance(numbers, list):
            model = _model(numbers)
            if model is not None:
                highest = _finite(item.get("highest"))
                if highest is not None and highest > 0.0:
                    model.highest = model.reach = highest
                memory.slow.models[ModelKey(pool, revision, item.get("counted") is True)] = model
    same_questions = value.get("questions") == QUESTIONS_ID
    for item in _items(value.get("processes")):
        uid, started = item.get("uid"), _finite(item.get("startedAt"))
        if isinstance(uid, str) and started is not None:
            memory.kept[ProcessKey(uid, started)] = Kept(
                baseline=_finite(item.get("baseline")),
                counted=item.get("counted") is True,
                references=_references(item),
                memory=_memory(item.get("memory")),
                answers=_answers(item.get("answers")) if same_questions else None,
                mark=_mark(item.get("mark")),
            )
    return memory


def worth_writing(stored: Memory, now: Memory, times: Times) -> bool:
    """Whether losing `now` for `stored` (a memory that `from_learned` gave) would lose something.

    True for a process whose baseline or reference is not stored, a baseline that moved by 10 %, and a usable model
    that is new or says a step cost that differs by 10 %. What is stored and gone is no reason; and answers and memory of
    a start, which are known first, wait for what the same process shows next, so that its start is one write.
    """
    if any(_model_moved(stored.slow.models.get(key), model) for key, model in now.slow.models.items()):
        return True
    mono = now.last_mono or 0.0
    settled = times.warm_up + 2 * times.fragmentation_reference
    return any(
        _process_moved(stored.kept.get(key, Kept()), kept_of(process), process.age(mono) >= settled)
        for key, process in now.processes.items()
    )


def _written(key: ProcessKey, kept: Kept) -> dict[str, Any]:
    found: dict[str, Any] = {
        "uid": key.uid,
        "startedAt": key.started_at,
        "mark": [
            None if number is None else float(f"{number:.{_MARK_DIGITS}g}")
            for number in (kept.mark.process_start, kept.mark.steps, kept.mark.tokens)
        ],
        "baseline": None if kept.baseline is None else _short(kept.baseline),
        "counted": kept.counted,
        "references": {
            source: {worker: _short(value) for worker, value in sorted(workers.items())}
            for source, workers in sorted(kept.references.items())
        },
    }
    if kept.memory is not None:
        found["memory"] = [kept.memory[0].name, _short(kept.memory[1])]
    if kept.answers is not None and _tellable(kept.answers):
        found["answers"] = {
            "first": {
                name: [answer.token, None if answer.margin is None else _short(answer.margin)]
                for name, answer in sorted(kept.answers.first.items())
            },
            "refused": sorted(kept.answers.refused),
        }
    return found


def _tellable(answers: Answers) -> bool:
    return all(
        len(answer.token) <= _LONGEST_TOKEN and (answer.margin is None or math.isfinite(answer.margin))
        for answer in answers.first.values()
    )


def _model_moved(old: CostModel | None, new: CostModel) -> bool:
    for content in _TYPICAL:
        cost = new.cost(content)
        known = old.cost(content) if old is not None and cost is not None else None
        if cost is not None and (known is None or abs(cost / known - 1.0) > MOVED):
            return True
    return False


def _process_moved(old: Kept, new: Kept, settled: bool) -> bool:
    if new.baseline is not None and (old.baseline is None or abs(new.baseline - old.baseline) > MOVED):
        return True
    if any(
        worker not in old.references.get(source, {})
        for source, workers in new.references.items()
        for worker in workers
    ):
        return True
    asked = new.answers is not None and old.answers is None and _tellable(new.answers)
    return settled and (asked or (new.memory is not None and old.memory is None))


def _short(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def _items(value: object) -> Iterable[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON has integers beyond any float
        return None
    return number if math.isfinite(number) else None


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


def _mark(value: object) -> Mark:
    numbers = value if isinstance(value, list) and len(value) == 3 else [None] * 3
    start, steps, tokens = (_finite(number) for number in numbers)
    return Mark(start, steps, tokens)


def _memory(value: object) -> tuple[Source, float] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    source, used = value[0], _finite(value[1])
    known = isinstance(source, str) and source in Source.__members__
    return (Source[source], used) if known and used is not None and used > 0.0 else None


def _answers(value: object) -> Answers | None:
    """All of them or none: of a start that is known in part, nobody could say which questions were struck out."""
    if not isinstance(value, Mapping):
        return None
    first, refused = value.get("first"), value.get("refused")
    if not isinstance(first, Mapping) or not isinstance(refused, list):
        return None
    told = {name: _answer(said) for name, said in first.items()}
    names = [*told, *refused]
    if not told or any(name not in NAMES for name in names) or len(set(names)) != len(names):
        return None
    whole = {name: answer for name, answer in told.items() if answer is not None}
    return Answers(whole, frozenset(refused)) if len(whole) == len(told) else None


def _answer(value: object) -> Answer | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    token, margin = value[0], _finite(value[1])
    if (
        not isinstance(token, str)
        or not 0 < len(token) <= _LONGEST_TOKEN
        or (margin is None) != (value[1] is None)
    ):
        return None
    return Answer(token, margin)
