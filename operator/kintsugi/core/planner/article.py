"""The simple capacity formula that many articles give, beside the one that holds."""

from dataclasses import dataclass

from kintsugi.core.planner.figure import Figure
from kintsugi.core.planner.kv import Blocks
from kintsugi.core.planner.memory import GpuMemory
from kintsugi.core.planner.settings import Settings


@dataclass(frozen=True, slots=True)
class Formulas:
    """GPU memory of one instance for `sequences` requests of `mean_length` tokens, in bytes."""

    sequences: int
    mean_length: int
    bytes_per_token: float
    simple: float
    """weights + max_num_seqs x mean length x bytes per token."""
    corrected: Figure
    """Weights and runtime on every GPU, and each rank's own copy of the blocks: fixed ones and the prefill's too."""


def both_formulas(
    checkpoint_bytes: int,
    memory: GpuMemory,
    blocks: Blocks,
    settings: Settings,
    sequences: int,
    mean_length: int,
) -> Formulas:
    """Both formulas for the same load; `sequences` are those of one engine."""
    per_token = blocks.bytes * settings.pipeline_parallel / blocks.tokens
    everyone = sequences * settings.data_parallel
    simple = checkpoint_bytes + everyone * mean_length * per_token
    held = (sequences * blocks.request(mean_length) + blocks.spike) * float(blocks.bytes)
    kv = Figure(held, held, held, "assumed", "blocks of the requests and of one prefill")
    per_gpu = memory.weights.plus(memory.reserve, "").plus(kv, "")
    source = f"(weights + reserve + KV) x {settings.gpus} GPUs; each TP rank holds the same KV"
    return Formulas(everyone, mean_length, per_token, float(simple), per_gpu.scaled(settings.gpus, source))
