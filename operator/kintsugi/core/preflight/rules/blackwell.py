"""Arguments that only the kernels of datacenter Blackwell understand (S03)."""

import json
from collections.abc import Iterator
from typing import Final

from kintsugi.core.command.argument import Argument
from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.rules.gpus import hardware
from kintsugi.core.preflight.view import PoolView, View

_FLASH: Final = "deepseek-ai/DeepSeek-V4-Flash"
MEGA_MOE: Final = "deep_gemm_mega_moe"
_ON: Final = ("true", "1", "yes", "on", "t", "y")
_FP4_BOTH: Final = {
    "extraArgs": ["--attention_config.use_fp4_indexer_cache=True"],
    "args": {"moeBackend": MEGA_MOE},
}


def mega_moe(argument: Argument) -> bool:
    """Whether an argument asks for the MegaMoE backend."""
    return argument.flag == "--moe-backend" and (argument.value or "").lower() == MEGA_MOE


def fp4_indexer(argument: Argument) -> bool:
    """Whether an argument asks for the indexer's cache in FP4, by any of its spellings."""
    root, _, key = argument.flag.partition(".")
    if root != "--attention-config":
        return False
    key, value = key.replace("-", "_"), (argument.value or "")
    if key:
        return _asks(key, value)
    said = _json_object(value)
    return any(_asks(str(name).replace("-", "_"), str(each)) for name, each in said.items())


def _asks(key: str, value: str) -> bool:
    text = value.strip().strip("\"'").lower()
    return (key == "use_fp4_indexer_cache" and text in _ON) or (key == "indexer_kv_dtype" and text == "mxfp4")


def _json_object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # the engine will say so; another rule names it
        return {}
    return found if isinstance(found, dict) else {}


def _blackwell_only(view: View) -> Iterator[Said]:
    for pool in view.pools:
        gpu = pool.gpu
        if not pool.vllm or gpu is None or (gpu.compute_capability or (0,))[0] == 10:
            continue
        for argument in pool.command.arguments:
            what = "the MegaMoE backend" if mega_moe(argument) else "the FP4 indexer cache"
            if argument.origin.startswith("spec.") and (mega_moe(argument) or fp4_indexer(argument)):
                named = "" if pool.gpu_name else " and name it in spec.hardware.gpu"
                yield Said(
                    argument.origin,
                    f"asks for {what}, which {_on(pool)}",
                    f"remove it, or use B200 or GB200{named}",
                    None if pool.gpu_name else "Warning",
                )


def _on(pool: PoolView) -> str:
    gpu = pool.gpu
    said = (
        ""
        if gpu is None or gpu.compute_capability is None
        else f" (sm_{gpu.compute_capability[0]}{gpu.compute_capability[1]})"
    )
    name = (pool.gpu_name or (gpu.name if gpu else "")) + said
    origin = pool.path("hardware.gpu") if pool.gpu_name else "the recipe's GPU"
    return f"needs sm_100 (datacenter Blackwell), and {origin} is {name}: the start would fail after the whole load"


def _mega_moe_unfit(view: View) -> Iterator[Said]:
    for pool in view.pools:
        if not pool.v4 or not pool.gpu or (pool.gpu.compute_capability or (0,))[0] != 10:
            continue
        for argument in pool.command.arguments:
            if not (argument.origin.startswith("spec.") and mega_moe(argument)):
                continue
            if pool.model and pool.model.quantization == "nvfp4":
                yield Said(
                    argument.origin,
                    f"asks for the MegaMoE backend, which has no NVFP4 path, and {pool.model.id} is NVFP4",
                    "remove it",
                )
            elif not _spreads_experts(pool):
                yield Said(
                    argument.origin,
                    "asks for the MegaMoE backend, which needs experts spread over the GPUs "
                    "(expert parallel), and this pool splits each",
                    f"set {pool.path('engine.args.enableExpertParallel')}: true, or remove it",
                )


def _spreads_experts(pool: PoolView) -> bool:
    found = pool.command.get("--enable-expert-parallel")
    return found is not None and (found.value or "true").lower() != "false"


RULES: Final = (
    Rule(
        name="BlackwellOnly",
        severity="Error",
        summary="An argument needs datacenter Blackwell, and the GPU is another.",
        why="The FP4 indexer cache and the MegaMoE backend have kernels for sm_100 only; a recipe for B200 copied to "
        "H200 or to workstation Blackwell fails after the whole weight load.",
        sources=(
            "https://github.com/vllm-project/recipes/pull/760",
            "https://github.com/vllm-project/vllm/issues/42284",
        ),
        check=_blackwell_only,
        good=(
            example(hardware=hardware("B200", 8), engine=_FP4_BOTH),
            example(
                hardware=hardware("H200", 8),
                engine={"extraArgs": ["--attention_config.use_fp4_indexer_cache=False"]},
            ),
        ),
        bad=(
            example(hardware=hardware("H200", 8), engine=_FP4_BOTH),
            example(_FLASH, hardware=hardware("RTX PRO 6000", 8), engine=_FP4_BOTH),
            example(hardware=hardware("H200", 8), engine={"extraArgs": ["--moe_backend", MEGA_MOE]}),
            example(
                hardware=hardware("H200", 8),
                engine={"extraArgs": ["--attention-config", '{"indexer_kv_dtype": "mxfp4"}']},
            ),
        ),
    ),
    Rule(
        name="MegaMoeUnfit",
        severity="Error",
        summary="The MegaMoE backend does not serve this checkpoint or this way of splitting it.",
        why="It is written for FP8 checkpoints with expert parallelism.",
        sources=("https://github.com/vllm-project/recipes",),
        check=_mega_moe_unfit,
        good=(example(hardware=hardware("B200", 8), engine={"args": {"moeBackend": MEGA_MOE}}),),
        bad=(
            example(
                "nvidia/DeepSeek-V4-Flash-NVFP4",
                hardware=hardware("B200", 8),
                engine={"args": {"moeBackend": MEGA_MOE}},
            ),
            example(
                hardware=hardware("B200", 8),
                engine={"args": {"moeBackend": MEGA_MOE, "enableExpertParallel": False}},
            ),
        ),
    ),
)
