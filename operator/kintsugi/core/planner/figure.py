"""A number that says how well it is known."""

import math
from dataclasses import dataclass, replace
from typing import Literal

Basis = Literal["measured", "assumed"]


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` with the band in which it is believed to lie, whether somebody measured it, and where it is from."""

    value: float
    low: float
    high: float
    basis: Basis
    source: str

    def scaled(self, factor: float, source: str = "") -> "Figure":
        """Every bound times a factor of 0 or more."""
        return replace(
            self,
            value=self.value * factor,
            low=self.low * factor,
            high=self.high * factor,
            source=source or self.source,
        )

    def plus(self, other: "Figure", source: str) -> "Figure":
        """The sum; measured only where both are."""
        return Figure(
            self.value + other.value,
            self.low + other.low,
            self.high + other.high,
            self._basis(other),
            source,
        )

    def minus(self, other: "Figure", source: str) -> "Figure":
        """The difference, its band as wide as both bands together; may be below 0."""
        return Figure(
            self.value - other.value,
            self.low - other.high,
            self.high - other.low,
            self._basis(other),
            source,
        )

    def floored(self) -> "Figure":
        """Whole numbers, never below 0: for blocks, tokens and requests."""
        low, value, high = (max(0, math.floor(bound)) for bound in (self.low, self.value, self.high))
        return replace(self, value=value, low=low, high=high)

    def _basis(self, other: "Figure") -> Basis:
        return "measured" if self.basis == other.basis == "measured" else "assumed"


def exact(value: float, source: str) -> Figure:
    """A figure without a band: somebody set it, or read it off."""
    return Figure(value, value, value, "measured", source)


def banded(value: float, low: float, high: float, source: str) -> Figure:
    """An assumed figure; `low` and `high` are factors of the value."""
    return Figure(value, value * low, value * high, "assumed", source)
