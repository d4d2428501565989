"""Number formats, drafting and positions: what the checkpoint has built in (A11, A12, A19)."""

from collections.abc import Iterator
from typing import Final

from kintsugi.core.catalog.version import EngineVersion
from kintsugi.core.command.nested import object_of, source_of
from kintsugi.core.command.speculative import MTP_SINCE
from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.rules.gpus import hardware
from kintsugi.core.preflight.rules.model import image
from kintsugi.core.preflight.view import PoolView, View, by_a_person, stated

_FLASH: Final = "deepseek-ai/DeepSeek-V4-Flash"
_NATIVE: Final = frozenset({"fp8", "deepseek_v4_fp8", "mxfp4", "modelopt", "modelopt_fp4", "nvfp4"})
"""Values of `--quantization` that name what a V4 checkpoint is, or vLLM's own methods for it."""
_BF16: Final = frozenset({"auto", "bfloat16"})
DSPARK_SINCE: Final = EngineVersion(0, 25, 0)
"""vLLM's recipes for the checkpoints with a fused draft head."""
SPECULATIVE: Final = "--speculative-config"
_POSITIONS: Final = ("--rope-scaling", "--rope-theta")


def _quantization(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in pool.command.all("--quantization"):
            if (
                pool.v4
                and pool.model
                and by_a_person(argument)
                and (argument.value or "").lower() not in _NATIVE
            ):
                yield Said(
                    argument.origin,
                    f"{stated(argument)}: {pool.model.id} is quantised already ({pool.model.quantization} with FP4 "
                    "experts), and vLLM has no such path for it. It would quantise weights only: the KV cache's pages "
                    "don't depend on it",
                    "remove it: the engine reads the format from the checkpoint",
                )


def _half(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in pool.command.all("--dtype"):
            if (
                pool.v4
                and pool.model
                and by_a_person(argument)
                and (argument.value or "").lower() not in _BF16
            ):
                yield Said(
                    argument.origin,
                    f"{stated(argument)}, and the attention of {pool.model.id} takes bfloat16 activations only",
                    "remove it: bfloat16 is the default",
                )


def _drafting(view: View) -> Iterator[Said]:
    for pool in view.pools:
        found = source_of(pool.command.arguments, SPECULATIVE, "method") or pool.command.get(SPECULATIVE)
        config = object_of(pool.command.arguments, SPECULATIVE)
        method = str(config.get("method", "")).lower()
        if not pool.v4 or not pool.model or found is None or not by_a_person(found):
            continue
        path = found.origin
        typed = pool.pool.engine.args.speculative if pool.pool.engine.args else None
        if path.endswith(".speculative") and typed:
            path += ".method"
        own = pool.model.draft
        if method == "dspark" and own != "DSpark":
            yield Said(
                path,
                f"asks for dspark, and {pool.model.id} has no such draft head{_has(pool)}",
                _instead(pool),
            )
        elif method in ("mtp", "deepseek_mtp", "deepseek_v4_mtp") and own != "MTP":
            yield Said(path, f"asks for mtp, and {pool.model.id} has no MTP head{_has(pool)}", _instead(pool))
        elif own == "MTP" and method.endswith("mtp") and pool.version and pool.version < MTP_SINCE:
            yield Said(
                path,
                f"asks for mtp, which V4 does dependably since vLLM {MTP_SINCE}, and the engine is {pool.version}",
                f"use an image of vLLM {MTP_SINCE} or later, or set the method to Disabled",
                "Warning",
            )
        elif method == "dspark" and pool.version and pool.version < DSPARK_SINCE:
            yield Said(
                path,
                f"asks for dspark, which vLLM has since {DSPARK_SINCE}, and the engine is {pool.version}",
                f"use an image of vLLM {DSPARK_SINCE} or later",
            )


def _has(pool: PoolView) -> str:
    draft = pool.model.draft if pool.model else None
    return f": it carries {draft}" if draft else ""


def _instead(pool: PoolView) -> str:
    draft = pool.model.draft if pool.model else None
    if not draft:
        return "remove it"
    return f"use {draft}, or leave it out: the recipe decides. No sampler needs a patch for it"


def _rope(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in pool.command.arguments:
            if not pool.v4 or not pool.model or not by_a_person(argument):
                continue
            overrides = argument.flag.partition(".")[0] == "--hf-overrides"
            text = " ".join((argument.flag, *argument.values)).lower()
            if argument.flag.partition(".")[0] in _POSITIONS or (overrides and "rope" in text):
                yield Said(
                    argument.origin,
                    f"changes the positions of {pool.model.id}: its YaRN scaling to {pool.model.max_context} tokens is "
                    "built in, and another gives wrong output that no error tells",
                    "remove it",
                )


def _parsers(view: View) -> Iterator[Said]:
    for pool in view.pools:
        if not pool.v4 or not pool.model:
            continue
        for flag, own in (
            ("--tokenizer-mode", pool.model.tokenizer_mode),
            ("--tool-call-parser", pool.model.tool_call_parser),
            ("--reasoning-parser", pool.model.reasoning_parser),
        ):
            found = pool.written(flag)
            if flag == "--tokenizer-mode" and own and pool.command.get(flag) is None:
                yield Said(
                    pool.path("engine.args.tokenizerMode"),
                    f"is empty: {own} is what makes prompts of messages for {pool.model.id}, whose newer checkpoints ship no "
                    "chat template",
                    f"use {own}, or leave it out",
                )
            if found and own and found.value and found.value != own:
                yield Said(
                    found.origin,
                    f"{stated(found)}, and {pool.model.id} speaks {own}: prompts or answers would be read wrongly",
                    f"use {own}, or leave it out",
                )


def _draft(method: str) -> dict[str, object]:
    return {"args": {"speculative": {"method": method}}}


RULES: Final = (
    Rule(
        name="Quantization",
        severity="Error",
        summary="A quantisation method that V4 has no path for.",
        why="V4 ships as FP8 with FP4 experts. AWQ and its kin quantise weights only and can't change KV pages; the "
        "article's misaligned pages have no mechanism.",
        sources=(
            "https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/quantization/auto_awq.py",
        ),
        claims=("A12", "A17"),
        check=_quantization,
        good=(example(engine={"extraArgs": ["--quantization=fp8"]}), example()),
        bad=(
            example(engine={"extraArgs": ["--quantization", "awq"]}),
            example(engine={"extraArgs": ["-q", "awq_marlin"]}),
            example(engine={"extraArgs": ["--quantization=gptq"]}),
        ),
    ),
    Rule(
        name="Dtype",
        severity="Error",
        summary="Activations in another format than bfloat16.",
        why="V4's attention accepts bfloat16 only; float16 overflows in its residual streams.",
        sources=("https://github.com/vllm-project/vllm/tree/main/vllm/models/deepseek_v4",),
        claims=("A12",),
        check=_half,
        good=(example(engine={"extraArgs": ["--dtype=bfloat16"]}),),
        bad=(
            example(engine={"extraArgs": ["--dtype", "float16"]}),
            example(engine={"extraArgs": ["--dtype=half"]}),
        ),
    ),
    Rule(
        name="Speculation",
        severity="Error",
        summary="The draft method is not the checkpoint's, or the engine is too old for it.",
        why="Preview and NVFP4 checkpoints carry an MTP layer; 0731, 0813 and DSpark carry a fused draft head instead. "
        "Drafting is configured; no file of the engine is patched.",
        sources=("https://github.com/vllm-project/recipes",),
        claims=("A11",),
        check=_drafting,
        good=(
            example(engine=_draft("DSpark")),
            example(_FLASH, engine=_draft("MTP")),
            example(engine=_draft("NGram")),
            example(engine=_draft("Disabled")),
        ),
        bad=(
            example(_FLASH, engine=_draft("DSpark")),
            example(_FLASH, engine=_draft("MTP") | image("v0.20.0")),
            example(engine=_draft("MTP")),
            example(
                engine={
                    "extraArgs": ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}']
                }
            ),
            example(
                "deepseek-ai/DeepSeek-V4-Flash-DSpark",
                engine=_draft("DSpark") | image("v0.24.0"),
            ),
            example(
                "nvidia/DeepSeek-V4-Flash-NVFP4",
                hardware=hardware("B200", 8),
                engine={"extraArgs": ["--speculative-config.method=dspark"]},
            ),
        ),
    ),
    Rule(
        name="RopeOverridden",
        severity="Warning",
        summary="Position scaling is overridden.",
        why="V4's scaling comes with the checkpoint; a wrong one is the classic cause of fluent nonsense at length.",
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/models/deepseek_v4/common/rope.py",),
        claims=("A7", "A19"),
        check=_rope,
        good=(example(),),
        bad=(
            example(engine={"extraArgs": ["--hf-overrides", '{"rope_scaling": {"factor": 4}}']}),
            example(engine=image("v0.25.0") | {"extraArgs": ["--rope-scaling", "{}"]}),
        ),
    ),
    Rule(
        name="ForeignParser",
        severity="Warning",
        summary="Tokenizer mode, tool parser or reasoning parser of another model.",
        why="0731 and 0813 ship no chat template, so the mode is what makes prompts; V4.1 has its own.",
        sources=("https://github.com/vllm-project/recipes",),
        claims=("A19",),
        check=_parsers,
        good=(example(engine={"args": {"tokenizerMode": "deepseek_v4"}}), example()),
        bad=(
            example(engine={"args": {"toolCallParser": "hermes"}}),
            example(engine={"args": {"tokenizerMode": ""}}),
            example(
                "deepseek-ai/DeepSeek-V4.1-Flash",
                hardware=hardware("B200", 8),
                engine={"args": {"tokenizerMode": "deepseek_v4"}},
            ),
        ),
    ),
)
