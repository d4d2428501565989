"""Read one `/metrics` page fast: a line seen before costs one look-up, and only numbers that matter are parsed.

Between two pages of an engine only numbers change. So everything before a line's last space (metric name and labels) is
looked up in a bounded cache that says which signal it is, or that it is none of ours. Text never seen before, and every
unusual layout (timestamps, exemplars, tabs, odd spacing), takes the careful path. A line that is no sample is skipped
and counted, never guessed at.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NewType

from kintsugi.core.series import EXPECTED, LONG_GAP_SECONDS, TABLE, Kind, Row, Signal

_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL: Final = r"[a-zA-Z_][a-zA-Z0-9_]*+[ \t]*+=[ \t]*+\"(?:[^\"\\\n]|\\.)*+\"[ \t]*+"
_LABELS: Final = rf"\{{[ \t]*+(?:{_LABEL}(?:,[ \t]*+{_LABEL})*+,?+[ \t]*+)?\}}"
_SERIES: Final = re.compile(rf"[ \t]*+({_NAME})[ \t]*+({_LABELS})?[ \t]*+")
_SAMPLE: Final = re.compile(
    rf"({_NAME})[ \t]*+({_LABELS})?[ \t]*+([^ \t{{}}\"#]++)(?:[ \t]++([0-9.eE+-]++))?[ \t]*+(?:#[ \t]*+\{{.*)?"
)
"""One line: name, labels, number, and where they stand a timestamp and an exemplar. Every repeat is possessive, so a
hostile line costs no more than its length."""
_PAIR: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\\n]|\\.)*+)"')
_ESCAPE: Final = re.compile(r"\\(.)")
_UNESCAPED: Final = {"n": "\n", '"': '"', "\\": "\\"}

DEFAULT_RANK: Final = "0"
"""The rank of series without an `engine` label (one engine, or an old engine)."""
MAX_RANK_NAME: Final = 32
"""Characters of a rank's name that are kept; it comes from the page and goes into messages and request ids."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """One series that is read: which signal, of which rank, which part of it. Compared by identity: one per series."""

    signal: Signal
    kind: Kind
    rank: str
    part: str
    age: int
    """Position of its name in the table; 0 is the newest name."""
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PageValues:
    """The numbers of one page, NaN included. A series that stands twice with different numbers is left out."""

    numbers: Mapping[Target, float]
    recognised: bool
    """False where no expected engine series occurs at all."""
    garbage: int
    """Lines that are no samples and no comments."""
    cut_short: bool
    """The last line had no end; it is not read, since its number may be cut."""


_SeriesKey = NewType("_SeriesKey", tuple[str, tuple[tuple[str, str], ...]])
_UNSEEN: Final = object()


class PageReader:
    """Reads pages of any number of engines; forgets every line beginning once it knows `bound` of them."""

    def __init__(self, bound: int = 20_000, table: Mapping[Signal, Row] = TABLE, prefix: str = "") -> None:
        """`prefix`: what something between engine and page puts before names; they are read with and without it."""
        self._bound = bound
        self.prefix = prefix
        self._by_name = {
            before + name.metric: (signal, row.kind, row.part, age)
            for signal, row in table.items()
            for age, name in enumerate(row.names)
            for before in {"", prefix}
        }
        self._known: dict[str, Target | None] = {}
        self._targets: dict[_SeriesKey, Target] = {}

    def read(self, text: str) -> PageValues:
        """The numbers on a page in Prometheus text format. Never raises, whatever the text."""
        if len(self._known) >= self._bound:
            self._known.clear()
            self._targets.clear()
        numbers: dict[Target, float] = {}
        torn: set[Target] = set()
        garbage = 0
        lines = text.split("\n")
        cut_short = lines.pop() != ""
        known = self._known.get
        for line in lines:
            prefix, _, number = line.rpartition(" ")
            target = known(prefix, _UNSEEN)
            if target is None:
                continue
            if isinstance(target, Target):
                value = _number(number)
            else:
                target, value = self._unseen(line, prefix, number)
                if target is None:
                    garbage += value is None
                    continue
            if value is None:
                garbage += 1
            elif target in numbers and not _same(numbers[target], value):
                torn.add(target)
            else:
                numbers[target] = value
        for target in torn:
            del numbers[target]
        recognised = any(target.signal in EXPECTED for target in numbers)
        return PageValues(numbers, recognised, garbage, cut_short)

    def _unseen(self, line: str, prefix: str, number: str) -> tuple[Target | None, float | None]:
        """The careful path. (None, None) = no sample; (None, any number) = a line that is none of ours."""
        stripped = line.strip()
        if not stripped:
            return None, 0.0
        if stripped.startswith("#"):
            self._remember(prefix, None)
            return None, 0.0
        series = _SERIES.fullmatch(prefix) if prefix else None
        if series is not None and _number(number) is not None:
            target = self._target(series.group(1), series.group(2))
            self._remember(prefix, target)
            return target, _number(number)
        sample = _SAMPLE.fullmatch(stripped)
        if sample is None:
            return None, None
        value = _number(sample.group(3))
        return (None, value) if value is None else (self._target(sample.group(1), sample.group(2)), value)

    def _remember(self, prefix: str, target: Target | None) -> None:
        if prefix:
            self._known[prefix] = target

    def _target(self, name: str, labels: str | None) -> Target | None:
        row = self._by_name.get(name)
        if row is None:
            return None
        pairs = tuple(sorted((key, _unescape(value)) for key, value in _PAIR.findall(labels or "")))
        key = _SeriesKey((name, pairs))
        found = self._targets.get(key)
        if found is None:
            signal, kind, part, age = row
            by_label = dict(pairs)
            rank = by_label.get("engine", DEFAULT_RANK)[:MAX_RANK_NAME]
            found = Target(signal, kind, rank, by_label.get(part, "") if part else "", age, by_label)
            if signal is Signal.ITL_BUCKET and not _is_long_gap(found.part):
                return None
            self._targets[key] = found
        return found


def _number(text: str) -> float | None:
    """`text` as a number; None where it is none. Python's own extras (underscores, other digits) are refused."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if text.isascii() and "_" not in text else None


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _is_long_gap(edge: str) -> bool:
    value = _number(edge)
    return value is not None and value >= LONG_GAP_SECONDS


def _unescape(value: str) -> str:
    r"""Undo `\\`, `\"` and `\n`; any other backslash stays as written."""
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda found: _UNESCAPED.get(found.group(1), found.group(0)), value)
