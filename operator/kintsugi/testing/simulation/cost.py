"""What an engine step truly costs here. Not of the form that the judge's own model has: it has to cope with that."""

import math
import random
from dataclasses import dataclass, replace

CHUNK_TOKENS = 8192
"""Tokens that one step may prefill: vLLM's `max_num_batched_tokens` default for serving on large GPUs."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of one step: a floor, a saturating and a straight share of the batch, context read, prompt computed."""

    floor: float
    experts: float
    """The more requests decode, the more experts are read, up to all of them."""
    batch: float
    context: float
    """For a full KV cache."""
    prompt: float
    """Per prompt token computed."""
    attention: float
    """Per prompt token, for a context of a full KV cache."""

    def table(self, most: int) -> list[float]:
        """Seconds of a pure decode step by batch size, 0 to `most`."""
        sizes = range(most + 1)
        return [self.floor + self.experts * (1 - math.exp(-n / 24)) + self.batch * n for n in sizes]

    def varied(self, luck: random.Random, spread: float) -> "StepCost":
        """The same engine on another machine: every share differs a little."""
        names = ("floor", "experts", "batch", "context", "prompt", "attention")
        return replace(self, **{n: getattr(self, n) * math.exp(luck.gauss(0, spread)) for n in names})


def drawn(luck: random.Random) -> StepCost:
    """One engine and GPU, from small models on fast GPUs to large ones on slow ones."""
    floor = luck.uniform(0.010, 0.035)
    return StepCost(
        floor=floor,
        experts=floor * luck.uniform(0.3, 1.2),
        batch=floor * luck.uniform(0.002, 0.02),
        context=floor * luck.uniform(0.2, 1.0),
        prompt=1 / luck.uniform(15_000, 60_000),
        attention=1 / luck.uniform(30_000, 120_000),
    )
