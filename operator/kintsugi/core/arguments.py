"""The engine's command line for one pool: typed arguments, profile and recipe; the user's own words last."""

from collections.abc import Sequence
from typing import Final

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec, EngineArgs
from kintsugi.core.names import ENGINE_PORT
from kintsugi.core.recipe import recipe_of

PROFILE_SEQUENCES: Final = {"HighThroughput": 64, "LongContext": 16}
"""`--max-num-seqs` by profile (design §2); Balanced leaves the engine's own default."""

_FLAGS: Final = (
    ("tensor_parallel_size", "--tensor-parallel-size"),
    ("pipeline_parallel_size", "--pipeline-parallel-size"),
    ("data_parallel_size", "--data-parallel-size"),
    ("block_size", "--block-size"),
    ("max_model_len", "--max-model-len"),
    ("max_num_seqs", "--max-num-seqs"),
    ("max_num_batched_tokens", "--max-num-batched-tokens"),
    ("gpu_memory_utilization", "--gpu-memory-utilization"),
    ("kv_cache_dtype", "--kv-cache-dtype"),
    ("tokenizer_mode", "--tokenizer-mode"),
    ("tool_call_parser", "--tool-call-parser"),
    ("reasoning_parser", "--reasoning-parser"),
    ("chat_template", "--chat-template"),
)
_SWITCHES: Final = (
    ("enable_expert_parallel", "--enable-expert-parallel"),
    ("enforce_eager", "--enforce-eager"),
    ("enable_prefix_caching", "--enable-prefix-caching"),
    ("enable_chunked_prefill", "--enable-chunked-prefill"),
)


def model_path(spec: DeploymentSpec) -> str:
    """Where the engine finds the weights: a path in the container, or the hub's id."""
    source = spec.model.source
    if source and source.pvc:
        return "/models" + (f"/{source.pvc.sub_path.strip('/')}" if source.pvc.sub_path else "")
    if source and source.image:
        return "/models"
    return spec.model.id


def served_names(spec: DeploymentSpec) -> tuple[str, ...]:
    """Names that clients may use in `model`."""
    return spec.model.served_names or (spec.model.id,)


def engine_arguments(spec: DeploymentSpec, pool: Pool) -> list[str]:
    """The container's `args`, in a stable order; `extraArgs` follow byte for byte."""
    args = pool.engine.args or EngineArgs()
    flags: dict[str, str] = {"--port": str(ENGINE_PORT)}
    recipe = recipe_of(spec.model.id)
    flags |= dict(recipe.args) if recipe else {}
    if pool.profile in PROFILE_SEQUENCES:
        flags["--max-num-seqs"] = str(PROFILE_SEQUENCES[pool.profile])
    if pool.max_tokens:
        flags["--max-model-len"] = str(pool.max_tokens)
    if pool.hardware.gpus_per_instance is None and recipe:
        flags["--tensor-parallel-size"] = str(recipe.gpus)
    elif pool.hardware.gpus_per_instance and args.tensor_parallel_size is None:
        shared = (args.data_parallel_size or 1) * (args.pipeline_parallel_size or 1)
        flags["--tensor-parallel-size"] = str(max(1, pool.hardware.gpus_per_instance // shared))
    for name, flag in _FLAGS:
        value = getattr(args, name)
        if value is not None:
            flags[flag] = str(value)
    words = ["--model", model_path(spec), "--served-model-name", *served_names(spec)]
    if spec.model.revision:
        words += ["--revision", spec.model.revision]
    for flag, value in flags.items():
        words += [flag, value]
    return [*words, *_switches(args), *_lora(spec), *pool.engine.extra_args]


def _switches(args: EngineArgs) -> list[str]:
    said = [(flag, getattr(args, name)) for name, flag in _SWITCHES]
    return [flag if value else f"--no-{flag[2:]}" for flag, value in said if value is not None]


def _lora(spec: DeploymentSpec) -> Sequence[str]:
    adapters = spec.model.lora_adapters
    if not adapters:
        return ()
    return ("--enable-lora", "--lora-modules", *(f"{adapter.name}={adapter.path}" for adapter in adapters))


def max_num_seqs(spec: DeploymentSpec, pool: Pool) -> int | None:
    """`--max-num-seqs` as the engine gets it, or None where the engine's own default decides."""
    return _last_number(engine_arguments(spec, pool), ("--max-num-seqs", "--max_num_seqs"))


def chunked_prefill(spec: DeploymentSpec, pool: Pool) -> bool:
    """Whether the rendered command leaves prefill chunked, vLLM's default since V1."""
    words = [word.replace("_", "-") for word in engine_arguments(spec, pool)]
    off = ("--no-enable-chunked-prefill", "--enable-chunked-prefill=false")
    return not any(word.lower() in off for word in words)


def _last_number(words: list[str], flags: tuple[str, ...]) -> int | None:
    found: int | None = None
    for index, word in enumerate(words):
        name, _, value = word.partition("=")
        if name in flags:
            text = value or (words[index + 1] if index + 1 < len(words) else "")
            found = int(text) if text.isdigit() else found
    return found
