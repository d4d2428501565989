"""A plan as JSON: the contract of `kintsugi plan -o json`."""

from typing import Any

from kintsugi.core.planner.figure import Figure
from kintsugi.core.planner.result import PoolPlan


def pool_document(plan: PoolPlan) -> dict[str, Any]:
    """One pool. Bytes, tokens and requests are whole numbers; null is what nobody can say.

    `weightsBytes` is on all GPUs of one instance together, `kvTokens` of all its engines together, `concurrency` of one
    instance, `costPerHour` of all replicas.
    """
    kv, memory, cost = plan.kv, plan.memory, plan.cost
    return {
        "fits": plan.fits,
        "weightsBytes": _whole(plan.weights),
        "kvTokens": _whole(kv.tokens) if kv else None,
        "concurrency": {str(tokens): _whole(figure) for tokens, figure in kv.concurrency} if kv else {},
        "maxContext": kv.longest if kv else None,
        "costPerHour": round(cost.pool_hour.value, 2) if cost else None,
        "findings": [
            {"severity": f.severity, "rule": f.rule, "path": f.path, "message": f.message, "cure": f.cure}
            for f in plan.findings
        ],
        "model": plan.model,
        "gpu": plan.gpu,
        "gpus": plan.gpus,
        "nodes": plan.nodes,
        "replicas": plan.replicas,
        "layout": plan.layout,
        "contextTokens": plan.context,
        "maxNumSeqs": plan.admitted,
        "figures": _figures(plan),
        "perGpu": {
            name: figure_document(getattr(memory, name))
            for name in ("total", "usable", "weights", "reserve", "kv")
        }
        if memory
        else None,
        "afterOneFailure": {
            "instances": plan.margin.after_one_failure,
            "concurrency": {str(tokens): many for tokens, many in plan.margin.concurrency_after},
            "surgeGpus": plan.margin.surge_gpus,
        }
        if plan.margin
        else None,
        "dataParallel": {
            "layout": plan.alternative.layout,
            "kvTokens": _whole(plan.alternative.tokens),
            "factor": round(plan.alternative.factor, 2),
        }
        if plan.alternative
        else None,
        "offload": _offload(plan),
        "formulas": _formulas(plan),
        "blockWaste": [
            {
                "blockSize": row.block_size,
                "wastePercent": round(row.percent, 2),
                "bytesPerRequest": round(row.bytes_per_request),
                "legal": row.legal,
            }
            for row in plan.waste
        ],
        "prices": {"currency": cost.currency, "date": cost.date} if cost else None,
    }


def figure_document(figure: Figure) -> dict[str, Any]:
    """A figure with its band, basis and source."""
    return {
        "value": _number(figure.value),
        "low": _number(figure.low),
        "high": _number(figure.high),
        "basis": figure.basis,
        "source": figure.source,
    }


def _figures(plan: PoolPlan) -> dict[str, Any]:
    told: dict[str, Figure | None] = {"weightsBytes": plan.weights}
    if plan.kv:
        told |= {"kvTokens": plan.kv.tokens, "kvBlocksPerEngine": plan.kv.engine_blocks}
        told |= {f"concurrency.{tokens}": figure for tokens, figure in plan.kv.concurrency}
    if plan.cost:
        told |= {
            "costPerHour": plan.cost.pool_hour,
            "costPerInstanceHour": plan.cost.instance_hour,
            "tokensPerSecond": plan.cost.tokens_per_second,
            "costPerMillionTokens": plan.cost.per_million_tokens,
        }
    return {name: figure_document(figure) for name, figure in told.items() if figure is not None}


def _offload(plan: PoolPlan) -> dict[str, Any] | None:
    needs = plan.offload
    if needs is None:
        return None
    return {
        "bytesPerEngine": needs.per_engine,
        "engines": needs.engines,
        "factor": needs.factor,
        "hostBytes": needs.blocks_bytes,
        "sharedMemoryBytes": needs.shared_memory_bytes,
        "memoryLimitBytes": needs.memory_limit_bytes,
        "tokens": plan.offload_tokens,
    }


def _formulas(plan: PoolPlan) -> dict[str, Any] | None:
    told = plan.formulas
    if told is None:
        return None
    return {
        "sequences": told.sequences,
        "meanLength": told.mean_length,
        "bytesPerToken": round(told.bytes_per_token, 1),
        "simpleBytes": round(told.simple),
        "correctedBytes": figure_document(told.corrected),
    }


def _whole(figure: Figure | None) -> int | None:
    return None if figure is None else round(figure.value)


def _number(value: float) -> float | int:
    return round(value) if abs(value) >= 1000 or value == round(value) else round(value, 4)
