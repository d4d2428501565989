"""What the planner's arithmetic says of a pool: advice, since its figures are bands (A4, A21, S01)."""

from collections.abc import Iterator
from typing import Final

from kintsugi.core.planner.plan import plan
from kintsugi.core.planner.result import PoolPlan
from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.rules.context import LENGTH, length_of
from kintsugi.core.preflight.rules.gpus import count_path, hardware
from kintsugi.core.preflight.rules.kv import SEQUENCES
from kintsugi.core.preflight.view import PoolView, View

_FLASH: Final = "deepseek-ai/DeepSeek-V4-Flash"
USUAL_SHARE: Final = 8
"""Where a pool has no range, requests are taken to be an eighth of the context on average. Assumed."""
_CONTEXT: Final = ("ContextExceedsKv", "ContextMayExceedKv")


def _planned(view: View) -> Iterator[tuple[PoolView, PoolPlan]]:
    """The plan of each vLLM pool whose GPUs a person has named."""
    pools = [pool for pool in view.pools if pool.vllm and pool.gpu_name and pool.gpu and pool.model]
    if not pools:
        return
    by_name = {each.name: each for each in plan(view.spec, view.catalog)}
    for pool in pools:
        yield pool, by_name[pool.pool.name]


def _sequences(view: View) -> Iterator[Said]:
    for pool, planned in _planned(view):
        found = pool.written(SEQUENCES)
        if found is None or not _far_beyond(pool, planned):
            continue
        for finding in planned.findings:
            if finding.rule == "QueuesAbove" and finding.severity == "Warning":
                yield Said(found.origin, f"lets {found.value} requests run: {finding.message}", finding.cure)


def _far_beyond(pool: PoolView, planned: PoolPlan) -> bool:
    """Whether even usual requests do not fit: those of the pool's range, else an eighth of the context at a time."""
    if pool.pool.max_tokens is not None:
        return True
    held = (
        max((int(f.value) for length, f in planned.kv.concurrency if length == planned.context), default=0)
        if planned.kv
        else 0
    )
    return planned.admitted is not None and held * USUAL_SHARE < planned.admitted


def _no_room(view: View) -> Iterator[Said]:
    for pool, planned in _planned(view):
        found, length = pool.written(LENGTH), length_of(pool)
        safe = pool.choice.recipe.safe_context if pool.choice.recipe else None
        for finding in planned.findings:
            if finding.rule == "WeightsDoNotFit" and _enough_on_paper(pool):
                yield Said(count_path(pool), f"may be too few: {finding.message}", finding.cure)
            if finding.rule in _CONTEXT and found and length and not (safe and length > safe):
                yield Said(found.origin, f"is {length}: {finding.message}", finding.cure)


def _enough_on_paper(pool: PoolView) -> bool:
    """Whether no other rule has refused the size of the hardware already."""
    gpu, model = pool.gpu, pool.model
    return bool(gpu and model and pool.gpus and pool.gpus * gpu.memory_bytes >= model.memory_floor_bytes)


RULES: Final = (
    Rule(
        name="SequencesBeyondCapacity",
        severity="Warning",
        summary="More requests may run than the KV cache holds at the pool's context.",
        why="A request holds ceil(length / 256) + 26 blocks on V4; what does not fit waits, or is preempted while it grows. "
        "`kintsugi plan` shows the figures with their bands.",
        sources=("https://docs.vllm.ai/en/latest/configuration/optimization.html",),
        claims=("A4", "A21"),
        check=_sequences,
        good=(
            example(hardware=hardware("H200", 8), engine={"args": {"maxModelLen": 8192, "maxNumSeqs": 64}}),
        ),
        bad=(
            example(
                hardware=hardware("H200", 8), engine={"args": {"maxModelLen": 1_048_576, "maxNumSeqs": 512}}
            ),
        ),
    ),
    Rule(
        name="NoRoomForKv",
        severity="Warning",
        summary="By the planner's estimate the weights leave too little KV cache.",
        why="The engine ends its start where its longest request does not fit. The estimate has a band, so it is no error.",
        sources=("https://github.com/vllm-project/vllm/issues/40955",),
        claims=("A21",),
        check=_no_room,
        good=(example(hardware=hardware("H200", 8)),),
        bad=(example("deepseek-ai/DeepSeek-V3", hardware=hardware("A100-80GB", 8)),),
    ),
)
