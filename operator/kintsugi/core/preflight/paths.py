"""JSON paths such as `spec.pools[1].engine.args.blockSize`: where they lead in an object, or how far."""

from collections.abc import Mapping
from typing import Any

Location = tuple[str | int, ...]


def locate(raw: Any, path: str) -> tuple[Location, bool]:
    """The keys and indices that `path` follows in `raw` as far as it can, and whether it got to the end.

    Keys are matched against what is there, so that they may hold dots and brackets themselves: both `a.b` and
    `labels[a/b]` are understood.
    """
    text = "" if path in ("", ".") else path if path.startswith("[") else f".{path}"
    best: Location = ()
    todo: list[tuple[Any, str, Location]] = [(raw, text, ())]
    while todo:
        node, rest, location = todo.pop()
        if len(location) > len(best):
            best = location
        if not rest:
            return location, True
        todo += [(child, left, (*location, step)) for step, child, left in _steps(node, rest)]
    return best, False


def _steps(node: Any, rest: str) -> list[tuple[str | int, Any, str]]:
    found: list[tuple[str | int, Any, str]] = []
    if isinstance(node, Mapping):
        for key, child in node.items():
            for form in (f".{key}", f"[{key}]"):
                if rest.startswith(form) and rest[len(form) : len(form) + 1] in ("", ".", "["):
                    found.append((key, child, rest[len(form) :]))
    elif isinstance(node, list) and rest.startswith("["):
        number, closed, left = rest[1:].partition("]")
        if closed and number.isdecimal() and len(number) < 10 and int(number) < len(node):
            found.append((int(number), node[int(number)], left))
    return found


def written(location: Location) -> str:
    """`("spec", "pools", 0)` as `spec.pools[0]`; `.` for the whole object."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in location]
    return "".join(parts).removeprefix(".") or "."


def existing(raw: Any, path: str) -> str:
    """`path` where it leads to something in `raw`, else its nearest ancestor that does."""
    location, whole = locate(raw, path)
    return path if whole and path else written(location)


def value_at(raw: Any, path: str) -> Any:
    """What `path` leads to; None where it leads nowhere."""
    location, whole = locate(raw, path)
    if not whole:
        return None
    for step in location:
        raw = raw[step]
    return raw
