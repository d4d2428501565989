"""A simulated fleet kept as it stands, of which each test gets a copy of its own: a warm-up is simulated once.

`copy.deepcopy` can't do it: timers hold closures, whose variables it would share between the copies.
"""

import io
import itertools
import json
import logging
import pickle
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any, Generic, TypeVar

from kintsugi.api.model import Model
from kintsugi.testing.cluster.schema import Schemas

T = TypeVar("T")
SHARED = (Model, Schemas, ModuleType, BuiltinFunctionType, logging.Logger, type)
"""Values of these types never change: all copies have them in common."""


@dataclass(frozen=True, slots=True)
class _Same:
    """A function that a copy's closure is made like."""

    function: FunctionType


def _closure(same: _Same, cells: tuple[CellType, ...]) -> FunctionType:
    of = same.function
    made = FunctionType(of.__code__, of.__globals__, of.__name__, of.__defaults__, cells)
    made.__kwdefaults__ = of.__kwdefaults__
    return made


def _fill(cell: CellType, content: Any) -> None:
    cell.cell_contents = content


class _Freezer(pickle.Pickler):
    """Keeps in `shared` what all copies have in common."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.shared: list[Any] = []
        self._places: dict[int, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        plain = type(value) is object or (type(value) is FunctionType and not value.__closure__)
        if not (plain or isinstance(value, (*SHARED, _Same))):
            return None
        place = self._places.setdefault(id(value), len(self.shared))
        if place == len(self.shared):
            self.shared.append(value)
        return place

    def reducer_override(self, value: Any) -> Any:
        if type(value) is FunctionType:
            return _closure, (_Same(value), value.__closure__)
        if type(value) is CellType:
            return CellType, (), value.cell_contents, None, None, _fill
        if type(value) is itertools.count:
            return itertools.count, (int(repr(value)[len("count(") : -1]),)
        return NotImplemented


class _Thawer(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: Any) -> Any:
        return self._shared[pid]


@dataclass(frozen=True, slots=True)
class Frozen(Generic[T]):
    """Some value as it was when it was kept."""

    data: bytes
    shared: list[Any]

    @classmethod
    def of(cls, value: T) -> "Frozen[T]":
        """`value` as it is now."""
        file = io.BytesIO()
        freezer = _Freezer(file)
        freezer.dump(value)
        return cls(file.getvalue(), freezer.shared)

    def copy(self) -> T:
        """One copy of its own."""
        made: T = _Thawer(io.BytesIO(self.data), self.shared).load()
        return made


_KEPT: dict[str, Frozen[Any]] = {}


async def copied(made_of: Any, make: Callable[[], Awaitable[T]]) -> T:
    """A copy of what `make` makes, which is called once a process for everything that is equal in `made_of`, in JSON."""
    name = json.dumps(made_of)
    if name not in _KEPT:
        _KEPT[name] = Frozen.of(await make())
    made: T = _KEPT[name].copy()
    return made
