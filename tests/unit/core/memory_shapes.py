"""Shapes of anonymous memory over a week, seeded: what pools, traffic and leaks do to it (hang paper §2)."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

GIB = 2.0**30
LIMIT = 64.0
"""GiB."""
MINUTE = 60.0
DAY = 24 * 60
"""Minutes."""


@dataclass(frozen=True, slots=True)
class Series:
    """One sample a minute, GiB. `dies`: the minute in which the limit is reached, None where it never is."""

    levels: list[float]
    dies: int | None = None


@dataclass
class Make:
    """The parts of one series, drawn from one seed."""

    seed: int
    minutes: int
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def noise(self, deviation: float, memory: float = 0.98) -> Iterator[float]:
        """Noise that remembers: each minute keeps most of the one before."""
        value, fresh = 0.0, deviation * math.sqrt(1 - memory**2)
        while True:
            value = memory * value + self.rng.gauss(0.0, fresh)
            yield value

    def between(self, low: float, high: float) -> float:
        return self.rng.uniform(low, high)

    def healthy(self, shape: Callable[[float], float]) -> Series:
        """`shape` of the hours since the start on top of a base; its peak lies between 55 and 93 % of the limit."""
        base, noise = self.between(18, 30), self.noise(0.4)
        warm, rise = self.between(2, 6), self.between(0.3, 2)
        raw = [
            warm * (1 - math.exp(-m / 60 / rise)) + shape(m / 60) + next(noise) for m in range(self.minutes)
        ]
        scale = (self.between(0.55, 0.93) * LIMIT - base) / max(raw)
        return Series([base + value * scale for value in raw])

    def leak(self, shape: Callable[[float], float]) -> Series:
        """The same without a ceiling, until the limit."""
        base, noise = self.between(18, 30), self.noise(0.4)
        warm, rise = self.between(2, 6), self.between(0.3, 2)
        levels = []
        for m in range(self.minutes):
            level = base + warm * (1 - math.exp(-m / 60 / rise)) + shape(m / 60) + next(noise)
            levels.append(level)
            if level > LIMIT:
                return Series(levels, m)
        return Series(levels)


def _day(hours: float, phase: float) -> float:
    return 0.5 + 0.5 * math.sin(2 * math.pi * (hours - phase) / 24)


def flat(make: Make) -> Series:
    return make.healthy(lambda _: 0.0)


def warm_up(make: Make) -> Series:
    amount, hours = make.between(8, 18), make.between(2, 8)
    return make.healthy(lambda t: amount * (1 - math.exp(-t / hours)))


def daily(make: Make) -> Series:
    amount, phase = make.between(6, 20), make.between(0, 24)
    return make.healthy(lambda t: amount * _day(t, phase) ** 2)


def sawtooth(make: Make) -> Series:
    period, amount = make.between(0.5, 9), make.between(4, 20)
    return make.healthy(lambda t: amount * (t / period % 1))


def steps(make: Make) -> Series:
    rises = [
        (make.between(3, make.minutes / 60), make.between(1.5, 6)) for _ in range(make.rng.randint(2, 4))
    ]
    return make.healthy(lambda t: sum(height for at, height in rises if t > at))


def fast_leak(make: Make) -> Series:
    rate, start = make.between(4, 10), make.between(2, 30)
    return make.leak(lambda t: rate * max(0.0, t - start))


def leak(make: Make) -> Series:
    rate, start = make.between(0.5, 3), make.between(2, 30)
    return make.leak(lambda t: rate * max(0.0, t - start))


def slow_leak(make: Make) -> Series:
    rate, start = make.between(0.22, 0.4), make.between(2, 30)
    return make.leak(lambda t: rate * max(0.0, t - start))


def sawtooth_leak(make: Make) -> Series:
    rate, start = make.between(0.6, 2), make.between(2, 30)
    amount, period = make.between(3, 10), make.between(1, 6)
    return make.leak(lambda t: rate * max(0.0, t - start) + amount * (t / period % 1))


HEALTHY = {"flat": flat, "warm-up": warm_up, "daily": daily, "sawtooth": sawtooth, "steps": steps}
LEAKS = {"fast": fast_leak, "steady": leak, "slow": slow_leak, "sawtooth": sawtooth_leak}
