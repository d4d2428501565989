"""What Kubernetes has in a pod template, at every depth: names that it lacks, and values of another kind.

The API server would drop the first in silence and refuse the second for every pod that the operator tries to make.
"""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any, Final

from kintsugi.api.objects import Problem

ROOT: Final = "PodTemplateSpec"
_PLAIN: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "quantity": (str, int, float),
    "number or string": (str, int),
}


@cache
def _kinds() -> Mapping[str, Mapping[str, str]]:
    """Drawn from Kubernetes' OpenAPI document; a test says when it is behind."""
    file = resources.files("kintsugi.core.pod").joinpath("data", "pod_fields.json")
    found: dict[str, dict[str, str]] = json.loads(file.read_text("utf-8"))
    return found


def unknown_fields(template: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Fields that Kubernetes does not have where they stand, each with the name that was probably meant.

    Beside `metadata` and `spec` nothing is looked at: what stands there is refused (`owned.template_problems`).
    """
    return tuple(problem for problem, unknown in _walk(template, ROOT, "") if unknown and "." in problem.path)


def wrong_kinds(template: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Values of another kind than Kubernetes takes there, such as a number that is not quoted."""
    return tuple(problem for problem, unknown in _walk(template, ROOT, "") if not unknown)


def _walk(value: Any, kind: str, path: str) -> Iterator[tuple[Problem, bool]]:
    if value is None or kind == "any":  # None takes a field away
        return
    if kind.startswith("["):
        yield from _list(value, kind[1:-1], path)
    elif kind.startswith("{"):
        yield from _map(value, kind[1:-1], path)
    elif kind in _PLAIN:
        yield from _plain(value, kind, path)
    else:
        yield from _object(value, kind, path)


def _list(value: Any, kind: str, path: str) -> Iterator[tuple[Problem, bool]]:
    if not isinstance(value, list):
        yield Problem(path, f"must be a list, not {_named(value)}"), False
        return
    for index, item in enumerate(value):
        if item is None:
            yield Problem(f"{path}[{index}]", "is empty: write it or take it out"), False
        yield from _walk(item, kind, f"{path}[{index}]")


def _map(value: Any, kind: str, path: str) -> Iterator[tuple[Problem, bool]]:
    if not isinstance(value, Mapping):
        yield Problem(path, f"must be an object, not {_named(value)}"), False
        return
    for key, item in value.items():
        if not str(key).startswith("$"):
            yield from _walk(item, kind, f"{path}[{key}]")


def _object(value: Any, kind: str, path: str) -> Iterator[tuple[Problem, bool]]:
    if not isinstance(value, Mapping):
        yield Problem(path, f"must be an object, not {_named(value)}"), False
        return
    fields = _kinds()[kind]
    for key, item in value.items():
        here = f"{path}.{key}".removeprefix(".")
        if key in fields:
            yield from _walk(item, fields[key], here)
        elif not str(key).startswith("$"):
            yield Problem(here, _hint(str(key), fields)), True


def _plain(value: Any, kind: str, path: str) -> Iterator[tuple[Problem, bool]]:
    wanted = _PLAIN[kind]
    fits = isinstance(value, wanted) and (not isinstance(value, bool) or bool in wanted)
    if kind == "quantity" and isinstance(value, str):
        fits = _quantity(value)
    if not fits:
        cure = f": write {json.dumps(json.dumps(value))}" if wanted == (str,) and _scalar(value) else ""
        article = "an" if kind[0] in "ai" else "a"
        yield Problem(path, f"must be {article} {kind}, not {_named(value)}{cure}"), False


def _quantity(text: str) -> bool:
    number = text.rstrip("numkKMGTPEi")
    return bool(number) and number.lstrip("+-").replace(".", "", 1).replace("e", "", 1).isdigit()


def _hint(key: str, fields: Mapping[str, str]) -> str:
    close = get_close_matches(key, fields, n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"is no field that Kubernetes has here, and would have no effect{meant}"


def _scalar(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _named(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:40] + "…"
