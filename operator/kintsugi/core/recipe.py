"""What a minimal resource leaves open about model and hardware: the smallest known fit, and the model's own needs."""

from dataclasses import dataclass
from typing import Final

DEFAULT_IMAGE: Final = "vllm/vllm-openai:v0.33.0"
"""Used where `spec.engine.image` is absent."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """`gpus` of kind `gpu` hold one copy; `args` are flags that the family needs."""

    gpu: str
    gpus: int
    args: tuple[tuple[str, str], ...]


_V4_ARGS: Final = (("--block-size", "256"), ("--kv-cache-dtype", "fp8"))
"""vLLM's recipes for both V4 models (snapshot of 2026-08-21)."""

RECIPES: Final = (
    ("DeepSeek-V4-Pro", Recipe("H200", 8, _V4_ARGS)),
    ("DeepSeek-V4-Flash", Recipe("H200", 4, _V4_ARGS)),
)
"""By a part of the model's id. Pro needs at least 960 GB of GPU memory, Flash 170 to 200 GB beside its KV cache."""


def recipe_of(model_id: str) -> Recipe | None:
    """The recipe for a model id, or None where the model is not known."""
    return next((recipe for part, recipe in RECIPES if part.lower() in model_id.lower()), None)
