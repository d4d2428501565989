"""What kind of pool it is: drawn once, so that a suite meets many. The mix is ours; nobody publishes one.

Prompts and answers are lognormal, with medians and spreads of the slow paper §6 (prompts of a few hundred to thirty
thousand tokens, in long pools up to a million; answers of a few hundred).
"""

import math
import random
from dataclasses import dataclass, replace

from kintsugi.core.detect.stalled import SLOWEST_PREFILL
from kintsugi.testing.simulation.cost import CHUNK_TOKENS, StepCost, drawn
from kintsugi.testing.simulation.rank import Limits

HARSH_SPREAD = 0.12
"""Standard deviation between two instances' costs, in logarithms, in harsh pools (slow §6)."""
PLAIN_SPREAD = 0.02


@dataclass(frozen=True, slots=True)
class Temper:
    """One pool's nature. Seconds, tokens, shares."""

    size: int
    ranks: int
    limits: Limits
    cost: StepCost
    spread: float
    prompt: float
    prompt_spread: float
    longest: int
    giants: float
    """Share of requests that are as long as they can be."""
    output: float
    output_spread: float
    hits: float
    """Mean share of a prompt found in the prefix cache."""
    load: float
    """Mean load, as a share of what the pool can do."""
    day: float
    """Amplitude of the day."""
    idle: float
    """Share of the time in which nobody asks, in spans of minutes to hours."""
    lost: float
    """Share of scrapes that are lost."""
    pauses: float
    """How many times as often as usual the engine pauses."""
    reload_median: float
    least_request: bool = True
    """The router gives a request to the less loaded of two; else to anybody (by prefix, by turns)."""
    telemetry: float = 1.0
    """Share of instances that have our telemetry."""
    longest_prefill: float = 0.0
    """Seconds that the longest prompt takes, computed as a whole; 0 where prefill is chunked."""

    @property
    def longest_prompt(self) -> int:
        """What `Instance.longest_prompt` says. Whole prefills are as slow as is assumed of any engine at most."""
        return round(max(self.longest, self.longest_prefill * SLOWEST_PREFILL))

    def capacity(self) -> float:
        """Requests a second that one rank can serve."""
        seqs = self.limits.seqs
        prompt = self.prompt * math.exp(self.prompt_spread**2 / 2) * (1 - self.hits)
        prompt += self.giants * self.longest
        output = self.output * math.exp(self.output_spread**2 / 2) / self.limits.accepted
        step = self.cost.table(seqs)[seqs] + 0.5 * self.cost.context
        chunk = self.limits.chunk or self.longest
        return 1 / (prompt * (self.cost.prompt + step / chunk) + output * step / seqs)


def draw_temper(luck: random.Random, size: int | None = None, ranks: int | None = None) -> Temper:
    """A pool as it may be met."""
    kind = luck.random()
    cost = drawn(luck)
    seqs = luck.choice((8, 16, 32, 64))
    long = kind < 0.12
    prompt = luck.uniform(20_000, 60_000) if long else math.exp(luck.uniform(math.log(200), math.log(4_000)))
    longest = luck.choice((300_000, 1_000_000)) if long else luck.choice((16_000, 32_000))
    temper = Temper(
        size=size or luck.choices((1, 2, 3, 4, 8), (2, 6, 6, 6, 1))[0],
        ranks=ranks or (2 if luck.random() < 0.15 else 1),
        limits=Limits(
            seqs=seqs,
            kv_tokens=max(2 * longest, round(seqs * prompt * luck.uniform(1.5, 4.0))),
            chunk=luck.choice((2048, CHUNK_TOKENS)),
            accepted=1.0 if luck.random() < 0.4 else luck.uniform(1.3, 3.5),
        ),
        cost=cost,
        spread=HARSH_SPREAD if luck.random() < 0.5 else PLAIN_SPREAD,
        prompt=prompt,
        prompt_spread=luck.uniform(0.6, 1.4),
        longest=longest,
        giants=luck.choice((0.0, 0.0, 0.002)),
        output=math.exp(luck.uniform(math.log(80), math.log(500))),
        output_spread=luck.uniform(0.5, 0.9),
        hits=luck.uniform(0.0, 0.8),
        load=luck.uniform(0.02, 0.7),
        day=luck.uniform(0.0, 0.9),
        idle=luck.choice((0.0, 0.0, 0.3, 0.8)),
        lost=luck.choice((0.0, 0.01, 0.02, 0.05)),
        pauses=luck.choice((1.0, 1.0, 1.0, 5.0)),
        reload_median=luck.uniform(6, 25),
        least_request=luck.random() < 0.5,
        telemetry=luck.choices((1.0, 0.7, 0.0), (7, 2, 1))[0],
    )
    return _unchunked(temper, luck) if luck.random() < 0.08 else temper


def _unchunked(temper: Temper, luck: random.Random) -> Temper:
    """An engine that computes every prompt in one step, however long that takes (sparse attention on some backends)."""
    seconds = luck.uniform(40, 280)
    rate = seconds / temper.longest
    cost = replace(temper.cost, prompt=rate, attention=rate / 4)
    limits = replace(temper.limits, chunk=None)
    return replace(temper, limits=limits, cost=cost, longest_prefill=1.3 * seconds, giants=0.002, load=0.3)
