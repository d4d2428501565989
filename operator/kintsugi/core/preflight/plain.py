"""Whether an object is made of what JSON can say: anything else is named before a parser trips over it."""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

DEPTH: Final = 64
"""Levels of an object. Kubernetes' own deepest types have about 20."""
_LARGEST: Final = 2**63


def fault_of(raw: Any) -> tuple[str, str] | None:
    """The path of the first value that has no JSON form, or is nested too deeply, and what is wrong with it."""
    return next(faults_of(raw), None)


def faults_of(raw: Any) -> Iterator[tuple[str, str]]:
    """The path of every such value; what lies in one that is refused is not looked at."""
    todo: list[tuple[Any, str, int]] = [(raw, "", 0)]
    while todo:
        node, path, depth = todo.pop()
        if depth > DEPTH:
            yield path, f"lies deeper than {DEPTH} levels"
        elif isinstance(node, Mapping):
            odd = [key for key in node if not isinstance(key, str) or not _readable(key)]
            if odd:
                yield path, f"has the key {odd[0]!r}, which is not a text"
                continue
            todo += [(child, f"{path}.{key}".removeprefix("."), depth + 1) for key, child in node.items()]
        elif isinstance(node, list):
            todo += [(child, f"{path}[{index}]", depth + 1) for index, child in enumerate(node)]
        elif (said := _scalar_fault(node)) is not None:
            yield path, said


def _scalar_fault(value: Any) -> str | None:
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        return "is a number of more than 64 bits"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, which JSON has no word for"
    if isinstance(value, str):
        return None if _readable(value) else "is a text with half a character in it"
    if value is None or isinstance(value, bool | int | float | datetime):
        return None
    return f"is a {type(value).__name__}, which JSON has no word for"


def _readable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
