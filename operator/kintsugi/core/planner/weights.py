"""Weights on each GPU: experts are spread over all of an instance's GPUs, the rest is copied to every DP rank."""

from typing import Final

from kintsugi.core.catalog.entities import Model
from kintsugi.core.planner.figure import Figure
from kintsugi.core.planner.settings import Settings

ROUTED: Final = {
    ("deepseek-v4", "Flash"): (6, 256),
    ("deepseek-v4", "Pro"): (6, 384),
    ("deepseek-v4.1", "Flash"): (6, 384),
    ("deepseek-v3", ""): (8, 256),
    ("deepseek-v3.2", ""): (8, 256),
}
"""Experts used per token, of all routed experts (the models' configurations; V4 in vLLM's `models/deepseek_v4`)."""
DENSE_BYTES_PER_PARAMETER: Final = 1.05
DENSE_BAND: Final = (0.9, 1.7)
"""What is not a routed expert is FP8 with a few BF16 tensors. Checked against one machine (vllm-project/recipes#762,
vllm#51454, 8xB200, Flash-0731): the KV cache of a DP8 rank was about 6 GB smaller than that of a TP8 rank, which is
seven eighths of this part."""
MEASURED_BAND: Final = 0.02
ASSUMED_BAND: Final = 0.05
"""Of the loaded bytes: read off a running engine, or taken from the size on disk."""


def dense_bytes(model: Model) -> Figure:
    """Bytes of attention, shared experts and embeddings: what each DP rank holds whole."""
    used, experts = ROUTED.get((model.family, model.size)) or ROUTED.get((model.family, "")) or (0, 1)
    share = used / experts
    billions = max(0.0, (model.active_parameters - model.parameters * share) / (1 - share))
    bytes_each = 2.0 if model.quantization == "bf16" else DENSE_BYTES_PER_PARAMETER
    size = min(billions * 1e9 * bytes_each, float(model.loaded_bytes))
    low, high = DENSE_BAND
    return Figure(
        size,
        size * low,
        min(size * high, float(model.loaded_bytes)),
        "assumed",
        f"{billions:.1f} B parameters outside the routed experts, from total, active and experts used",
    )


def weights_per_gpu(model: Model, settings: Settings) -> Figure:
    """Bytes on one GPU. Layers are taken to be cut evenly over tensor and pipeline parallel ranks."""
    total = loaded_bytes(model)
    within = settings.tensor_parallel * settings.pipeline_parallel
    if settings.data_parallel == 1:
        return total.scaled(1 / within, f"{total.source}, over {within} GPUs")
    dense = dense_bytes(model)
    copies = (1 - 1 / settings.data_parallel) / within
    return total.scaled(1 / settings.gpus).plus(
        dense.scaled(copies),
        f"experts over {settings.gpus} GPUs; attention copied to {settings.data_parallel} DP ranks (assumed)",
    )


def loaded_bytes(model: Model) -> Figure:
    """One copy of the checkpoint as loaded."""
    band = MEASURED_BAND if model.confidence == "measured" else ASSUMED_BAND
    size = float(model.loaded_bytes)
    return Figure(
        size,
        size * (1 - band),
        size * (1 + band),
        model.confidence,
        f"catalog, {model.id}: {'as loaded' if model.confidence == 'measured' else 'size of the files'}",
    )
