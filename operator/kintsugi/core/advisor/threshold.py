"""`context.maxTokens` between two pools: the length at which both caches are equally full."""

import math
from collections.abc import Callable
from typing import Final

from kintsugi.core.advisor.advice import MIN_REQUESTS, Answer, Missing, confidence_of, suggestion, worth_it
from kintsugi.core.advisor.histogram import Histogram
from kintsugi.core.advisor.lengths import below, lengths
from kintsugi.core.advisor.sequences import percent
from kintsugi.core.advisor.settings import PoolSettings
from kintsugi.core.advisor.traffic import PoolTraffic

APART: Final = 0.15
"""Difference of two pools' KV usage (of 1) from which on a shift is worth while."""
LEAST: Final = 1024.0
FINE: Final = 8192.0
"""Below this a threshold is a multiple of 256, from it on of 1,024."""
FALLBACK_BLOCK: Final = (256, 0)
"""Tokens of a block and blocks fixed per request where the model's layout is not known."""


def threshold(short: tuple[PoolSettings, PoolTraffic], long: tuple[PoolSettings, PoolTraffic]) -> Answer:
    """Advice on the longest request of the `short` one of two neighbouring pools."""
    settings, traffic = short
    path = f"{settings.path}.context.maxTokens"
    if settings.max_tokens is None:
        return None
    for _, each in (short, long):
        if each.requests < MIN_REQUESTS:
            why = f"pool {each.pool} finished {each.requests:.0f} requests, at least {MIN_REQUESTS:.0f} are needed"
            return Missing(traffic.pool, path, why)
    held = [_held(each, one) for one, each in (short, long)]
    if held[0] is None or held[1] is None:
        why = "a pool's page lacks vllm:kv_cache_usage_perc, num_gpu_blocks or the histograms of lengths"
        return Missing(traffic.pool, path, why)
    (used, room, mass), (used_long, room_long, mass_long) = held[0], held[1]
    usage, usage_long = used / room, used_long / room_long
    if abs(usage - usage_long) < APART:
        return None
    current = float(settings.max_tokens)

    def above_balance(limit: float) -> float:
        """How much fuller the short pool would be than the long one."""
        short_held = mass(limit) + mass_long(limit)
        return short_held / room - (used + used_long - short_held) / room_long

    most = (long[0].max_tokens or 2 * current) / 2
    suggested = _rounded(_balance(above_balance, LEAST, max(LEAST, most)))
    if (suggested < current) != (usage > usage_long) or not worth_it(current, suggested):
        return None
    after = (mass(suggested) + mass_long(suggested)) / room
    after_long = (used + used_long - after * room) / room_long
    why = (
        f"Pool {traffic.pool} holds {percent(usage)} of its KV blocks on average, pool {long[1].pool} "
        f"{percent(usage_long)}. Spread over the lengths that both saw (prompt plus the mean answer, a request's blocks "
        f"by its length), a limit of {suggested:.0f} tokens would leave {percent(after)} and {percent(after_long)}. "
        f"Check that maxModelLen of the pool allows it."
    )
    confidence = confidence_of(traffic if traffic.requests < long[1].requests else long[1])
    return suggestion(traffic, path, current, suggested, why, confidence)


def _held(
    traffic: PoolTraffic, settings: PoolSettings
) -> tuple[float, float, Callable[[float], float]] | None:
    """(blocks held on average, blocks of the pool, blocks held by requests up to a length)."""
    usage, blocks, found = traffic.mean_kv(), traffic.blocks(), lengths(traffic)
    if usage is None or blocks is None or found is None or found.count <= 0:
        return None
    room = blocks * sum(i.ranks for i in traffic.instances)
    weights = _weights(found, settings)
    whole = math.fsum(weights.values())
    held = usage * room

    def up_to(limit: float) -> float:
        return held * math.fsum(weights[b.low, b.high] * below(b, limit) for b in found) / whole

    return held, room, up_to


def _weights(found: Histogram, settings: PoolSettings) -> dict[tuple[float, float], float]:
    layout = settings.model.kv if settings.model else None
    tokens, fixed = (layout.block_tokens, layout.fixed_blocks[1]) if layout else FALLBACK_BLOCK
    return {(b.low, b.high): b.count * (math.ceil(b.middle / tokens) + fixed) for b in found}


def _balance(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function crosses zero, or the nearer end."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def _rounded(tokens: float) -> float:
    step = 256 if tokens < FINE else 1024
    return max(LEAST, round(tokens / step) * step)
