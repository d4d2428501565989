"""Context length and GPU memory: what the engine is asked to hold (S01, A5)."""

import json
from collections.abc import Iterator
from typing import Any, Final

from kintsugi.core.command.number import share, whole
from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.rules.gpus import hardware
from kintsugi.core.preflight.view import PoolView, View, by_a_person, stated

_PRO: Final = "deepseek-ai/DeepSeek-V4-Pro"
LENGTH: Final = "--max-model-len"
_FITTED: Final = ("auto", "-1")
"""Values with which the engine itself takes the longest context that fits."""
HIGHEST_SHARE: Final = 0.95
"""The highest `--gpu-memory-utilization` in vLLM's recipes (Pro on Hopper)."""


def _pro_on_h200(length: int | str, **args: object) -> dict[str, Any]:
    return {
        "engine": {
            "image": "vllm/vllm-openai:v0.25.0",
            "args": {"dataParallelSize": 8, "enableExpertParallel": True, "maxModelLen": length, **args},
        },
        "hardware": hardware("H200", 8),
    }


def length_of(pool: PoolView) -> int | None:
    """Context that the engine is given, in tokens; None where it decides for itself."""
    found = pool.command.get(LENGTH)
    number = whole(found.value) if found else None
    return number if number and number > 0 else None


def _beyond_verified(view: View) -> Iterator[Said]:
    for pool in view.pools:
        length, recipe = length_of(pool), pool.choice.recipe
        found = pool.written(LENGTH)
        if not pool.vllm or not recipe or not recipe.safe_context or not found or length is None:
            continue
        if length > recipe.safe_context and pool.model and length <= pool.model.max_context:
            kind = pool.gpu.name if pool.gpu else "these GPUs"
            yield Said(
                found.origin,
                f"{stated(found)}; {recipe.safe_context} is the longest context verified for {pool.model.id} on {kind}: "
                "more may end the start, since the weights leave little room for the KV cache",
                f"use {recipe.safe_context}, or keep it and acknowledge with spec.validation.allow: "
                "[ContextBeyondVerified]",
            )


def _beyond_model(view: View) -> Iterator[Said]:
    for pool in view.pools:
        length, found = length_of(pool), pool.written(LENGTH)
        if pool.vllm and pool.model and found and length and length > pool.model.max_context:
            yield Said(
                found.origin,
                f"{stated(found)}, and the longest context of {pool.model.id} is {pool.model.max_context}",
                f"use at most {pool.model.max_context}",
            )


def _below_pool(view: View) -> Iterator[Said]:
    for pool in view.pools:
        length, found = length_of(pool), pool.written(LENGTH)
        if found and length and pool.pool.max_tokens and pool.pool.max_tokens > length:
            path = f"{pool.at}.context.maxTokens"
            yield Said(
                path,
                f"is {pool.pool.max_tokens}, but {found.origin} lets the engine take {length}: the router would send "
                "requests that the engine refuses",
                f"set {path} to at most {length}, or leave {found.origin} out",
            )


_NUMBERS: Final = (
    LENGTH,
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--block-size",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
)


