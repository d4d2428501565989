"""`blockSize`, for families where it is free: the unwritten end of each request's last block."""

import math
from typing import Final

from kintsugi.core.advisor.advice import Answer, Missing, suggestion
from kintsugi.core.advisor.histogram import Histogram
from kintsugi.core.advisor.lengths import lengths
from kintsugi.core.advisor.sequences import percent
from kintsugi.core.advisor.settings import PoolSettings, said_elsewhere
from kintsugi.core.advisor.traffic import PoolTraffic

USUAL_SIZES: Final = (16, 32, 64, 128, 256)
"""Sizes compared where the family takes any."""
TOO_MUCH: Final = 0.05
SMALL: Final = 0.02
"""Waste from which on another size is suggested, and the waste that is small enough: smaller blocks cost longer tables."""


def block_size(settings: PoolSettings, traffic: PoolTraffic) -> Answer:
    """Advice on `blockSize`; None where the family has only one."""
    path = settings.argument("blockSize")
    model = settings.model
    if model is None or len(model.block_sizes) == 1:
        return None
    found = lengths(traffic)
    if found is None or found.count <= 0:
        return Missing(
            traffic.pool, path, "vllm:request_prompt_tokens or vllm:request_generation_tokens is missing"
        )
    current = settings.block_tokens.value if settings.block_tokens else _from_page(traffic)
    if current is None:
        return Missing(traffic.pool, path, "the size in force is not known: say engine.args.blockSize")
    now = waste(found, int(current))
    sizes = sorted((s for s in model.block_sizes or USUAL_SIZES if s < current), reverse=True)
    better = next((s for s in sizes if waste(found, s) <= SMALL), None)
    if now < TOO_MUCH or better is None:
        return None
    why = (
        f"At the lengths seen (median {found.quantile(0.5):.0f} tokens) the last block of a request leaves "
        f"{percent(now)} of its KV unwritten with blocks of {current:.0f}, {percent(waste(found, better))} with "
        f"{better}. Smaller blocks mean longer block tables: compare both before you keep it."
    )
    note = said_elsewhere(settings.block_tokens, path) if settings.block_tokens else ""
    return suggestion(traffic, path, current, better, why + note)


def waste(found: Histogram, size: int) -> float:
    """The share of KV slots that requests hold and never write, half a block each where a bucket is wider than one."""
    held = written = 0.0
    for bucket in found:
        if bucket.high - bucket.low >= size:
            slots = bucket.middle + size / 2
        else:
            slots = math.ceil(bucket.middle / size) * size
        held += bucket.count * slots
        written += bucket.count * bucket.middle
    return 1 - written / held if held > 0 else 0.0


def _from_page(traffic: PoolTraffic) -> float | None:
    known = {i.facts.block_tokens for i in traffic.instances}
    only = known.pop() if len(known) == 1 else None
    return None if only is None else float(only)
