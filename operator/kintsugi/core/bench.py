"""Two targets under the same load: what each gave, and how sure the difference is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np

RESAMPLES: Final = 10_000
"""Draws of the bootstrap: its interval then moves by less than it says of few pairs anyway."""
CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that is measured: its key in the load tool's result, its name for people, its unit."""

    key: str
    name: str
    unit: str
    more_is_better: bool = False


FIGURES: Final = (
    Figure("output_throughput", "throughput", "tokens/s", more_is_better=True),
    Figure("request_throughput", "requests", "1/s", more_is_better=True),
    Figure("p50_ttft_ms", "first token p50", "ms"),
    Figure("p99_ttft_ms", "first token p99", "ms"),
    Figure("p50_itl_ms", "between tokens p50", "ms"),
    Figure("p99_itl_ms", "between tokens p99", "ms"),
    Figure("p50_e2el_ms", "whole request p50", "ms"),
    Figure("p99_e2el_ms", "whole request p99", "ms"),
)
"""`vllm bench serve` writes these with `--percentile-metrics ttft,itl,e2el --metric-percentiles 50,99`."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of both targets. `first` and `second`: the medians of their runs."""

    figure: Figure
    first: float
    second: float
    percent: float
    """The second against the first: the median over the pairs, each of two runs beside each other."""
    interval: tuple[float, float] | None
    """What `percent` may be with 95 % confidence (bootstrap over the pairs); None with fewer than three."""


def compared(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> list[Compared]:
    """Every figure that all runs have. Run n of both targets are a pair, made right after each other."""
    found = []
    for figure in FIGURES:
        mine, theirs = _values(first, figure.key), _values(second, figure.key)
        if mine is None or theirs is None:
            continue
        changes = [100 * (b / a - 1) for a, b in zip(mine, theirs, strict=True) if a > 0]
        if not changes:
            continue
        found.append(Compared(figure, median(mine), median(theirs), median(changes), interval(changes)))
    return found


def interval(changes: Sequence[float]) -> tuple[float, float] | None:
    """Where the median of such changes lies with 95 % confidence; the same numbers give the same interval."""
    if len(changes) < 3:
        return None
    drawn = np.random.default_rng(0).choice(np.asarray(changes), (RESAMPLES, len(changes)))
    low, high = np.quantile(np.median(drawn, axis=1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def order(pairs: int) -> list[tuple[int, int]]:
    """(pair, target) of every run: the targets take turns at going first, so that a drift favours neither."""
    return [(pair, target if pair % 2 == 0 else 1 - target) for pair in range(pairs) for target in (0, 1)]


def _values(runs: Sequence[Mapping[str, Any]], key: str) -> list[float] | None:
    values = [run.get(key) for run in runs]
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        return None
    return [float(value) for value in values if value is not None]
