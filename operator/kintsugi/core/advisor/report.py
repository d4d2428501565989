"""Advice as plain JSON values, for people's scripts."""

import math
from collections.abc import Mapping
from typing import Any

from kintsugi.core.advisor.advice import Missing, Suggestion
from kintsugi.core.advisor.advise import Advice
from kintsugi.core.advisor.traffic import PoolTraffic


def report(name: str, advice: Advice, traffic: Mapping[str, PoolTraffic]) -> dict[str, Any]:
    """One deployment: the traffic that was seen, the suggestions, and what could not be judged."""
    return {
        "deployment": name,
        "pools": {pool: summary(traffic[pool]) for pool in sorted(traffic)},
        "suggestions": [_suggestion(each) for each in advice.suggestions],
        "missing": [_missing(each) for each in advice.missing],
    }


def summary(traffic: PoolTraffic) -> dict[str, Any]:
    """What was seen of one pool; a figure that no page tells is null."""
    moments = traffic.moments()
    usage = traffic.mean_kv()
    return {
        "instances": len(traffic.instances),
        "windowSeconds": round(traffic.seconds, 1),
        "samples": traffic.looks,
        "requests": round(traffic.requests),
        "running": _mean([m.running for m in moments]),
        "waiting": _mean([m.waiting for m in moments]),
        "kvUsagePercent": None if usage is None else round(100 * usage, 1),
        "preemptions": traffic.gained("preemptions"),
    }


def _mean(numbers: list[float]) -> float | None:
    return round(math.fsum(numbers) / len(numbers), 2) if numbers else None


def _suggestion(each: Suggestion) -> dict[str, Any]:
    return {
        "pool": each.pool,
        "path": each.path,
        "current": plain(each.current),
        "suggested": plain(each.suggested),
        "confidence": each.confidence,
        "samples": each.samples,
        "requests": each.requests,
        "windowSeconds": each.window_seconds,
        "why": each.why,
    }


def _missing(each: Missing) -> dict[str, Any]:
    return {"pool": each.pool, "path": each.path, "why": each.why}


def plain(number: float | None) -> float | int | None:
    """Whole numbers without a decimal point."""
    return int(number) if number is not None and number == int(number) else number
