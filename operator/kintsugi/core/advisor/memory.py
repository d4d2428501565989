"""`gpuMemoryUtilization`: more where the KV cache is what requests wait for and GPU memory lies idle."""

import math
from typing import Final

from kintsugi.core.advisor.advice import Answer, suggestion
from kintsugi.core.advisor.sequences import percent
from kintsugi.core.advisor.settings import PoolSettings, Setting, said_elsewhere
from kintsugi.core.advisor.traffic import PoolTraffic

USUAL: Final = 0.92
"""vLLM's own default (vllm/config/cache.py:80): more is for recipes that were tried."""
FULL_KV: Final = 0.95
FULL_SHARE: Final = 0.2
"""The cache is short where it is so full at this share of the looks, with requests waiting or thrown out."""
LEAST_GAIN: Final = 0.02
"""Smaller steps of the setting are not suggested."""


def memory_utilization(settings: PoolSettings, traffic: PoolTraffic) -> Answer:
    """Advice on `gpuMemoryUtilization`."""
    path = settings.argument("gpuMemoryUtilization")
    current = _in_force(settings.memory_utilization, traffic)
    moments = [m for m in traffic.moments() if m.kv is not None]
    if current is None or not moments or USUAL - current.value < LEAST_GAIN:
        return None
    full = [m for m in moments if (m.kv or 0.0) >= FULL_KV]
    pressed = (traffic.gained("preemptions") or 0.0) >= 1 or any(m.waiting >= 1 for m in full)
    if len(full) < FULL_SHARE * len(moments) or not pressed:
        return None
    why = (
        f"In {len(full)} of {len(moments)} looks at least {percent(FULL_KV)} of KV were in use while requests waited or "
        f"were thrown out, and the engine leaves {percent(1 - current.value)} of GPU memory alone. "
        f"{_gain(settings, traffic, USUAL - current.value)}The rest must hold what the engine does not count: other "
        f"processes on the GPU, and graphs where they are captured late."
    )
    return suggestion(traffic, path, current.value, USUAL, why + said_elsewhere(current, path))


def _in_force(said: Setting | None, traffic: PoolTraffic) -> Setting | None:
    """What the engines' own pages say, the least of them; else what the manifest says."""
    known = [i.facts.memory_utilization for i in traffic.instances if i.facts.memory_utilization is not None]
    if not known:
        return said
    return said if said and said.value == min(known) else Setting(min(known), "vllm:cache_config_info")


def _gain(settings: PoolSettings, traffic: PoolTraffic, more: float) -> str:
    """What it adds, where the GPU and the model's blocks are known."""
    layout = settings.model.kv if settings.model else None
    blocks = traffic.blocks()
    if layout is None or settings.gpu is None or blocks is None or not layout.block_bytes:
        return ""
    each = max(size for _, size in layout.block_bytes)
    gained = math.floor(more * settings.gpu.memory_bytes / each)
    return (
        f"{percent(more)} of {settings.gpu.name} are about {gained} more KV blocks beside {blocks:.0f} "
        f"({percent(gained / blocks)}). "
    )
