"""The KV cache: block size, number format, how many run at once (S04, A3, A4, A24)."""

from collections.abc import Iterator
from typing import Final

from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.rules.context import LENGTH, length_of
from kintsugi.core.preflight.rules.gpus import hardware
from kintsugi.core.preflight.view import PoolView, View, by_a_person, stated

SEQUENCES: Final = "--max-num-seqs"
BATCHED: Final = "--max-num-batched-tokens"
BLOCK: Final = "--block-size"
A100_SEQUENCES: Final = 32
"""The article's limit for one A100-80G (A4), kept as advice for models that run there."""
_FLASHINFER: Final = "FLASHINFER_MLA_SPARSE_DSV4"


def _block_size(view: View) -> Iterator[Said]:
    for pool in view.pools:
        legal = pool.model.block_sizes if pool.model else ()
        for argument in pool.command.all(BLOCK):
            if not pool.vllm or not pool.model or not legal or not by_a_person(argument):
                continue
            if argument.value not in {str(size) for size in legal}:
                sizes = " or ".join(map(str, legal))
                yield Said(
                    argument.origin,
                    f"{stated(argument)}, and the kernels of {pool.model.id} take {sizes} only: block size is tokens "
                    "per KV block and has nothing to do with the number of layers; any other ends the start",
                    f"remove it: {sizes} is what the operator sets",
                )


def _dtype(view: View) -> Iterator[Said]:
    for pool in view.pools:
        legal = pool.model.kv_cache_dtypes if pool.model else ()
        for argument in pool.command.all("--kv-cache-dtype"):
            if not pool.vllm or not pool.model or not legal or not by_a_person(argument):
                continue
            if (argument.value or "").lower() not in legal and not _flashinfer(pool):
                yield Said(
                    argument.origin,
                    f"{stated(argument)}, and the attention kernels of {pool.model.id} take {legal[0]} only",
                    f"remove it: {legal[0]} is what the operator sets",
                )


def _flashinfer(pool: PoolView) -> bool:
    """Whether the one backend is chosen that takes other formats too, on the GPUs that it runs on."""
    found = pool.command.get("--attention-backend")
    gpu = pool.gpu
    return (
        found is not None
        and (found.value or "").upper() == _FLASHINFER
        and gpu is not None
        and (gpu.compute_capability or (0,))[0] == 10
    )


def _batched(view: View) -> Iterator[Said]:
    for pool in view.pools:
        batched, sequences = pool.number(BATCHED), pool.number(SEQUENCES)
        if not pool.vllm or batched is None:
            continue
        if sequences is not None and batched < sequences:
            path = pool.written(BATCHED) or pool.written(SEQUENCES)
            yield Said(
                path.origin if path else f"{pool.at}.engine",
                f"gives {batched} tokens to an engine step ({BATCHED}), and {sequences} requests may run ({SEQUENCES}): "
                "each needs at least one, and the engine ends at its start",
                f"use at least {sequences} batched tokens, or fewer sequences",
            )
        length = length_of(pool)
        if pool.model and pool.command.get(LENGTH) is None:
            length = pool.model.max_context
        if _unchunked(pool) and length and batched < length and pool.written(BATCHED):
            yield Said(
                pool.where(BATCHED),
                f"gives {batched} tokens to an engine step, prefill is not chunked, and prompts may have {length}: the "
                "engine ends at its start",
                f"use at least {length}, or leave chunked prefill on",
            )


def _unchunked(pool: PoolView) -> bool:
    found = pool.command.get("--enable-chunked-prefill")
    return found is not None and (found.value or "true").lower() == "false"


def _a100(view: View) -> Iterator[Said]:
    for pool in view.pools:
        sequences, found = pool.number(SEQUENCES), pool.written(SEQUENCES)
        if (
            pool.vllm
            and pool.gpu
            and pool.gpu.generation == "Ampere"
            and sequences
            and sequences > A100_SEQUENCES
        ):
            yield Said(
                found.origin if found else f"{pool.at}.profile",
                f"lets {sequences} requests run on {pool.gpu.name}: above {A100_SEQUENCES} they tend to queue inside "
                "the engine and preempt one another",
                f"use at most {A100_SEQUENCES}, and limit the queue instead",
            )


def _eager(view: View) -> Iterator[Said]:
    for pool in view.pools:
        found = pool.written("--enforce-eager")
        if pool.vllm and found and (found.value or "true").lower() != "false":
            yield Said(
                found.origin,
                "turns CUDA graphs off: each step gets slower, and paging of the KV cache is on with and without it",
                "remove it, unless a start must be debugged",
            )


