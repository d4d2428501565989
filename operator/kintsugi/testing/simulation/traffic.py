"""When requests come to a pool, and how long they are: a day's curve, a slow wander, bursts, hours in which nobody asks."""

import math
import random
from functools import lru_cache
from statistics import NormalDist

from kintsugi.testing.simulation.rank import Request
from kintsugi.testing.simulation.temper import Temper

DAY_SECONDS = 86_400.0
WANDER = 0.35
"""Standard deviation of the logarithm of the slow wander of load."""
WANDER_SECONDS = 3_600.0
BURSTS_PER_HOUR = 0.3
MINUTE = 60.0
MOST_ARRIVALS = 400
"""Of one tick; clients beyond that have gone away."""
SHORTEST = 8
"""Tokens of a prompt."""
MOST_OUTPUT = 8_192
NORMALS = 4_096
NORMAL = tuple(NormalDist().inv_cdf((n + 0.5) / NORMALS) for n in range(NORMALS))
"""The standard normal distribution in as many equal shares, up to 3.7 deviations: a draw takes a fifth of the time that
`gauss` takes, and a suite makes a hundred million."""


class Traffic:
    """The requests of one pool."""

    def __init__(self, temper: Temper, luck: random.Random) -> None:
        self._temper = temper
        self._luck = luck
        self._peak = temper.load * temper.capacity() * temper.size * temper.ranks
        self._phase = luck.random() * DAY_SECONDS
        self._wander = luck.gauss(0, WANDER)
        self._burst_until = -1.0
        self._burst = 1.0
        self._minute = -1.0
        self._quiet_until = -1.0
        self._awake_until = luck.expovariate(1 / 3_600)
        self._most = math.inf
        self.failing = 0.0
        """Share of requests that fail whoever serves them."""
        self._prompt = math.log(temper.prompt)
        self._output = math.log(temper.output)
        self._longest = temper.longest
        self._shift = 0.0
        self._shift_until = -1.0

    def silence(self) -> None:
        """From now on nobody asks."""
        self._peak = 0.0

    def at_least(self, rate: float) -> float:
        """From now on the whole pool gets `rate` requests a second on average, if it got fewer; what it gets."""
        self._peak = max(self._peak, rate)
        return self._peak

    def keeps_within(self, share: float) -> None:
        """From now on no more comes in a second than this share of what the pool can do, bursts included."""
        temper = self._temper
        self._most = share * temper.capacity() * temper.size * temper.ranks

    def no_longer_than(self, tokens: int) -> None:
        """From now on no prompt is longer, and half of them are a quarter of it or shorter."""
        self._longest = min(self._longest, tokens)
        self._prompt = min(self._prompt, math.log(tokens / 4))

    def rate(self, t: float) -> float:
        """Requests a second of the whole pool."""
        luck, temper = self._luck, self._temper
        if t - self._minute >= MINUTE:
            self._minute = t
            keep = math.exp(-MINUTE / WANDER_SECONDS)
            self._wander = self._wander * keep + luck.gauss(0, WANDER) * math.sqrt(1 - keep * keep)
            if luck.random() < BURSTS_PER_HOUR * MINUTE / 3_600:
                self._burst_until, self._burst = t + luck.uniform(30, 600), luck.uniform(1.5, 4.0)
            if t > self._shift_until:
                shifts = luck.random() < 0.1 * MINUTE / 3_600
                self._shift_until = t + luck.uniform(600, 7_200) if shifts else t
                self._shift = luck.gauss(0, 0.5) if shifts else 0.0
            self._sleep(t)
        if t < self._quiet_until:
            return 0.0
        day = 1 + temper.day * math.sin(2 * math.pi * (t + self._phase) / DAY_SECONDS)
        burst = self._burst if t < self._burst_until else 1.0
        return min(self._most, self._peak * day * math.exp(self._wander) * burst)

    def _sleep(self, t: float) -> None:
        if self._temper.idle <= 0 or t < self._quiet_until or t < self._awake_until:
            return
        quiet = self._luck.expovariate(1 / 3_600)
        self._quiet_until = t + quiet
        wake = 3_600 * (1 - self._temper.idle) / self._temper.idle
        self._awake_until = self._quiet_until + self._luck.expovariate(1 / wake)

    def arrivals(self, t: float, seconds: float) -> list[Request]:
        """The requests that come between `t` and `t + seconds`, in order."""
        draw, temper = self._luck.random, self._temper
        count = min(MOST_ARRIVALS, poisson(self._luck, self.rate(t) * seconds))
        times = sorted([t + seconds * draw() for _ in range(count)])
        if not times:
            return []
        hits, giants, failing = temper.hits, temper.giants, self.failing
        prompts = lengths(self._prompt + self._shift, temper.prompt_spread, SHORTEST, self._longest)
        outputs = lengths(self._output, temper.output_spread, 1, MOST_OUTPUT)
        found = []
        for at in times:
            prompt = prompts[int(NORMALS * draw())]
            hit = hits * draw() * 1.25
            if giants and draw() < giants:
                prompt, hit = temper.longest, 0.0
            output = outputs[int(NORMALS * draw())]
            fails = failing > 0 and draw() < failing
            found.append(Request(prompt, int(prompt * (1 - hit)) or 1, output, at, fails))
        return found


@lru_cache(maxsize=64)
def lengths(center: float, spread: float, least: int, most: int) -> tuple[int, ...]:
    """Tokens, for each equal share of a lognormal distribution whose logarithm has this center and spread."""
    drawn = [int(math.exp(center + spread * normal)) for normal in NORMAL]
    return tuple([least if tokens < least else min(tokens, most) for tokens in drawn])


def poisson(luck: random.Random, mean: float) -> int:
    """A Poisson number; beyond 30 by its normal limit."""
    if mean <= 0:
        return 0
    if mean > 30:
        return max(0, round(luck.gauss(mean, math.sqrt(mean))))
    limit, k, product = math.exp(-mean), 0, luck.random()
    while product > limit:
        k += 1
        product *= luck.random()
    return k
