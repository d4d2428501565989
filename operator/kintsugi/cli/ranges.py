"""Types of options that click has not: numbers in a range that are numbers."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A float within bounds. Unlike click's own it refuses `nan`, which no bound stops, and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; BadParameter where it is none, or out of range."""
        found: float = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        within: float = super().convert(found, param, ctx)
        return within
