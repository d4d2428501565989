"""The chart's values, as its own files tell them: documented, declared and used."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[3] / "helm" / "kintsugi"

_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z][A-Za-z0-9]*):")
_COMMENT = re.compile(r"^ *# ?(?P<text>.*)$")


@dataclass(frozen=True, slots=True)
class Value:
    """One documented value: its dotted path, what the comment above it says, its default."""

    path: str
    text: str
    default: Any


def documented() -> list[Value]:
    """Every key of values.yaml with a comment right above it, in the file's order."""
    source = (CHART / "values.yaml").read_text(encoding="utf-8")
    defaults = yaml.safe_load(source)
    found: list[Value] = []
    comment: list[str] = []
    path: list[str] = []
    for line in source.splitlines():
        if match := _COMMENT.match(line):
            comment.append(match["text"])
            continue
        if match := _KEY.match(line):
            path = [*path[: len(match["indent"]) // 2], match["key"]]
            if comment:
                found.append(Value(".".join(path), " ".join(comment), _at(defaults, path)))
        comment = []
    return found


def leaves() -> set[str]:
    """The dotted path of every value that a user can set; free-form objects count as one."""
    free = {value.path for value in documented() if isinstance(value.default, dict)}
    return set(_leaves(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")), (), free))


def declared() -> set[str]:
    """The dotted paths that values.schema.json declares, `global` (Helm's own) aside."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    free = {value.path for value in documented() if isinstance(value.default, dict)}
    return set(_declared(schema, (), free)) - {"global"}


def used() -> set[str]:
    """The dotted paths that templates read."""
    text = "\n".join(
        file.read_text(encoding="utf-8") for file in (CHART / "templates").rglob("*") if file.is_file()
    )
    return {match.rstrip(".") for match in re.findall(r"\.Values\.([A-Za-z0-9.]+)", text)}


def _at(tree: Any, path: list[str]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _leaves(tree: Mapping[str, Any], path: tuple[str, ...], free: set[str]) -> Iterator[str]:
    for key, value in tree.items():
        dotted = ".".join((*path, key))
        if isinstance(value, dict) and value and dotted not in free:
            yield from _leaves(value, (*path, key), free)
        else:
            yield dotted


def _declared(schema: Mapping[str, Any], path: tuple[str, ...], free: set[str]) -> Iterator[str]:
    for key, value in schema.get("properties", {}).items():
        dotted = ".".join((*path, key))
        if "properties" in value and dotted not in free:
            yield from _declared(value, (*path, key), free)
        else:
            yield dotted
