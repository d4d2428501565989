"""A recipe made whole: the fit's own arguments over those of its kind, with the numbers of GPUs filled in."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kintsugi.core.catalog.types import Addition, Gpu, Model, Recipe
from kintsugi.core.catalog.version import EngineVersion

_GPUS: Final = "{gpus}"
"""In the data: the GPUs of one instance."""
TENSOR: Final = "--tensor-parallel-size"
DATA: Final = "--data-parallel-size"


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
    env: dict[str, str] = {}
    sources: dict[str, None] = dict.fromkeys(fit.sources)
    for addition in additions:
        if applies(addition, fit, model, gpu, version):
            args |= dict(addition.args)
            env |= dict(addition.env)
            sources |= dict.fromkeys(addition.sources)
    args |= dict(fit.args)
    tokens = None if model.draft is None else (fit.draft_tokens or model.draft_tokens)
    if model.draft == "DSpark":
        tokens = model.draft_tokens
    return replace(
        fit,
        args=tuple(_sized(args, model, gpus or fit.gpus).items()),
        env=tuple(env.items()) + tuple(pair for pair in fit.env if pair[0] not in env),
        min_engine=max(fit.min_engine, model.min_engine),
        sources=tuple(sources),
        draft_tokens=tokens,
        speculative_config=_speculative(model, tokens),
        confidence="measured" if f"{model.family}/{model.size}" in gpu.verified_with else "assumed",
    )


def applies(addition: Addition, fit: Recipe, model: Model, gpu: Gpu, version: EngineVersion | None) -> bool:
    """Whether every condition that the addition writes down holds."""
    asked = (
        (addition.families, model.family),
        (addition.sizes, model.size),
        (addition.generations, gpu.generation),
        (addition.vendors, gpu.vendor),
        (addition.quantizations, model.quantization),
        (addition.strategies, fit.strategy),
    )
    if any(allowed and value not in allowed for allowed, value in asked):
        return False
    if version is None:
        return addition.until is None
    return not (addition.since and version < addition.since) and not (
        addition.until and version >= addition.until
    )


def _sized(args: dict[str, str | None], model: Model, gpus: int) -> dict[str, str | None]:
    """`{gpus}` filled in; what a tensor parallel group may not hold becomes data parallel replicas."""
    sized = {flag: str(gpus) if value == _GPUS else value for flag, value in args.items()}
    limit = model.tensor_parallel_limit
    if limit and args.get(TENSOR) == _GPUS and gpus > limit and gpus % limit == 0:
        sized[TENSOR], sized[DATA] = str(limit), str(gpus // limit)
    return sized


def _speculative(model: Model, tokens: int | None) -> str | None:
    if tokens is None or model.draft is None:
        return None
    config: dict[str, object] = {"method": model.draft.lower(), "num_speculative_tokens": tokens}
    if model.draft == "DSpark":
        config["draft_sample_method"] = "probabilistic"
    return json.dumps(config, separators=(",", ":"))
