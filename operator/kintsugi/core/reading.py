"""A reading is a value, known to be absent, or unreadable; absence is never zero."""

import math
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Value:
    """A finite number that was read."""

    value: float


@dataclass(frozen=True, slots=True)
class Absent:
    """The page was readable and did not hold this signal (or held NaN, or nothing)."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The page could not be read, so nothing is known."""

    reason: str = ""


Reading: TypeAlias = Value | Absent | Unreadable

ABSENT = Absent()


def reading(number: float | None) -> Value | Absent:
    """`number` as a reading: None, NaN and the infinities are Absent."""
    return Value(number) if number is not None and math.isfinite(number) else ABSENT


def number_of(given: Reading) -> float | None:
    """The number of a Value, else None."""
    return given.value if isinstance(given, Value) else None