def _no_number(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in pool.command.arguments:
            if not pool.vllm or not by_a_person(argument):
                continue
            value = argument.value
            wrong = (
                argument.flag in _NUMBERS
                and not (value in _FITTED and argument.flag == LENGTH)
                and ((number := whole(value)) is None or number < 1)
            )
            part = share(value) if argument.flag == "--gpu-memory-utilization" else 1.0
            if wrong or part is None or not 0 < part <= 1:
                said = "no value" if value is None else repr(value[:80])
                wanted = (
                    "a number above 0 and at most 1"
                    if argument.flag.startswith("--gpu")
                    else "a whole number above 0"
                )
                yield Said(
                    argument.origin,
                    f"gives {argument.flag} {said}, and the engine takes {wanted}",
                    "correct the value",
                )


_JSON: Final = (
    "--attention-config",
    "--compilation-config",
    "--hf-overrides",
    "--kv-events-config",
    "--kv-transfer-config",
    "--reasoning-config",
    "--speculative-config",
)
"""Flags whose value is a JSON object; `vllm/engine/arg_utils.py`."""


def _no_json(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for argument in pool.command.arguments:
            text = argument.value
            if (
                not pool.vllm
                or argument.flag not in _JSON
                or not by_a_person(argument)
                or _is_object(argument.flag, text)
            ):
                continue
            yield Said(
                argument.origin,
                f"gives {argument.flag} {'no value' if text is None else repr(text[:60])}, which is no JSON object: the "
                "engine ends at parsing its command line",
                "write one item that holds the whole object, keys in double quotes",
            )


def _is_object(flag: str, text: str | None) -> bool:
    if text is None:
        return False
    if "$(" in text or (flag == "--compilation-config" and text.isdecimal()):
        return True  # Kubernetes fills variables in later; a level is short for an object
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _values(view: View) -> Iterator[Said]:
    yield from _no_number(view)
    yield from _no_json(view)


def _share_too_high(view: View) -> Iterator[Said]:
    for pool in view.pools:
        found = pool.written("--gpu-memory-utilization")
        part = share(found.value) if found else None
        if not pool.vllm or found is None or part is None or not HIGHEST_SHARE < part <= 1:
            continue
        yield Said(
            found.origin,
            f"{stated(found)}: recipes go up to {HIGHEST_SHARE}; CUDA's own memory, graphs and NCCL lie outside that share, "
            + ("and nothing is left for them" if part == 1 else "and a burst may end the engine"),
            f"use at most {HIGHEST_SHARE}",
            "Error" if part == 1 else None,
        )


def _fixed_memory(view: View) -> Iterator[Said]:
    for pool in view.pools:
        found = pool.written("--kv-cache-memory-bytes") or pool.written("--kv-cache-memory")
        if found and pool.vllm:
            also = pool.written("--gpu-memory-utilization")
            said = f"; {also.origin} has no effect on it" if also else ""
            yield Said(
                found.origin,
                f"fixes the size of the KV cache{said}: the engine no longer measures what is free, and the number is "
                "wrong after the next change of model, length or version",
                "use gpuMemoryUtilization, which measures at every start",
            )
        blocks = pool.written("--num-gpu-blocks-override")
        if blocks and pool.vllm:
            yield Said(
                blocks.origin,
                "overrides the number of KV blocks that the engine measured: meant for tests of preemption",
                "remove it",
            )


RULES: Final = (
    Rule(
        name="ContextBeyondVerified",
        severity="Warning",
        summary="The context is longer than anybody has verified for that model on those GPUs.",
        why="Pro's weights leave little room on Hopper: the recommended 800,000 did not start, 200,000 is what recipes "
        "use. It depends on version and flags, so it is no error.",
        sources=(
            "https://github.com/vllm-project/recipes/issues/381",
            "https://github.com/vllm-project/recipes/issues/832",
        ),
        claims=("A21",),
        check=_beyond_verified,
        good=(
            example(_PRO, **_pro_on_h200(200_000)),
            example(_PRO, **_pro_on_h200(800_000), validation={"allow": ["ContextBeyondVerified"]}),
            example(hardware=hardware("H200", 8), engine={"args": {"maxModelLen": 1_048_576}}),
        ),
        bad=(
            example(_PRO, **_pro_on_h200(800_000, gpuMemoryUtilization=0.95)),
            example(_PRO, hardware=hardware("H200", 8), engine={"extraArgs": ["--max_model_len=800k"]}),
            example(
                _PRO, hardware=hardware("H200", 8), pools=[{"name": "l", "context": {"maxTokens": 1_048_576}}]
            ),
        ),
    ),
    Rule(
        name="ContextBeyondModel",
        severity="Error",
        summary="The context is longer than the model's own.",
        why="The engine refuses to start: positions beyond the trained range give garbage.",
        sources=("https://docs.vllm.ai/en/latest/configuration/engine_args.html",),
        claims=("A19",),
        check=_beyond_model,
        good=(example(engine={"args": {"maxModelLen": 1_048_576}}),),
        bad=(
            example(engine={"args": {"maxModelLen": 2_000_000}}),
            example(pools=[{"name": "l", "context": {"maxTokens": 4_194_304}}]),
        ),
    ),
    Rule(
        name="PoolLongerThanEngine",
        severity="Error",
        summary="A pool takes longer requests than its engine.",
        why="Pools are chosen by context.maxTokens; the engine answers 400 to what is longer than its own limit.",
        sources=("https://docs.vllm.ai/en/latest/configuration/engine_args.html",),
        claims=("A15",),
        check=_below_pool,
        good=(
            example(pools=[{"name": "a", "context": {"maxTokens": 8192}}]),
            example(
                pools=[
                    {"name": "a", "context": {"maxTokens": 8192}, "engine": {"args": {"maxModelLen": 16384}}}
                ]
            ),
        ),
        bad=(
            example(
                pools=[
                    {"name": "a", "context": {"maxTokens": 65536}, "engine": {"args": {"maxModelLen": 8192}}}
                ]
            ),
            example(
                engine={"extraArgs": ["--max-model-len", "8k"]},
                pools=[{"name": "a", "context": {"maxTokens": 65536}}],
            ),
        ),
    ),
    Rule(
        name="ArgumentValue",
        severity="Error",
        summary="A flag has a value that its parser does not take.",
        why="The engine ends at parsing its command line, after the pod has taken its GPUs.",
        sources=("https://docs.vllm.ai/en/latest/configuration/engine_args.html",),
        check=_values,
        good=(
            example(engine={"extraArgs": ["--max-model-len", "auto"]}),
            example(engine={"extraArgs": ["--max-model-len=128k", "--max-num-seqs", "64"]}),
        ),
        bad=(
            example(engine={"extraArgs": ["--max-model-len", "128 000"]}),
            example(engine={"extraArgs": ["--max-num-seqs"]}),
            example(engine={"extraArgs": ["--speculative-config", "{'method': 'dspark'}"]}),
            example(engine={"extraArgs": ["--gpu-memory-utilization", "90%"]}),
            example(engine={"extraArgs": ["--gpu-memory-utilization", "90"]}),
        ),
    ),
    Rule(
        name="GpuMemoryUtilizationHigh",
        severity="Warning",
        summary="The engine takes nearly all GPU memory.",
        why="The share does not cover what CUDA, NCCL and other processes need; at 1 no start succeeds.",
        sources=(
            "https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",
            "https://github.com/vllm-project/recipes",
        ),
        claims=("A5",),
        check=_share_too_high,
        good=(example(engine={"args": {"gpuMemoryUtilization": 0.95}}),),
        bad=(
            example(engine={"args": {"gpuMemoryUtilization": 0.99}}),
            example(engine={"extraArgs": ["--gpu_memory_utilization=1.0"]}),
        ),
    ),
    Rule(
        name="KvMemoryFixed",
        severity="Warning",
        summary="The KV cache has a fixed size instead of a share of what is free.",
        why="A static allocation ignores gpuMemoryUtilization and does not follow the model or the version.",
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/config/cache.py",),
        claims=("A5",),
        check=_fixed_memory,
        good=(example(engine={"args": {"gpuMemoryUtilization": 0.9}}),),
        bad=(
            example(engine={"extraArgs": ["--kv-cache-memory-bytes", "80G"]}),
            example(engine={"extraArgs": ["--num-gpu-blocks-override=1000"]}),
        ),
    ),
)
