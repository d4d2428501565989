"""One pool's plan."""

import math
from dataclasses import replace

from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.entities import Gpu, Model
from kintsugi.core.planner.advice import (
    block_size_finding,
    context_findings,
    queue_findings,
    replication_finding,
)
from kintsugi.core.planner.article import both_formulas
from kintsugi.core.planner.cost import per_million_tokens, tokens_per_second
from kintsugi.core.planner.figure import Figure, exact
from kintsugi.core.planner.finding import PlanFinding
from kintsugi.core.planner.fit import hardware_findings, unplannable, weights_finding
from kintsugi.core.planner.host import host_finding
from kintsugi.core.planner.kv import Blocks, blocks_of, concurrency, longest_request
from kintsugi.core.planner.memory import GpuMemory, divide, engine_blocks
from kintsugi.core.planner.offload import offload_needs
from kintsugi.core.planner.options import Options
from kintsugi.core.planner.prices import Prices
from kintsugi.core.planner.result import Alternative, Cost, KvPlan, Margin, PoolPlan
from kintsugi.core.planner.settings import Settings
from kintsugi.core.planner.subject import Subject
from kintsugi.core.planner.waste import block_waste


def plan_pool(subject: Subject, catalog: Catalog, prices: Prices, options: Options) -> PoolPlan:
    """Everything that can be said of one pool. Same input, same plan."""
    reason = unplannable(subject)
    model, gpu = subject.model, subject.gpu
    if reason is not None or model is None or gpu is None:
        return _nothing_known(subject, reason)
    memory = divide(model, gpu, subject.settings)
    context = subject.context or model.max_context
    kv = _kv(subject, subject.settings, memory, options, context)
    findings = [*_native(subject), *hardware_findings(subject, model, gpu)]
    findings += [found for found in (weights_finding(subject, memory),) if found]
    other = _spread_by_data(subject, model, gpu, kv, options, context) if kv else None
    if kv is not None:
        findings += _kv_findings(subject, model, memory, kv, other, context)
    else:
        findings.append(_no_layout(model))
    fits = not any(finding.severity == "Error" for finding in findings)
    if not fits and kv is not None:
        kv = _emptied(kv) if _hopeless(findings) else kv
    admitted = subject.settings.max_num_seqs * subject.settings.data_parallel
    cost = _cost(subject, model, gpu, catalog, prices, options)
    if cost is None:
        findings.append(_no_price(subject, gpu, prices))
    needs = None
    if subject.settings.offload_bytes:
        engines = max(1, subject.settings.data_parallel // subject.nodes)
        needs = offload_needs(
            subject.settings.offload_bytes, engines, subject.version, options.offload_factor
        )
        findings.append(host_finding(subject, needs))
    mean = options.mean(context)
    return PoolPlan(
        name=subject.pool.name,
        model=model.id,
        gpu=gpu.name,
        gpus=subject.gpus,
        nodes=subject.nodes,
        replicas=subject.pool.replicas,
        layout=subject.settings.layout,
        fits=fits,
        context=context,
        memory=memory,
        weights=memory.weights.scaled(subject.settings.gpus),
        kv=kv,
        admitted=admitted,
        alternative=other,
        cost=cost,
        margin=_margin(subject, kv, admitted),
        offload=needs,
        offload_tokens=_offload_tokens(subject, kv),
        formulas=both_formulas(
            model.loaded_bytes, memory, kv.blocks, subject.settings, subject.settings.max_num_seqs, mean
        )
        if kv
        else None,
        waste=block_waste(model.kv, model.block_sizes, options.demand or {mean: 1}, not options.demand)
        if model.kv
        else (),
        findings=tuple(findings),
    )


def _nothing_known(subject: Subject, reason: PlanFinding | None) -> PoolPlan:
    return PoolPlan(
        name=subject.pool.name,
        model=subject.model_id,
        gpu=subject.pool.hardware.gpu or "",
        gpus=subject.gpus,
        nodes=subject.nodes,
        replicas=subject.pool.replicas,
        layout=subject.settings.layout,
        fits=None if reason is not None and reason.severity == "Info" else False,
        context=subject.context,
        memory=None,
        weights=None,
        kv=None,
        admitted=None,
        alternative=None,
        cost=None,
        margin=None,
        offload=None,
        offload_tokens=None,
        formulas=None,
        waste=(),
        findings=(reason,) if reason else (),
    )


def _kv(
    subject: Subject, settings: Settings, memory: GpuMemory, options: Options, context: int
) -> KvPlan | None:
    model = subject.model
    if model is None or model.kv is None or not model.kv.block_bytes:
        return None
    blocks = blocks_of(model.kv, settings, subject.version, model.block_sizes)
    told = settings.num_gpu_blocks_override
    one = exact(told, "--num-gpu-blocks-override") if told else engine_blocks(memory, blocks)
    engines = settings.data_parallel
    lengths = sorted({n for n in (*options.lengths, *options.demand) if n <= context} | {context})
    longest = longest_request(one.value, blocks, context)
    safe = subject.recipe.safe_context if subject.recipe else None
    known = min(safe, context) if subject.verified and safe and one.high > 0 else 0
    longest = max(longest, known)
    return KvPlan(
        blocks=blocks,
        engine_blocks=one,
        engines=engines,
        tokens=one.scaled(
            engines * blocks.tokens, f"blocks x {blocks.tokens} tokens x {engines} engines"
        ).floored(),
        concurrency=tuple(
            (tokens, _held(one, blocks, tokens, known).scaled(engines).floored()) for tokens in lengths
        ),
        longest=longest,
    )


def _held(one: Figure, blocks: Blocks, tokens: int, known: int) -> Figure:
    """Requests of that length in one engine: at least one up to the length that recipes are known to start with."""
    found = concurrency(one, blocks, tokens)
    if tokens > known or found.value >= 1:
        return found
    told = f"recipes start with {known:,} tokens; {found.source}"
    return replace(found, value=1, high=max(1, found.high), source=told)


def _kv_findings(
    subject: Subject, model: Model, memory: GpuMemory, kv: KvPlan, other: Alternative | None, context: int
) -> list[PlanFinding]:
    found = context_findings(subject, memory, kv, context) if memory.kv.high > 0 else []
    admitted = subject.settings.max_num_seqs * subject.settings.data_parallel
    if dict(kv.concurrency)[context].value:
        found += queue_findings(subject, kv, admitted, context)
    copies = replication_finding(subject, model, kv, other, context) if other else None
    fixed = block_size_finding(subject, model, kv)
    return [*found, *(finding for finding in (copies, fixed) if finding)]


def _spread_by_data(
    subject: Subject, model: Model, gpu: Gpu, kv: KvPlan, options: Options, context: int
) -> Alternative | None:
    """The same GPUs with data parallelism in place of tensor parallelism, where that keeps one copy of the KV less."""
    mine = subject.settings
    if mine.tensor_parallel < 2 or not (model.kv and model.kv.replicated_over_tensor_parallel):
        return None
    spread = replace(
        mine,
        tensor_parallel=1,
        data_parallel=mine.data_parallel * mine.tensor_parallel,
        expert_parallel=True,
    )
    memory = divide(model, gpu, spread)
    theirs = _kv(subject, spread, memory, options, context)
    if theirs is None or not kv.tokens.value or memory.kv.low <= 0:
        return None
    return Alternative(spread.layout, theirs.tokens, theirs.tokens.value / kv.tokens.value)


def _hopeless(findings: list[PlanFinding]) -> bool:
    return any(
        finding.severity == "Error" and finding.rule in ("MemoryBelowFloor", "WeightsDoNotFit")
        for finding in findings
    )


def _emptied(kv: KvPlan) -> KvPlan:
    """Nothing runs where the weights don't fit."""
    return replace(
        kv,
        engine_blocks=kv.engine_blocks.scaled(0),
        tokens=kv.tokens.scaled(0),
        concurrency=tuple((tokens, figure.scaled(0)) for tokens, figure in kv.concurrency),
        longest=0,
    )


def _native(subject: Subject) -> list[PlanFinding]:
    if subject.pool.engine.runtime != "Native":
        return []
    return [
        PlanFinding(
            "Warning",
            "NativeRuntime",
            subject.origins.path("engine", "runtime"),
            "the native runtime keeps a contiguous KV cache: blocks, concurrency and the longest request are those that "
            "vLLM would have on this hardware",
            "read the engine's own numbers after its start",
        )
    ]


def _no_layout(model: Model) -> PlanFinding:
    return PlanFinding(
        "Warning",
        "KvUnknown",
        "spec.model.id",
        f"the catalog does not say how {model.id} keeps its KV cache: only weights and cost are planned",
        "describe it in a file for --catalog (kv), or read the engine's own numbers after its start",
    )


def _no_price(subject: Subject, gpu: Gpu, prices: Prices) -> PlanFinding:
    return PlanFinding(
        "Info",
        "PriceUnknown",
        subject.origins.path("hardware", "gpu"),
        f"no price is known for {gpu.name} (prices of {prices.date})",
        f"give one: --prices FILE with `gpus: {{{gpu.name}: 2.5}}`",
    )


def _cost(
    subject: Subject, model: Model, gpu: Gpu, catalog: Catalog, prices: Prices, options: Options
) -> Cost | None:
    price = prices.of(gpu, catalog)
    if price is None:
        return None
    hour = price.scaled(subject.gpus)
    speed = tokens_per_second(model, gpu, subject.gpus, options.tokens_per_second)
    return Cost(
        prices.currency,
        prices.date,
        hour,
        hour.scaled(subject.pool.replicas),
        speed,
        per_million_tokens(hour, speed),
    )


def _margin(subject: Subject, kv: KvPlan | None, admitted: int) -> Margin:
    left = max(0, subject.pool.replicas - 1)
    held = kv.concurrency if kv else ()
    return Margin(
        left,
        tuple((tokens, left * min(int(figure.value), admitted)) for tokens, figure in held),
        subject.gpus,
    )


def _offload_tokens(subject: Subject, kv: KvPlan | None) -> int | None:
    asked = subject.settings.offload_bytes
    if not asked or kv is None:
        return None
    stride = kv.blocks.bytes * subject.settings.pipeline_parallel
    return math.floor(asked / stride) * kv.blocks.tokens * kv.engines
