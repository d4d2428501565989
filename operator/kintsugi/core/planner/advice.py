"""What the figures of a pool mean for the people who run it."""

from typing import Final

from kintsugi.core.catalog.entities import Model
from kintsugi.core.planner.finding import PlanFinding, gigabytes, grouped
from kintsugi.core.planner.memory import GpuMemory
from kintsugi.core.planner.options import Options
from kintsugi.core.planner.result import Alternative, KvPlan, PoolPlan
from kintsugi.core.planner.subject import Subject

TIGHT_SHARE: Final = 0.2
"""KV cache below this share of the engine's memory is called tight."""
WORTH_TELLING: Final = 1.5
"""How many times the KV cache another layout must have to be told."""
LONG: Final = 131_072
"""From this context on few requests fit, so that more KV cache is worth a warning."""


def context_findings(subject: Subject, memory: GpuMemory, kv: KvPlan, context: int) -> list[PlanFinding]:
    """Whether the longest legal request fits, and what is known to start."""
    found = []
    path = subject.path("--max-model-len", "engine", "args", "max_model_len")
    need, blocks = kv.blocks.alone(context), kv.engine_blocks
    safe = subject.recipe.safe_context if subject.recipe else None
    if blocks.value < need and not subject.settings.max_model_len is None:
        known = subject.verified and (safe is None or context <= safe)
        surely = blocks.high < need and not known
        found.append(
            PlanFinding(
                "Error" if surely else "Warning",
                "ContextExceedsKv" if surely else "ContextMayExceedKv",
                path,
                f"a request of {grouped(context)} tokens needs {grouped(need)} KV blocks with its prefill; an engine has "
                f"about {grouped(blocks.value)} ({grouped(blocks.low)} to {grouped(blocks.high)}): "
                f"{'it will not start' if surely else 'it may not start'}",
                f"set maxModelLen to {grouped(kv.longest)} or less, lower maxNumBatchedTokens, or use more GPUs"
                if kv.longest
                else "lower maxNumBatchedTokens, or use more or larger GPUs",
            )
        )
    if safe is not None:
        over = context > safe
        found.append(
            PlanFinding(
                "Warning" if over else "Info",
                "ContextVerified",
                path,
                f"recipes start this model on this generation of GPUs with a context of {safe} tokens; "
                f"{f'{context} is not verified' if over else f'the engine is told {context}'}",
                f"keep --max-model-len at {safe}, or try it on one instance first",
            )
        )
    if memory.kv.value < TIGHT_SHARE * memory.usable.value:
        found.append(
            PlanFinding(
                "Warning",
                "KvTight",
                subject.origins.path("hardware", "gpus_per_instance"),
                f"KV cache is tight: about {gigabytes(memory.kv.value)} of {gigabytes(memory.usable.value)} on each GPU "
                f"({gigabytes(max(0.0, memory.kv.low))} to {gigabytes(memory.kv.high)}); the context limit is "
                f"{grouped(min(kv.longest, safe) if safe else kv.longest)} tokens",
                "use more or larger GPUs, or shorter contexts; read the engine's own number after its start",
            )
        )
    return found


def queue_findings(subject: Subject, kv: KvPlan, admitted: int, context: int) -> list[PlanFinding]:
    """From which request on others wait."""
    held = next((int(figure.value) for length, figure in kv.concurrency if length == context), 0)
    path = subject.path("--max-num-seqs", "engine", "args", "max_num_seqs")
    if held >= admitted:
        return [
            PlanFinding(
                "Info",
                "QueuesAbove",
                path,
                f"queues above {grouped(admitted)} requests per instance: maxNumSeqs {subject.settings.max_num_seqs} x {kv.engines} "
                f"engines is reached before the KV cache is full (which holds {grouped(held)} of {grouped(context)} tokens)",
                "raise maxNumSeqs where latency allows",
            )
        ]
    return [
        PlanFinding(
            "Warning" if subject.settings.chosen_sequences else "Info",
            "QueuesAbove",
            path,
            f"queues above {grouped(held)} requests of {grouped(context)} tokens per instance: the KV cache is full before "
            f"maxNumSeqs {subject.settings.max_num_seqs} x {kv.engines} engines is reached; more wait, or are preempted while "
            "they grow",
            f"set maxNumSeqs to {max(1, held // kv.engines)} for requests of this length, or add KV cache by data parallelism",
        )
    ]


