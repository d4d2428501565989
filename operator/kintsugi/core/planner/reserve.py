"""What the runtime itself takes of each GPU: context, communication, graphs, workspaces and activations."""

from typing import Final

from kintsugi.core.catalog.entities import Model
from kintsugi.core.planner.figure import Figure
from kintsugi.core.planner.settings import Settings

BASE_BYTES: Final = 4e9
"""CUDA context, NCCL, kernel workspaces."""
GRAPH_BYTES: Final = 3e9
"""CUDA graphs; nothing under `--enforce-eager`."""
ACTIVATION_BYTES: Final = 350e6
"""Per 1,024 tokens of a step, for a hidden size of 4,096."""
MEGA_MOE_BYTES: Final = 12e9
"""Buffers of the MegaMoE backend, by which both start-up logs of vllm-project/recipes#762 (8xB200, Flash-0731, TP8 and
DP8, 8,192 tokens a step) have less KV cache than without."""
MEGA_MOE_BAND: Final = (0.7, 1.5)
HIDDEN: Final = {
    ("deepseek-v4", "Flash"): 4096,
    ("deepseek-v4", "Pro"): 7168,
    ("deepseek-v4.1", "Flash"): 5120,
    ("deepseek-v3", ""): 7168,
    ("deepseek-v3.2", ""): 7168,
}
BAND: Final = (0.4, 2.5)
"""Published start-up logs give, for Flash: 11.8 GB (2xGH200, TP2, vllm#44376) and, with
MegaMoE's buffers, 22 GB (8xB200, TP8 and DP8, vllm#51454); Pro on 8xH200 under DP8 left less than 5 GB and started
(recipes#381, #832)."""


def runtime_reserve(model: Model, settings: Settings) -> Figure:
    """Bytes on one GPU that are neither weights nor KV cache. Assumed: no engine exports them."""
    hidden = HIDDEN.get((model.family, model.size)) or HIDDEN.get((model.family, "")) or 7168
    activations = ACTIVATION_BYTES * settings.batched_tokens / 1024 * hidden / 4096
    buffers = MEGA_MOE_BYTES if settings.mega_moe else 0.0
    value = BASE_BYTES + (0 if settings.enforce_eager else GRAPH_BYTES) + buffers + activations
    rest, (low, high), (least, most) = value - buffers, BAND, MEGA_MOE_BAND
    return Figure(
        value,
        rest * low + buffers * least,
        rest * high + buffers * most,
        "assumed",
        f"context, NCCL, graphs, {'MegaMoE buffers, ' if buffers else ''}activations of {settings.batched_tokens:,} tokens a "
        "step; fitted to published start-up logs",
    )
