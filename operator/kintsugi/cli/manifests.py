"""Manifests in files: YAML or JSON, several documents and lists, with the line of every field."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from kintsugi.core.preflight.paths import Location, locate

MOST_NODES: Final = 200_000
"""Fields of one file, aliases counted each time they are used: more is no manifest, but a bomb."""


class Unreadable(ValueError):
    """The text is no manifest: a sentence for people, with the line."""


@dataclass(frozen=True, slots=True)
class Doubled:
    """A key that a mapping has twice: the first value would vanish in silence."""

    path: str
    line: int
    first_line: int


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file."""

    raw: Any
    index: int
    """Which document of the file, from 0."""
    item: int | None = None
    """Which item of a `List`; None where the document is the object."""
    lines: Mapping[Location, tuple[int, int]] = field(default_factory=dict)
    doubled: tuple[Doubled, ...] = ()

    def place(self, path: str) -> tuple[int, int]:
        """Line and column, from 1, of the field at `path`, or of the nearest that holds it."""
        location, _ = locate(self.raw, path)
        prefix: Location = () if self.item is None else ("items", self.item)
        whole = prefix + location
        while whole and whole not in self.lines:
            whole = whole[:-1]
        return self.lines.get(whole, (1, 1))


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a date is a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Builder:
    """Turns the nodes of one document into plain data, noting lines and doubled keys."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self._left = MOST_NODES
        self._open: set[int] = set()
        self.lines: dict[Location, tuple[int, int]] = {}
        self.doubled: list[Doubled] = []

    def build(self, node: yaml.Node, at: Location, path: str) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Unreadable(f"has more than {MOST_NODES} fields, aliases counted")
        if id(node) in self._open:
            raise Unreadable(f"line {node.start_mark.line + 1}: an alias contains itself")
        self.lines.setdefault(at, (node.start_mark.line + 1, node.start_mark.column + 1))
        if isinstance(node, yaml.ScalarNode):
            return self._loader.construct_object(node)
        self._open.add(id(node))
        made = (
            self._mapping(node, at, path)
            if isinstance(node, yaml.MappingNode)
            else self._list(node, at, path)
        )
        self._open.discard(id(node))
        return made

    def _list(self, node: yaml.Node, at: Location, path: str) -> list[Any]:
        return [self.build(item, (*at, i), f"{path}[{i}]") for i, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, at: Location, path: str) -> dict[str, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            name, line = _name(key), key.start_mark.line + 1
            if name in seen:
                self.doubled.append(Doubled(f"{path}.{name}".removeprefix("."), line, seen[name]))
            seen.setdefault(name, line)
        self._loader.flatten_mapping(node)
        made: dict[str, Any] = {}
        for key, value in node.value:
            name = _name(key)
            self.lines[(*at, name)] = (key.start_mark.line + 1, key.start_mark.column + 1)
            made[name] = self.build(value, (*at, name), f"{path}.{name}".removeprefix("."))
        return made


def _name(key: yaml.Node) -> str:
    """A key as JSON has it: Kubernetes turns numbers and truths into texts too."""
    if not isinstance(key, yaml.ScalarNode):
        raise Unreadable(f"line {key.start_mark.line + 1}: a key must be a text")
    return str(key.value)


def documents(text: str) -> Iterator[Document]:
    """Every object in `text`, the items of a `List` one by one, empty documents left out.

    Raises Unreadable with the line.
    """
    try:
        yield from _yaml_documents(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, Unreadable):
            raise
        found = _as_json(text)
        if found is None:
            raise Unreadable(_said(error)) from error
        yield from _objects(found, 0, {}, ())


def _yaml_documents(text: str) -> Iterator[Document]:
    loader = _Loader(text)
    try:
        made = []
        index = 0
        while loader.check_node():
            node = loader.get_node()
            builder = _Builder(loader)
            raw = None if node is None else builder.build(node, (), "")
            made += list(_objects(raw, index, builder.lines, tuple(builder.doubled)))
            index += 1
    finally:
        loader.dispose()
    yield from made


def _objects(
    raw: Any, index: int, lines: Mapping[Location, tuple[int, int]], doubled: tuple[Doubled, ...]
) -> Iterator[Document]:
    if raw is None:
        return
    items = raw.get("items") if isinstance(raw, dict) and str(raw.get("kind", "")).endswith("List") else None
    if not isinstance(items, list):
        yield Document(raw, index, None, lines, doubled)
        return
    for number, item in enumerate(items):
        prefix = f"items[{number}]."
        own = tuple(
            Doubled(d.path.removeprefix(prefix), d.line, d.first_line)
            for d in doubled
            if d.path.startswith(prefix)
        )
        yield Document(item, index, number, lines, own)


def _as_json(text: str) -> Any:
    """The text as JSON, whose tabs YAML does not take; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _said(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem
