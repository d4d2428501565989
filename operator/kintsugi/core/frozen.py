"""Values that the type checker holds to be frozen, and that cost no more to make than others.

What a pass makes by the thousand is marked `@frozen`. A dataclass that is frozen at run time too sets each field by a
call: an `Instance` of forty fields took three times as long to make. Those that are keys stay dataclasses of that kind,
since these here have no hash.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A dataclass with slots that nobody may change once it is made; mypy says where somebody does."""
    return dataclass(slots=True)(cls)
