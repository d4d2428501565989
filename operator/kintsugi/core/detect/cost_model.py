"""What an engine step of a given content costs: a small robust model, one per pool and revision (slow paper §3).

cost = θ · x with x = (1, n, p, k, min(n, 16)) and θ ≥ 0: n decodes a step, p computed prompt tokens a step, k KV usage.
Learned from one sample a minute of each instance, in relative error, with a half-life of a day of one instance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

SIZE: Final = 5
USABLE_SAMPLES: Final = 30
"""Samples from which on a model may be asked (slow §3)."""
FORGET: Final = 0.5 ** (1 / 1440)
"""Per sample: half-life 1,440 samples (slow §3)."""
ROUNDS: Final = 60
"""Rounds of coordinate descent of one solution (slow §3)."""
FARTHEST: Final = 8.0
"""How many times more prefill a step than any sample had a model is asked about (chosen here: the steps of an engine that is
five times slower carry five times as much). Where prompts never mattered, it can't tell what they cost."""
LEAST_REACH: Final = 256.0
"""Prompt tokens a step up to which it is always asked: they take a few milliseconds."""
SMALL_BATCH: Final = 16.0
"""Batch up to which a decode costs differently (slow §3)."""
_RIDGE: Final = 1e-6
_TINY: Final = 1e-12

Features = tuple[float, float, float, float, float]


def features(decodes: float, prefill: float, kv_usage: float) -> Features:
    """x of one window: decodes a step, computed prompt tokens a step, KV usage 0 to 1."""
    return (1.0, decodes, prefill, kv_usage, min(decodes, SMALL_BATCH))


@dataclass(slots=True)
class CostModel:
    """The sums from which θ is solved, and θ. 21 numbers are worth keeping: `exported`."""

    moments: list[list[float]] = field(default_factory=lambda: [[0.0] * SIZE for _ in range(SIZE)])
    targets: list[float] = field(default_factory=lambda: [0.0] * SIZE)
    samples: int = 0
    theta: list[float] = field(default_factory=lambda: [0.0] * SIZE)
    solved_at: float | None = None
    """Monotonic seconds."""
    highest: float = 0.0
    """p of the samples, the highest, forgotten as they are."""
    reach: float = math.inf
    """The same when θ was solved; no end to it where it is not known."""

    def learn(self, x: Features, seconds: float, weight: float, expected: float = 0.0) -> None:
        """Take in one window whose step took `seconds` (> 0), freed of the instance's own level.

        The error is relative to `expected` seconds where the step took less: so a window that says that it did far more than
        its time allows, which is a miscount, moves little.
        """
        scale = max(seconds, expected)
        z = [value / scale for value in x]
        target = seconds / scale
        for a, za in enumerate(z):
            weighted = weight * za
            self.targets[a] = self.targets[a] * FORGET + weighted * target
            row = self.moments[a]
            for b, zb in enumerate(z):
                row[b] = row[b] * FORGET + weighted * zb
        self.highest = max(self.highest * FORGET, x[2])
        self.samples += 1

    def solve(self, mono: float) -> None:
        """Fit θ ≥ 0, starting from the last one."""
        theta = self.theta
        rows = list(enumerate(zip(self.moments, self.targets, strict=True)))
        for _ in range(ROUNDS):
            for a, (row, target) in rows:
                # Written out, since a pass may solve hundreds of models.
                fit = (
                    row[0] * theta[0]
                    + row[1] * theta[1]
                    + row[2] * theta[2]
                    + row[3] * theta[3]
                    + row[4] * theta[4]
                )
                rest = target - fit + row[a] * theta[a]
                theta[a] = rest / (row[a] * (1 + _RIDGE) + _TINY) if rest > 0 else 0.0
        self.solved_at = mono
        if self.highest > 0.0:
            self.reach = self.highest

    def cost(self, x: Features) -> float | None:
        """Seconds that a step of content `x` should take; None while too little is known, or of so much more prefill than
        was ever taught."""
        if self.samples < USABLE_SAMPLES or self.solved_at is None:
            return None
        if x[2] > max(FARTHEST * self.reach, LEAST_REACH):
            return None
        theta = self.theta
        total = theta[0] * x[0] + theta[1] * x[1] + theta[2] * x[2] + theta[3] * x[3] + theta[4] * x[4]
        return total if total > 0 else None

    def exported(self) -> list[float]:
        """The model as 21 plain numbers: the upper triangle, the targets, the count."""
        upper = [self.moments[a][b] for a in range(SIZE) for b in range(a, SIZE)]
        return [*upper, *self.targets, float(self.samples)]

    @classmethod
    def imported(cls, numbers: Sequence[float]) -> "CostModel":
        """The model that `exported` gave these numbers; ValueError where they can't be one."""
        if len(numbers) != 21 or not all(math.isfinite(n) for n in numbers) or numbers[20] < 0:
            raise ValueError("not the 21 finite numbers of a step-cost model")
        model = cls(targets=list(numbers[15:20]), samples=int(numbers[20]))
        places = [(a, b) for a in range(SIZE) for b in range(a, SIZE)]
        for (a, b), number in zip(places, numbers[:15], strict=True):
            model.moments[a][b] = model.moments[b][a] = number
        if model.samples >= USABLE_SAMPLES:
            model.solve(-math.inf)
        return model
