"""Parallel sizes: whether they fill the GPUs of an instance, and divide the model (S45)."""

from collections.abc import Iterator
from typing import Final

from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.rules.gpus import count_path, hardware, holds_a_part
from kintsugi.core.preflight.view import PoolView, View

_PRO: Final = "deepseek-ai/DeepSeek-V4-Pro"
_FLAGS: Final = (
    ("--tensor-parallel-size", "tensor"),
    ("--pipeline-parallel-size", "pipeline"),
    ("--data-parallel-size", "data"),
    ("--prefill-context-parallel-size", "prefill context"),
)


def _sizes(pool: PoolView) -> list[tuple[str, str, int]]:
    return [(flag, word, pool.number(flag) or 1) for flag, word in _FLAGS]


def _mismatch(view: View) -> Iterator[Said]:
    for pool in view.pools:
        if not pool.vllm or not pool.gpus or holds_a_part(pool):
            continue
        sizes = [(flag, word, size) for flag, word, size in _sizes(pool) if size > 1]
        world = 1
        for _, _, size in sizes:
            world *= size
        if world == pool.gpus or (world > pool.gpus and not sizes):
            continue
        said = [argument.origin for flag, _, _ in _sizes(pool) if (argument := pool.written(flag))]
        product = " x ".join(f"{word} {size}" for _, word, size in sizes) or "parallel sizes of 1"
        text = (
            f"{product} = {world} ranks" if len(sizes) > 1 else f"{product}: {world} rank{'s' * (world > 1)}"
        )
        effect = (
            "the engine ends at its start" if world > pool.gpus else f"{pool.gpus - world} GPUs would idle"
        )
        yield Said(
            said[0] if said else count_path(pool),
            f"does not fit the GPUs of an instance: {text} for {pool.gpus} GPUs ({count_path(pool)}), so {effect}",
            f"make the product of the parallel sizes {pool.gpus}, or leave them out: the recipe fills the GPUs",
        )


def _tensor_limit(view: View) -> Iterator[Said]:
    for pool in view.pools:
        limit = pool.model.tensor_parallel_limit if pool.model else None
        size = pool.number("--tensor-parallel-size")
        if not pool.vllm or not pool.model or not limit or not size or limit % size == 0:
            continue
        reason = f"more than {limit}" if size > limit else f"no divisor of {limit}"
        yield Said(
            pool.where("--tensor-parallel-size", "hardware.gpusPerInstance"),
            f"gives a tensor parallel size of {size}, {reason}: the matrices of {pool.model.id} can't be cut so",
            f"use a tensor parallel size of {_divisors(limit)}, and data parallel copies for more GPUs",
        )


def _divisors(limit: int) -> str:
    found = [str(n) for n in range(1, limit + 1) if limit % n == 0]
    return f"{', '.join(found[:-1])} or {found[-1]}" if len(found) > 1 else found[0]


def _context_parallel(view: View) -> Iterator[Said]:
    for pool in view.pools:
        for flag in ("--decode-context-parallel-size", "--prefill-context-parallel-size"):
            found = pool.written(flag)
            if pool.v4 and found and pool.model and (pool.number(flag) or 1) > 1:
                yield Said(
                    found.origin,
                    f"gives {flag} {pool.number(flag)}: {pool.model.id} keeps a sliding window in every layer, which can't "
                    "be split over the context",
                    "remove it, and use data parallel copies for more KV cache",
                )


def _without_group(view: View) -> Iterator[Said]:
    for field in ("leaderPodTemplate", "workerPodTemplate", "hardware.groupRestartPolicy"):
        used = {pool.path(field) for pool in view.pools if pool.nodes > 1}
        for pool in view.pools:
            if pool.says(field) and pool.path(field) not in used:
                yield Said(
                    pool.path(field),
                    "has no effect: an instance has one pod",
                    "remove it, or set hardware.nodesPerInstance; a podTemplate reaches every pod",
                )


def _several_nodes(view: View) -> Iterator[Said]:
    for pool in view.pools:
        if pool.nodes > 1:
            yield Said(
                pool.path("hardware.nodesPerInstance"),
                f"is {pool.nodes}: such instances are checked and rendered as LeaderWorkerSets, but this version of "
                "the operator does not run them yet",
                "use 1 where one node is enough",
            )


