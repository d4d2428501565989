"""`blockSize`, for families where it is free: the unwritten end of each request's last block."""

from typing import Final

from kintsugi.core.advisor.advice import Answer, Missing, suggestion
from kintsugi.core.advisor.histogram import Histogram
from kintsugi.core.advisor.lengths import lengths
from kintsugi.core.advisor.sequences import percent
from kintsugi.core.advisor.settings import PoolSettings, said_elsewhere
from kintsugi.core.advisor.traffic import PoolTraffic
from kintsugi.core.catalog.entities import KvLayout
from kintsugi.core.planner.waste import SIZES, block_waste

POINTS: Final = 61
"""Requests that stand for one bucket; odd, so that their distance is no multiple of a block."""
TOO_MUCH: Final = 0.05
SMALL: Final = 0.02
"""Waste from which on another size is suggested, and the waste that is small enough: smaller blocks cost longer tables."""


def block_size(settings: PoolSettings, traffic: PoolTraffic) -> Answer:
    """Advice on `blockSize`; None where the family has only one."""
    path = settings.argument("blockSize")
    model = settings.model
    if model is None or len(model.block_sizes) == 1:
        return None
    if (layout := model.kv) is None:
        return Missing(traffic.pool, path, "the catalog does not know how this model keeps its KV cache")
    found = lengths(traffic)
    if found is None or found.count <= 0:
        return Missing(
            traffic.pool, path, "vllm:request_prompt_tokens or vllm:request_generation_tokens is missing"
        )
    current = settings.block_tokens.value if settings.block_tokens else _from_page(traffic)
    if current is None:
        return Missing(traffic.pool, path, "the size in force is not known: say engine.args.blockSize")
    now = waste(found, int(current), layout)
    sizes = sorted((s for s in model.block_sizes or SIZES if s < current), reverse=True)
    better = next((s for s in sizes if waste(found, s, layout) <= SMALL), None)
    if now < TOO_MUCH or better is None:
        return None
    why = (
        f"At the lengths seen (median {found.quantile(0.5):.0f} tokens) the last block of a request leaves "
        f"{percent(now)} of its KV unwritten with blocks of {current:.0f}, {percent(waste(found, better, layout))} with "
        f"{better}. Smaller blocks mean longer block tables: compare both before you keep it."
    )
    note = said_elsewhere(settings.block_tokens, path) if settings.block_tokens else ""
    return suggestion(traffic, path, current, better, why + note)


def waste(found: Histogram, size: int, layout: KvLayout) -> float:
    """The share of KV slots that requests hold and never write, by the planner's arithmetic."""
    rows = block_waste(layout, (size,), _spread(found))
    return next((row.percent / 100 for row in rows if row.block_size == size), 0.0)


def _spread(found: Histogram) -> dict[int, float]:
    """Lengths with their weights: each bucket as POINTS requests at equal distances."""
    out: dict[int, float] = {}
    for bucket in found:
        step = (bucket.high - bucket.low) / POINTS
        for point in range(POINTS):
            length = max(1, round(bucket.low + (point + 0.5) * step))
            out[length] = out.get(length, 0.0) + bucket.count / POINTS
    return out


def _from_page(traffic: PoolTraffic) -> float | None:
    known = {i.facts.block_tokens for i in traffic.instances}
    only = known.pop() if len(known) == 1 else None
    return None if only is None else float(only)
