"""Signal values for people, keyed as `api.status.SignalValues` is."""

import math
from typing import Final

from kintsugi.core.detect.cache_hit import ENOUGH_TOKENS
from kintsugi.core.detect.growing_findings import forecast_seconds, memory_percent
from kintsugi.core.evidence import ProcessEvidence
from kintsugi.core.metric_contract import SOURCES
from kintsugi.core.times import Times

HIT_RATE_TOKENS: Final = ENOUGH_TOKENS
"""Looked-up prompt tokens since its start below which a process has no hit rate yet (it is warming)."""


def user_running(process: ProcessEvidence, fresh: bool) -> float | None:
    """Requests running that are not canaries of ours; None where no page of late tells, or its gauges lie.

    `fresh`: a page was readable within the gap that evidence may have.
    """
    if process.sample is None or not fresh:
        return None
    total, known = 0.0, False
    for rank in process.sample.ranks:
        clock = process.stall.clock(rank.rank)
        if rank.running is None or clock.stale:
            continue
        known = True
        ours = clock.open() + process.answers.open(rank.rank)
        total += max(0.0, rank.running - ours)
    return total if known else None


def signal_values(
    process: ProcessEvidence, fresh: bool, running: float | None, mono: float, times: Times
) -> dict[str, float]:
    """The values that are known now; a signal that is not known is left out, never zero. `fresh` and `running` as
    `user_running` has them."""
    values: dict[str, float | None] = {"fragmentation_percent": _fragmentation(process)}
    sample = process.sample
    if sample is not None and fresh:
        usage = sample.whole.kv_usage
        values["kv_cache_usage_percent"] = None if usage is None else 100.0 * usage
        values["running"] = running
        values["waiting"] = sample.whole.waiting
        values["cache_hit_percent"] = hit_percent(process)
        values["preemptions_per_second"] = _preemptions(process, times)
    values["lost_percent"] = process.slow.lost_percent()
    counts = process.errors.counts
    values["error_percent"] = 100.0 * counts.errors / counts.requests if counts.requests >= 1 else None
    values["gpu_utilization_percent"] = process.gpu_use.mean
    values["memory_percent"] = memory_percent(process.memory, mono, times)
    values["memory_forecast_seconds"] = forecast_seconds(process.memory, mono, times)
    clocks = process.stall.ranks
    values["flat_seconds"] = max([clock.flat for clock in clocks.values()]) if clocks else None
    known = {name: value for name, value in values.items() if value is not None}
    if all(map(math.isfinite, known.values())):
        return known
    return {name: value for name, value in known.items() if math.isfinite(value)}


def _fragmentation(process: ProcessEvidence) -> float | None:
    """The worst source's last value, percent. A series that the newest page lacks has no value any more."""
    here = {} if process.sample is None else process.sample.telemetry
    worst: float | None = None
    for source, state in process.fragmentation.items():
        value = state.value
        if value is not None and (worst is None or value > worst) and here.get(SOURCES[source]):
            worst = value
    return worst


def fragmentation_source(process: ProcessEvidence) -> str:
    """The source whose value `fragmentation_percent` is; '' where none is known."""
    known = [
        (state.value, source) for source, state in process.fragmentation.items() if state.value is not None
    ]
    return max(known)[1] if known else ""


def hit_percent(process: ProcessEvidence) -> float | None:
    """Share of looked-up prompt tokens found in the prefix cache since the process began; None while warming."""
    sample = process.sample
    if sample is None:
        return None
    queries, hits = sample.whole.prefix_queries, sample.whole.prefix_hits
    if queries is None or hits is None or queries < HIT_RATE_TOKENS:
        return None
    return 100.0 * hits / queries


def _preemptions(process: ProcessEvidence, times: Times) -> float | None:
    before, after = process.before, process.sample
    if before is None or after is None or not 0.0 < after.mono - before.mono <= times.readable_gap:
        return None
    then, now = before.whole.preemptions, after.whole.preemptions
    return None if then is None or now is None else max(0.0, now - then) / (after.mono - before.mono)