_HOST: Final = {"spec": {"hostNetwork": True}}

RULES: Final = (
    Rule(
        name="ParallelSizeMismatch",
        severity="Error",
        summary="Tensor x pipeline x data parallel size is not the number of GPUs of an instance.",
        why="Each rank takes one GPU: with too few the engine ends at its start, with too many some are paid for and idle.",
        sources=("https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html",),
        claims=("A21",),
        check=_mismatch,
        good=(
            example(hardware=hardware("H200", 8), engine={"args": {"dataParallelSize": 8}}),
            example(
                hardware=hardware("H200", 8),
                engine={"args": {"tensorParallelSize": 4, "dataParallelSize": 2}},
            ),
            example(hardware=hardware("H200", 8)),
        ),
        bad=(
            example(
                hardware=hardware("H200", 8),
                engine={"args": {"tensorParallelSize": 8, "dataParallelSize": 8}},
            ),
            example(hardware=hardware("H200", 8), engine={"args": {"tensorParallelSize": 4}}),
            example(hardware=hardware("H200", 4), engine={"extraArgs": ["-tp=8"]}),
        ),
    ),
    Rule(
        name="TensorParallelSize",
        severity="Error",
        summary="The model can't be split over that many GPUs.",
        why="Each rank's share of a matrix must be a whole number of the blocks that its scales belong to: 3072 / 16 "
        "is no multiple of 128, so Pro takes 8 at most.",
        sources=("https://github.com/vllm-project/vllm/issues/40955",),
        claims=("A21",),
        check=_tensor_limit,
        good=(example(_PRO, hardware=hardware("H200", 8), engine={"args": {"tensorParallelSize": 8}}),),
        bad=(
            example(_PRO, hardware=hardware("H200", 16), engine={"args": {"tensorParallelSize": 16}}),
            example(hardware=hardware("H200", 6), engine={"args": {"tensorParallelSize": 6}}),
        ),
    ),
    Rule(
        name="ContextParallel",
        severity="Error",
        summary="Context parallelism on a model with sliding windows.",
        why="vLLM has no context parallel path for sliding-window layers, and V4 has one in every layer; data parallelism is "
        "what adds KV cache.",
        sources=("https://github.com/vllm-project/vllm/tree/main/vllm/models/deepseek_v4",),
        claims=("A21",),
        check=_context_parallel,
        good=(example(hardware=hardware("H200", 8), engine={"args": {"dataParallelSize": 8}}),),
        bad=(example(hardware=hardware("H200", 8), engine={"extraArgs": ["-dcp", "2"]}),),
    ),
    Rule(
        name="GroupFieldUnused",
        severity="Warning",
        summary="A template of leaders or workers where an instance has one pod.",
        why="Only an instance of several nodes has a leader and workers.",
        sources=("https://github.com/kubernetes-sigs/lws",),
        check=_without_group,
        good=(
            example(workerPodTemplate=_HOST, hardware=hardware("H200", 8) | {"nodesPerInstance": 2}),
            example(podTemplate=_HOST),
            example(
                workerPodTemplate=_HOST,
                pools=[
                    {"name": "a"},
                    {"name": "b", "hardware": hardware("H200", 8) | {"nodesPerInstance": 2}},
                ],
            ),
        ),
        bad=(
            example(workerPodTemplate=_HOST),
            example(pools=[{"name": "a", "leaderPodTemplate": _HOST}]),
            example(hardware=hardware("H200", 4) | {"groupRestartPolicy": "None"}),
        ),
    ),
    Rule(
        name="SeveralNodes",
        severity="Warning",
        summary="An instance of several nodes is checked and rendered, but not yet run.",
        why="The operator would have to recreate whole groups; until it does, it makes no half of one.",
        sources=("https://github.com/kubernetes-sigs/lws",),
        check=_several_nodes,
        good=(example(),),
        bad=(example(hardware={"gpu": "H200", "gpusPerInstance": 8, "nodesPerInstance": 2}),),
    ),
)