def replication_finding(
    subject: Subject, model: Model, kv: KvPlan, other: Alternative, context: int
) -> PlanFinding | None:
    """Tensor parallelism copies the KV cache of a model with a single KV head."""
    if other.factor < WORTH_TELLING or subject.settings.tensor_parallel < 2:
        return None
    held = next((int(figure.value) for length, figure in kv.concurrency if length == context), 0)
    return PlanFinding(
        "Warning" if context >= LONG else "Info",
        "TensorParallelCopiesKv",
        subject.path("--tensor-parallel-size", "engine", "args", "tensor_parallel_size"),
        f"KV is not multiplied by tensor parallelism ({model.id} has a single KV head, each of "
        f"{subject.settings.tensor_parallel} ranks keeps the same blocks): {subject.settings.layout} holds "
        f"{grouped(kv.tokens.value)} tokens ({grouped(held)} requests of {grouped(context)}), {other.layout} on the same "
        f"GPUs about {grouped(other.tokens.value)}, {other.factor:.1f} times as many",
        f"use {other.layout} for pools with long contexts: dataParallelSize and enableExpertParallel",
    )


def block_size_finding(subject: Subject, model: Model, kv: KvPlan) -> PlanFinding | None:
    """Where the kernels dictate the block size, and the spec says another."""
    told = subject.settings.block_size
    if told is None or not model.block_sizes or told in model.block_sizes:
        return None
    return PlanFinding(
        "Error",
        "BlockSizeFixed",
        subject.path("--block-size", "engine", "args", "block_size"),
        f"block size {told} is illegal: the kernels of {model.id} take only "
        f"{', '.join(map(str, model.block_sizes))} tokens a block",
        "leave blockSize out",
    )


def demand_findings(plans: tuple[PoolPlan, ...], options: Options) -> dict[str, list[PlanFinding]]:
    """By pool: what of the demand waits, with all instances and with one lost."""
    found: dict[str, list[PlanFinding]] = {}
    for tokens, many in sorted(options.demand.items()):
        fitting = [p for p in plans if p.context is not None and p.context >= tokens]
        taker = min(fitting, key=lambda p: (p.context or 0, p.name), default=None)
        if taker is None:
            widest = max(plans, key=lambda p: p.context or 0)
            message = f"{many} requests of {grouped(tokens)} tokens fit no pool: the longest takes {grouped(widest.context or 0)}"
            cure = "raise a pool's context.maxTokens, or add a pool for them"
            found.setdefault(widest.name, []).append(
                PlanFinding("Warning", "DemandFitsNoPool", "spec.pools", message, cure)
            )
            continue
        found.setdefault(taker.name, []).extend(_queueing(taker, tokens, many))
    return found


def _queueing(plan: PoolPlan, tokens: int, many: int) -> list[PlanFinding]:
    runs = plan.sustained(tokens)
    if runs is None:
        return []
    path, what = "spec.pools", f"{many} requests of {grouped(tokens)} tokens at a time"
    if many > runs:
        message = f"{what}: {runs} run, {many - runs} wait in the queue"
        cure = "add replicas, use data parallelism for more KV cache, or accept the wait"
        return [PlanFinding("Warning", "DemandQueues", path, message, cure)]
    after = runs // plan.replicas * (plan.replicas - 1) if plan.replicas else 0
    if many > after:
        message = f"{what} run now; with one instance lost {after} run and {many - after} wait"
        return [PlanFinding("Warning", "DemandQueuesAfterFailure", path, message, "add one replica")]
    return [PlanFinding("Info", "DemandRuns", path, f"{what}: all run, also with one instance lost", "")]
