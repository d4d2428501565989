"""How fragmentation behaves over a process's life, in percent (hang paper §3).

Healthy shapes stay below the trigger's line but for spikes, or were above it from the start. A hump of an hour above
the line is not among them: the trigger's own definition calls it fragmented.
"""

import math
import random
from dataclasses import dataclass

SPIKES_PER_HOUR = 2.0


@dataclass(slots=True)
class Shape:
    """Level and noise; a spike now and then; a ramp where a fault made one."""

    level: float
    noise: float
    hump: float = 0.0
    """Points that the day adds and takes."""
    spikes: float = 0.0
    """By the hour, of 5 to 95 s."""
    spike_until: float = -1.0
    ramp_from: float | None = None
    ramp_seconds: float = 1.0
    ramp_to: float = 0.0

    def true(self, t: float) -> float:
        """The level without noise and spikes."""
        level = self.level + self.hump * math.sin(2 * math.pi * t / 14_400)
        if self.ramp_from is not None and t > self.ramp_from:
            share = min(1.0, (t - self.ramp_from) / self.ramp_seconds)
            level += share * (self.ramp_to - self.level)
        return level

    def at(self, t: float, seconds: float, luck: random.Random) -> float:
        """What a sample of this moment says, percent; `seconds` since the last one."""
        if self.spikes and luck.random() < self.spikes * seconds / 3_600:
            self.spike_until = t + luck.uniform(5, 95)
        if t < self.spike_until:
            return luck.uniform(30, 80)
        return max(0.0, luck.gauss(self.true(t), self.noise))

    def crosses(self, line: float) -> float | None:
        """When the ramp passes `line`; None where it never does."""
        if self.ramp_from is None or self.ramp_to <= line:
            return None
        return self.ramp_from + self.ramp_seconds * (line - self.level) / (self.ramp_to - self.level)


def draw_shape(luck: random.Random, calm: bool = False) -> Shape:
    """A healthy process. `calm`: one that may be made to ramp."""
    if calm:
        return Shape(luck.uniform(2, 16), luck.uniform(0.2, 1.5), spikes=luck.choice((0.0, 1.0)))
    kind = luck.random()
    if kind < 0.55:
        return Shape(luck.uniform(1, 12), luck.uniform(0.1, 1.0), luck.uniform(0, 3))
    if kind < 0.75:
        return Shape(luck.uniform(10, 18), luck.uniform(0.5, 1.5), luck.uniform(0, 4), SPIKES_PER_HOUR)
    if kind < 0.9:
        return Shape(luck.uniform(19, 22), luck.uniform(0.5, 1.2), luck.uniform(0, 1))
    return Shape(luck.uniform(26, 40), luck.uniform(0.5, 2.0), luck.uniform(0, 1))
