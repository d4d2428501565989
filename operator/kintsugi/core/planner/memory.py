"""One GPU's memory, divided: weights, runtime, KV cache; and from that the blocks of one engine."""

from dataclasses import dataclass, replace

from kintsugi.core.catalog.entities import Gpu, Model
from kintsugi.core.planner.figure import Figure, exact
from kintsugi.core.planner.kv import Blocks
from kintsugi.core.planner.reserve import runtime_reserve
from kintsugi.core.planner.settings import Settings
from kintsugi.core.planner.weights import weights_per_gpu


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Bytes on each GPU of an instance."""

    total: Figure
    usable: Figure
    """What the engine may take: the share `--gpu-memory-utilization` of the total."""
    weights: Figure
    reserve: Figure
    kv: Figure
    """What is left; its low end may be 0. Below the middle it is never less than half of the optimistic end, since
    engines that start at all have something."""


def divide(model: Model, gpu: Gpu, settings: Settings) -> GpuMemory:
    """The division of one GPU. Figures below 0 are kept in `kv.low` and cut off by whoever counts blocks."""
    total = Figure(
        float(gpu.memory_bytes),
        float(gpu.memory_bytes),
        float(gpu.memory_bytes),
        gpu.confidence,
        f"catalog, {gpu.name}",
    )
    usable = total.scaled(settings.utilization, f"{settings.utilization:g} of {gpu.name}'s memory")
    weights = weights_per_gpu(model, settings)
    reserve = runtime_reserve(model, settings)
    if settings.kv_cache_memory_bytes:
        kv = exact(float(settings.kv_cache_memory_bytes), "--kv-cache-memory-bytes")
        return GpuMemory(total, total, weights, reserve, kv)
    left = usable.minus(weights.plus(reserve, ""), "usable memory less weights and reserve")
    middle = max(left.value, left.high / 2) if left.high > 0 else left.value
    return GpuMemory(total, usable, weights, reserve, replace(left, value=middle))


def engine_blocks(memory: GpuMemory, blocks: Blocks) -> Figure:
    """Blocks of one engine (DP rank): every GPU of it holds the same ones, or its own layers of them."""
    return memory.kv.scaled(1 / blocks.bytes, f"KV bytes / {blocks.bytes:,} bytes a block").floored()