RULES: Final = (
    Rule(
        name="BlockSize",
        severity="Error",
        summary="The KV block size is not one that the model's kernels take.",
        why="V4's sparse attention, indexer and compressor are written for 256 tokens per block. The article's rule "
        "(a multiple of the layer count; 96, 64 or 16) is about something that does not exist here.",
        sources=(
            "https://github.com/xorbitsai/inference/pull/5373",
            "https://github.com/vllm-project/vllm/blob/main/vllm/models/deepseek_v4/sparse_mla.py",
        ),
        claims=("A3", "A14", "A16", "A24"),
        check=_block_size,
        good=(
            example(engine={"args": {}}),
            example(engine={"args": {"blockSize": 256}}),
            example("someone/else", hardware={"gpusPerInstance": 1}, engine={"args": {"blockSize": 16}}),
        ),
        bad=(
            example(engine={"args": {"blockSize": 16}}),
            example(engine={"args": {"blockSize": 96}}),
            example(engine={"extraArgs": ["--block_size", "64"]}),
            example(pools=[{"name": "a", "engine": {"args": {"blockSize": 128}}}, {"name": "b"}]),
        ),
    ),
    Rule(
        name="KvCacheDtype",
        severity="Error",
        summary="The KV cache's number format is not one that the model's kernels take.",
        why="V4's attention asserts an FP8 cache at its start; only FlashInfer's own backend on datacenter Blackwell "
        "takes others.",
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/models/deepseek_v4/attention.py",),
        claims=("A12",),
        check=_dtype,
        good=(
            example(engine={"args": {"kvCacheDtype": "fp8"}}),
            example(
                hardware=hardware("B200", 8),
                engine={
                    "args": {"kvCacheDtype": "bfloat16"},
                    "extraArgs": ["--attention-backend", _FLASHINFER],
                },
            ),
        ),
        bad=(
            example(engine={"args": {"kvCacheDtype": "auto"}}),
            example(engine={"extraArgs": ["--kv-cache-dtype=bfloat16"]}),
        ),
    ),
    Rule(
        name="BatchedTokens",
        severity="Error",
        summary="An engine step has too few tokens for the requests that may run.",
        why="vLLM refuses max_num_batched_tokens below max_num_seqs, and below the context where prefill is not chunked.",
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/config/scheduler.py",),
        claims=("A16",),
        check=_batched,
        good=(
            example(engine={"args": {"maxNumSeqs": 64, "maxNumBatchedTokens": 8192}}),
            example(engine={"args": {"maxNumBatchedTokens": 512}}),
        ),
        bad=(
            example(engine={"args": {"maxNumSeqs": 512, "maxNumBatchedTokens": 256}}),
            example(
                engine={"args": {"maxNumBatchedTokens": 32}},
                pools=[{"name": "a", "profile": "HighThroughput"}],
            ),
            example(
                engine={
                    "args": {"maxModelLen": 65536, "maxNumBatchedTokens": 8192, "enableChunkedPrefill": False}
                }
            ),
        ),
    ),
    Rule(
        name="ManySequencesOnA100",
        severity="Warning",
        summary="More than 32 requests run at once on an A100.",
        why="The article's figure, kept as advice where a model runs there at all; the true limit is the number of KV "
        "blocks, which `kintsugi plan` computes.",
        sources=("https://docs.vllm.ai/en/latest/configuration/optimization.html",),
        claims=("A4",),
        check=_a100,
        good=(
            example(
                "deepseek-ai/DeepSeek-R1",
                hardware=hardware("A100-80GB", 16),
                engine={"args": {"maxNumSeqs": 32}},
            ),
        ),
        bad=(
            example(
                "deepseek-ai/DeepSeek-R1",
                hardware=hardware("A100-80GB", 16),
                engine={"args": {"maxNumSeqs": 64}},
            ),
        ),
    ),
    Rule(
        name="EagerMode",
        severity="Warning",
        summary="CUDA graphs are off.",
        why="enforceEager is about CUDA graphs, not about paged attention, which vLLM always uses.",
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/config/model.py",),
        claims=("A2",),
        check=_eager,
        good=(example(engine={"args": {"enforceEager": False}}), example()),
        bad=(
            example(engine={"args": {"enforceEager": True}}),
            example(engine={"extraArgs": ["--enforce-eager"]}),
        ),
    ),
)
