"""A recipe made whole: the fit's own arguments over those of its kind, with the number of GPUs filled in."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kintsugi.core.catalog.entities import Addition, Gpu, Model, Recipe
from kintsugi.core.catalog.version import EngineVersion

_GPUS: Final = "{gpus}"
"""In the data: the GPUs of one instance."""
TENSOR: Final = "--tensor-parallel-size"
DATA: Final = "--data-parallel-size"
READY_TIMEOUT: Final = "VLLM_ENGINE_READY_TIMEOUT_S"
"""How long the engine's API server waits for its engine: 600 s by default, less than V4 takes to load."""
_MOST_GPUS: Final = 1024


def composed(
    fit: Recipe,
    additions: Iterable[Addition],
    model: Model,
    gpu: Gpu,
    version: EngineVersion | None,
    gpus: int | None,
) -> Recipe:
    """The recipe for that checkpoint, GPU, engine and number of GPUs; a later word on a flag replaces an earlier."""
    args: dict[str, str | None] = {}
    env = {READY_TIMEOUT: str(model.start_budget_seconds)}
    options = dict(model.draft_options)
    sources = dict.fromkeys(fit.sources)
    for addition in additions:
        if applies(addition, fit, model, gpu, version):
            args |= dict(addition.args)
            env |= dict(addition.env)
            options |= dict(addition.draft_options)
            sources |= dict.fromkeys(addition.sources)
    args |= dict(_parsers(model)) | dict(fit.args)
    tokens = fit.draft_tokens if model.draft == "MTP" and fit.draft_tokens else model.draft_tokens
    count = gpus or smallest_fit(fit, model, gpu)
    return replace(
        fit,
        gpus=count,
        args=tuple(_sized(args, model, gpu, count).items()),
        env=tuple((env | dict(fit.env)).items()),
        min_engine=max(fit.min_engine, model.min_engine),
        sources=tuple(sources),
        draft_tokens=tokens if model.draft else None,
        speculative_config=_speculative(model, tokens, options),
        confidence="measured" if f"{model.family}/{model.size}" in gpu.verified_with else "assumed",
    )


def covers(generations: tuple[str, ...], gpu: Gpu) -> bool:
    """Whether the GPU, or its whole generation, is named."""
    return gpu.generation in generations or gpu.name in generations


def smallest_fit(fit: Recipe, model: Model, gpu: Gpu) -> int:
    """GPUs of the fit, doubled until their memory reaches what the model is known to need."""
    needed = max(model.memory_floor_bytes, model.loaded_bytes)
    count = fit.gpus
    while count * gpu.memory_bytes < needed and count < _MOST_GPUS:
        count *= 2
    return count


def applies(addition: Addition, fit: Recipe, model: Model, gpu: Gpu, version: EngineVersion | None) -> bool:
    """Whether every condition that the addition writes down holds."""
    asked = (
        (addition.families, model.family),
        (addition.sizes, model.size),
        (addition.vendors, gpu.vendor),
        (addition.quantizations, model.quantization),
        (addition.strategies, fit.strategy),
    )
    if any(allowed and value not in allowed for allowed, value in asked):
        return False
    if addition.generations and not covers(addition.generations, gpu):
        return False
    if version is None:
        return addition.until is None
    return not (addition.since and version < addition.since) and not (
        addition.until and version >= addition.until
    )


def _parsers(model: Model) -> list[tuple[str, str | None]]:
    """Tokenizer mode and parsers: the newer V4 checkpoints ship no chat template, so these are no matter of taste."""
    args: list[tuple[str, str | None]] = []
    if model.tokenizer_mode:
        args.append(("--tokenizer-mode", model.tokenizer_mode))
    if model.tool_call_parser:
        args += [("--tool-call-parser", model.tool_call_parser), ("--enable-auto-tool-choice", None)]
    if model.reasoning_parser:
        args.append(("--reasoning-parser", model.reasoning_parser))
    return args


def _sized(args: dict[str, str | None], model: Model, gpu: Gpu, gpus: int) -> dict[str, str | None]:
    """`{gpus}` filled in; what a tensor parallel group may not hold, or a node, becomes data parallel replicas."""
    sized = {flag: str(gpus) if value == _GPUS else value for flag, value in args.items()}
    limit = min(model.tensor_parallel_limit or gpu.per_node, gpu.per_node)
    if args.get(TENSOR) == _GPUS and gpus > limit and gpus % limit == 0:
        sized[TENSOR], sized[DATA] = str(limit), str(gpus // limit)
    return sized


def _speculative(model: Model, tokens: int | None, options: dict[str, str | bool]) -> str | None:
    if tokens is None or model.draft is None:
        return None
    config = {"method": model.draft.lower(), "num_speculative_tokens": tokens, **options}
    return json.dumps(config, separators=(",", ":"))
