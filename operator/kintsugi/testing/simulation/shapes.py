"""How fragmentation behaves over a process's life, in percent (hang paper §3).

Healthy shapes stay below the trigger's line but for spikes, or were above it from the start. A hump of an hour above
the line is not among them: the trigger's own definition calls it fragmented.
"""

import math
import random
from dataclasses import dataclass

SPIKES_PER_HOUR = 2.0
SETTLE_FROM = 2_400.0
SETTLE_SECONDS = 3_600.0
BUMP_EVERY = 7_200.0
LONGEST_BUMP_SECONDS = 220.0
"""Less than half of the trigger's 600 s."""


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
    settles: float = 0.0
    """Points that it gains in its first `SETTLE_SECONDS`, after its reference is taken."""
    bumps: bool = False
    """Every two hours it is above the line for up to `LONGEST_BUMP_SECONDS`."""
    born: float = 0.0
    ramp_from: float | None = None
    ramp_seconds: float = 1.0
    ramp_to: float = 0.0

    def true(self, t: float) -> float:
        """The level without noise and spikes."""
        level = self.level
        if self.hump:
            level += self.hump * math.sin(2 * math.pi * t / 14_400)
        if self.settles:
            level += self.settles * min(1.0, max(0.0, (t - self.born - SETTLE_FROM) / SETTLE_SECONDS))
        if self.ramp_from is not None and t > self.ramp_from:
            share = min(1.0, (t - self.ramp_from) / self.ramp_seconds)
            level += share * (self.ramp_to - self.level)
        return level

    def at(self, t: float, seconds: float, luck: random.Random) -> float:
        """What a sample of this moment says, percent; `seconds` since the last one."""
        if self.spikes and luck.random() < self.spikes * seconds / 3_600:
            self.spike_until = t + luck.uniform(5, 95)
        if self.bumps and (t - self.born) % BUMP_EVERY > BUMP_EVERY - LONGEST_BUMP_SECONDS:
            return luck.uniform(26, 34)
        if t < self.spike_until:
            return luck.uniform(30, 80)
        return max(0.0, luck.gauss(self.true(t), self.noise))

    def crosses(self, line: float) -> float | None:
        """When the ramp passes `line`; None where it never does."""
        if self.ramp_from is None or self.ramp_to <= line:
            return None
        return self.ramp_from + self.ramp_seconds * (line - self.level) / (self.ramp_to - self.level)


def draw_shape(luck: random.Random, t: float, calm: bool = False) -> Shape:
    """A healthy process. `calm`: one that may be made to ramp."""
    if calm:
        return Shape(luck.uniform(2, 16), luck.uniform(0.2, 1.5), spikes=luck.choice((0.0, 1.0)))
    kind = luck.random()
    if kind < 0.2:
        first = luck.uniform(2, 7)
        settled = luck.uniform(15, 22)
        return Shape(first, luck.uniform(0.2, 0.8), settles=settled - first, bumps=settled > 20, born=t)
    if kind < 0.55:
        return Shape(luck.uniform(1, 12), luck.uniform(0.1, 1.0), luck.uniform(0, 3))
    if kind < 0.75:
        return Shape(luck.uniform(10, 18), luck.uniform(0.5, 1.5), luck.uniform(0, 4), SPIKES_PER_HOUR)
    if kind < 0.9:
        return Shape(luck.uniform(19, 22), luck.uniform(0.5, 1.2), luck.uniform(0, 1))
    return Shape(luck.uniform(26, 40), luck.uniform(0.5, 2.0), luck.uniform(0, 1))
