"""`replicas`: enough that the pool carries its peak with one instance less."""

import math
from typing import Final

from kintsugi.core.advisor.advice import Answer, Missing, suggestion
from kintsugi.core.advisor.look import Look
from kintsugi.core.advisor.sequences import GROWING, kv_per_request, percent
from kintsugi.core.advisor.settings import PoolSettings
from kintsugi.core.advisor.traffic import PoolTraffic, moments_of
from kintsugi.core.series import Signal

FULL: Final = 0.85
"""Share of an instance that may be in use at the peak after one has failed."""
PEAK: Final = 0.95
"""The peak is the load that is not exceeded at this share of the looks."""
SLACK: Final = 0.15
"""Part of an instance by which a need must pass the present number before it is spoken of."""
QUIET_SECONDS: Final = 3600.0
"""Window below which nobody is told to run fewer: the peak may lie outside of it."""


def replicas(settings: PoolSettings, traffic: PoolTraffic) -> Answer:
    """Advice on the number of instances of one pool."""
    path, current = settings.replicas_path, settings.replicas
    limit = settings.sequences.value if settings.sequences else None
    loads = _loads(traffic, limit)
    if loads is None:
        return Missing(
            traffic.pool, path, "vllm:kv_cache_usage_perc is missing, and so is the limit maxNumSeqs"
        )
    peak = sorted(loads)[min(len(loads) - 1, int(PEAK * len(loads)))]
    if peak <= 0:
        return None
    growth = max(1.0, traffic.arrived / traffic.requests)
    if growth > GROWING:
        peak *= growth
    exact = peak / FULL + 1
    needed = math.ceil(exact - SLACK)
    seen = (
        f"At the peak ({PEAK:.0%} of looks lie below) the pool had work for {peak:.2f} instances"
        f"{'' if limit is None else f' (places of {limit:.0f} requests, or KV, whichever is nearer to full)'}"
        f"{_growth(growth)}{_queue(traffic)}. {peak:.2f} / {FULL:g} = {peak / FULL:.2f} carry that, one more replaces a failed one."
    )
    if needed > current:
        return suggestion(traffic, path, current, needed, seen)
    if math.ceil(exact + SLACK) >= current or len(traffic.instances) < current:
        return None
    if traffic.seconds < QUIET_SECONDS:
        why = (
            f"{math.ceil(exact)} of {current} instances would have carried the last {traffic.seconds:.0f} s, but a window "
            f"below {QUIET_SECONDS:.0f} s does not show the day's peak"
        )
        return Missing(traffic.pool, path, why)
    return suggestion(
        traffic, path, current, math.ceil(exact + SLACK), f"{seen} The window must hold your peak."
    )


def _loads(traffic: PoolTraffic, limit: float | None) -> list[float] | None:
    """Work in hand at each look of the first instance, in instances: the nearest look of every other one is added.

    A full instance counts as one, however long its queue: what comes beyond that shows in the rate of arrivals.
    """
    moments = [m for m in traffic.moments() if m.kv is not None and m.running > 0]
    each = kv_per_request(moments) if moments else 0.0
    if limit is None and not moments:
        return None
    first, others = traffic.instances[0], traffic.instances[1:]
    out = []
    for look in first.looks:
        near = [min(o.looks, key=lambda one: abs(one.sample.mono - look.sample.mono)) for o in others]
        out.append(math.fsum(_load(one, limit, each) for one in (look, *near)))
    return out


def _load(look: Look, limit: float | None, each: float) -> float:
    """How full one instance is, 0 to 1, as the mean of its ranks."""
    shares = []
    for m in moments_of(look):
        by_kv = (m.kv or 0.0) + m.waiting * each
        by_places = (m.running + m.waiting) / limit if limit else 0.0
        shares.append(min(1.0, max(by_kv, by_places)))
    return math.fsum(shares) / len(shares) if shares else 0.0


def _growth(growth: float) -> str:
    return f"; {growth:.2f} requests came for each that ended" if growth > GROWING else ""


def _queue(traffic: PoolTraffic) -> str:
    total, count = traffic.gained_sum(Signal.QUEUE_SUM), traffic.gained_sum(Signal.QUEUE_COUNT)
    if not count or total is None:
        return ""
    busy = math.fsum(m.kv or 0.0 for m in traffic.moments()) / max(1, len(traffic.moments()))
    return f", requests queued {total / count:.2f} s on average and {percent(busy)} of KV were in use"
