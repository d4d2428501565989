"""How much memory an engine's container holds over its process's life, as its own cgroup tells it (hang paper §2).

Healthy shapes are flat, warm up, swing with the day, climb and fall in hours, or fill a pool to its end. None of them
rises straight from above 70 % of the limit at a rate that would reach it within two hours: until such a fill ends, no
rule can tell it from a leak, and the paper's rule does not (7 % of its straight fills, 7 % of its highest swings).
"""

import math
import random
from dataclasses import dataclass

LIMIT_BYTES = 200.0 * 2**30
SAMPLE_SECONDS = 60.0
"""The figure is made anew this often; the judge keeps one a minute."""
NOISE = 0.003
"""Of the limit."""


@dataclass(slots=True)
class Memory:
    """Shares of the limit, and seconds."""

    born: float
    base: float
    gain: float = 0.0
    """What it takes up after its start, by and by."""
    gain_seconds: float = 1.0
    straight: bool = False
    swing: float = 0.0
    swing_seconds: float = 86_400.0
    saw: float = 0.0
    saw_seconds: float = 1.0
    leak_from: float = math.inf
    leak: float = 0.0
    """Of the limit, each second."""
    _told: float = 0.0
    _told_at: float = -math.inf

    def true(self, t: float) -> float:
        """The level without noise."""
        age = max(0.0, t - self.born)
        share = age / self.gain_seconds
        level = self.base + self.gain * (min(1.0, share) if self.straight else 1 - math.exp(-share))
        if self.swing:
            level += self.swing * math.sin(2 * math.pi * t / self.swing_seconds)
        if self.saw:
            level += self.saw * (age % self.saw_seconds) / self.saw_seconds
        return level + self.leak * max(0.0, t - self.leak_from)

    def bytes_at(self, t: float, luck: random.Random) -> float:
        """What the cgroup says now."""
        if t - self._told_at >= SAMPLE_SECONDS:
            self._told_at = t
            self._told = LIMIT_BYTES * min(1.0, max(0.01, self.true(t) + luck.gauss(0, NOISE)))
        return self._told


def draw_memory(luck: random.Random, t: float) -> Memory:
    """A healthy process."""
    kind = luck.random()
    if kind < 0.25:
        return Memory(t, luck.uniform(0.2, 0.9))
    if kind < 0.45:
        return Memory(t, luck.uniform(0.2, 0.6), luck.uniform(0.05, 0.25), luck.uniform(600, 3_600))
    if kind < 0.65:
        swing = luck.uniform(0.01, 0.06)
        return Memory(t, luck.uniform(0.3, 0.8) - swing, swing=swing, swing_seconds=86_400.0)
    if kind < 0.85:
        saw = luck.uniform(0.02, 0.12)
        return Memory(
            t, luck.uniform(0.3, 0.8) - saw, saw=saw, saw_seconds=luck.choice((1_800, 7_200, 36_000))
        )
    return Memory(t, luck.uniform(0.2, 0.35), luck.uniform(0.1, 0.32), luck.uniform(7_200, 36_000), True)
