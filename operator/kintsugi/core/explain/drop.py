"""A18: why has throughput fallen? First what shows in every fleet, then the article's three thresholds."""

import math
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from kintsugi.api.healing import DEFAULT_STALL_FOR_SECONDS
from kintsugi.core.advisor.traffic import InstanceTraffic, PoolTraffic
from kintsugi.core.explain.drop_questions import (
    DEMAND,
    ERRORS,
    GPU_USE,
    HIT_RATE,
    PREEMPTIONS,
    SERVING,
    STALLED,
    STEPS,
)
from kintsugi.core.explain.scene import LEAST_SECONDS, Scene, Step, gained, named, rates, worst
from kintsugi.core.signals import HIT_RATE_TOKENS

QUEUE_LASTS: Final = 0.5
"""Share of looks with somebody waiting from which on a queue stands. Assumed."""
STANDS: Final = "makes no engine step"
"""What the traffic says of an instance that hangs (`advisor.traffic`)."""


def drop(scene: Scene) -> list[Step]:
    """The steps, in the order in which to look."""
    return [
        _serving(scene),
        _demand(scene),
        _stalled(scene),
        _steps(scene),
        _hit_rate(scene),
        _preemptions(scene),
        _gpu_use(scene),
        _errors(scene),
    ]


def _serving(scene: Scene) -> Step:
    if scene.case is None or not scene.case.status.pools:
        return SERVING.unknown("no status says how many instances there are")
    status, reason, message = scene.condition("Available")
    pools = scene.case.status.pools
    ready, there = sum(p.ready for p in pools), sum(p.replicas for p in pools)
    sick = [one.name for one in scene.case.status.instances if one.verdict == "Sick"]
    numbers = {"ready": float(ready), "replicas": float(there), "sick": float(len(sick))}
    said = f"{ready} of {there} instances serve" + (
        f", {len(sick)} are sick: {', '.join(sick[:5])}" if sick else ""
    )
    if status == "False":
        return SERVING.suspect(f"{said} ({reason}: {message})", numbers)
    if sick or ready < there:
        return SERVING.suspect(said, numbers)
    return SERVING.ok(said, numbers) if status == "True" else SERVING.unknown(said, numbers)


def _demand(scene: Scene) -> Step:
    told = []
    numbers: dict[str, float] = {}
    full = False
    for name, pool in sorted((scene.traffic or {}).items()):
        moments = pool.moments()
        if not moments or pool.seconds < LEAST_SECONDS or pool.gained("finished") is None:
            continue
        waiting = sum(m.waiting > 0 for m in moments) / len(moments)
        mean = math.fsum(m.waiting for m in moments) / len(moments)
        running = math.fsum(m.running for m in moments) / len(moments)
        prefix = f"{name or 'pool'}."
        numbers[f"{prefix}requestsPerSecond"] = pool.requests / pool.seconds
        numbers[f"{prefix}running"], numbers[f"{prefix}waiting"] = running, mean
        queue = f"a queue on {100 * waiting:.0f} % of the looks"
        told.append(
            f"pool {name or '(not named)'}: {pool.requests / pool.seconds:.2f} requests/s end, {running:.1f} run and "
            f"{mean:.1f} wait on each engine, {queue}"
        )
        full = full or waiting >= QUEUE_LASTS
    saturated = scene.found("load", "Saturated")
    if full or saturated:
        return DEMAND.suspect("; ".join([*told, *([named(saturated)] if saturated else [])]), numbers)
    if told:
        return DEMAND.ok("; ".join(told) + ": nobody waits for long, so it serves what comes", numbers)
    return DEMAND.unknown("no pages of enough seconds were read", numbers)


def _stalled(scene: Scene) -> Step:
    found = scene.found("stall")
    hung = [why for pool in (scene.traffic or {}).values() for why in pool.left_out if STANDS in why]
    patience = float(scene.triggers.stall.for_seconds or DEFAULT_STALL_FOR_SECONDS)
    for one in scene.engines():
        if (flat := _flat(one)) >= patience:
            hung.append(f"{one.name}: {STANDS} for the last {flat:.0f} s though requests run")
    numbers = {"stalled": float(len({name for name, _ in found} | {why.split(":", 1)[0] for why in hung}))}
    if found or hung:
        return STALLED.suspect("; ".join([*([named(found)] if found else []), *hung[:3]]), numbers)
    if scene.judged() and not scene.unseen():
        return STALLED.ok(f"none of {len(scene.judged())} instances is found to", numbers)
    moving = rates(scene.engines(), "steps")
    busy = {name: rate for name, rate in moving.items() if rate > 0}
    if busy and len(busy) == len(moving) == len(scene.engines()):
        name = min(busy, key=lambda each: (busy[each], each))
        numbers["leastStepsPerSecond"] = busy[name]
        said = f"all {len(busy)} engines that were read make steps, the least busy {busy[name]:.1f} a second ({name})"
        return STALLED.ok(said, numbers)
    if moving:
        said = f"{len(busy)} of {len(scene.engines())} engines make steps; whether an idle one would answer no page tells"
        return STALLED.unknown(said, numbers)
    return STALLED.unknown("no page and no status of every instance tells", numbers)


def _flat(one: InstanceTraffic) -> float:
    """Seconds up to the newest page in which requests ran and neither steps, tokens nor KV usage moved."""
    since = one.looks[-1].sample.mono
    for before, after in reversed(list(pairwise(one.looks))):
        then, now = before.sample, after.sample
        busy = all((sample.total("running") or 0.0) > 0 for sample in (then, now))
        told = now.total("steps") is not None
        moved = any(then.total(name) != now.total(name) for name in ("steps", "generation_tokens"))
        if not busy or not told or moved or then.kv_max() != now.kv_max():
            break
        since = then.mono
    return one.looks[-1].sample.mono - since


def _steps(scene: Scene) -> Step:
    found = scene.found("throughput")
    lost = {
        one.name: one.signals.lost_percent
        for one in scene.judged()
        if one.signals is not None and one.signals.lost_percent is not None
    }
    high = worst(lost)
    line = float(scene.triggers.throughput.drop_percent)
    numbers = {"thresholdPercent": line} | ({} if high is None else {"worstLostPercent": high[1]})
    _, reason, message = scene.condition("Degraded")
    pool_wide = reason == "PoolFindings" and "PoolSlow" in message
    if found or pool_wide:
        said = "; ".join(part for part in (named(found), message if pool_wide else "") if part)
        return STEPS.suspect(said, numbers)
    if "vllm:" in scene.condition("DataFresh")[2]:
        return STEPS.unknown(f"the judge lacks series: {scene.condition('DataFresh')[2]}", numbers)
    sizes = Counter(one.pool for one in scene.working())
    if sizes and min(sizes.values()) < 2:
        alone = min(sizes, key=lambda pool: (sizes[pool], pool))
        said = f"only one instance of pool {alone} has work: without a sibling a slow engine can't be told from traffic"
        return STEPS.unknown(said, numbers)
    if sizes and not scene.unseen():
        more = "" if high is None else f"; the most that one lost is {high[1]:.0f} % ({high[0]})"
        said = f"none of {len(scene.working())} working instances is found to lose {line:.0f} % of its step rate{more}"
        return STEPS.ok(said, numbers)
    if (pace := _pace(scene)) is not None:
        said = f"the pages say {pace:.0f} ms between tokens, but not how long that ought to be"
        return STEPS.unknown(said, {**numbers, "meanTokenGapMs": pace})
    return STEPS.unknown("no instance with work is judged, or some can't be", numbers)


def _pace(scene: Scene) -> float | None:
    """Milliseconds between two tokens of a request, mean over all engines that tell."""
    total, count = gained(scene.engines(), "itl_sum"), gained(scene.engines(), "itl_count")
    return 1000 * total / count if total is not None and count else None


def _hit_rate(scene: Scene) -> Step:
    limit = float(scene.triggers.cache_hit_rate.min_percent)
    numbers = {"thresholdPercent": limit}
    asked, hit = gained(scene.engines(), "prefix_queries"), gained(scene.engines(), "prefix_hits")
    if found := scene.found("cacheHitRate"):
        return HIT_RATE.suspect(named(found), numbers)
    if asked is None or hit is None:
        return HIT_RATE.unknown("no page counts prompt tokens that were looked up", numbers)
    numbers["tokensLookedUp"] = asked
    if asked < HIT_RATE_TOKENS:
        said = f"{asked:.0f} prompt tokens were looked up, at least {HIT_RATE_TOKENS:.0f} are needed"
        return HIT_RATE.unknown(said, numbers)
    percent = 100 * min(1.0, hit / asked)
    numbers["hitPercent"] = percent
    said = f"{percent:.1f} % of {asked:.0f} prompt tokens were found, the line is {limit:.0f} %"
    own = _own_hits(scene.traffic or {})
    low = worst(own, lambda value: -value)
    if low is not None and len(own) > 1:
        numbers["lowestInstancePercent"] = low[1]
        said += f"; lowest of one instance {low[1]:.1f} % ({low[0]})"
    return HIT_RATE.suspect(said, numbers) if percent < limit else HIT_RATE.ok(said, numbers)


def _own_hits(traffic: Mapping[str, PoolTraffic]) -> dict[str, float]:
    found = {}
    for pool in traffic.values():
        for one in pool.instances:
            asked, hit = one.gained("prefix_queries"), one.gained("prefix_hits")
            if asked is not None and hit is not None and asked >= HIT_RATE_TOKENS:
                found[one.name] = 100 * min(1.0, hit / asked)
    return found


def _preemptions(scene: Scene) -> Step:
    limit = float(scene.triggers.preemptions.max_per_second)
    each = rates(scene.engines(), "preemptions")
    high = worst(each)
    numbers = {"thresholdPerSecond": limit}
    if high is not None:
        numbers |= {"worstPerSecond": high[1], "fleetPerSecond": math.fsum(each.values())}
    if found := scene.found("preemptions"):
        return PREEMPTIONS.suspect(named(found), numbers)
    if high is None:
        return PREEMPTIONS.unknown("no page counts preemptions over enough seconds", numbers)
    said = f"at most {high[1]:.2f} a second on one engine ({high[0]}), {numbers['fleetPerSecond']:.2f} on all; the line is {limit:g}"
    return PREEMPTIONS.suspect(said, numbers) if high[1] > limit else PREEMPTIONS.ok(said, numbers)


def _gpu_use(scene: Scene) -> Step:
    band = scene.triggers.gpu_utilization
    numbers = {"minPercent": float(band.min_percent), "maxPercent": float(band.max_percent)}
    if found := scene.found("gpuUtilization"):
        return GPU_USE.suspect(named(found), numbers)
    told = {
        one.name: one.signals.gpu_utilization_percent
        for one in scene.judged()
        if one.signals is not None and one.signals.gpu_utilization_percent is not None
    }
    outside = {
        name: value for name, value in told.items() if not band.min_percent <= value <= band.max_percent
    }
    if outside:
        name, value = next(iter(sorted(outside.items())))
        return GPU_USE.suspect(f"{name}: {value:.0f} %", {**numbers, "percent": value})
    if told and len(told) == len(scene.judged()) and not scene.unseen():
        return GPU_USE.ok(f"{min(told.values()):.0f} to {max(told.values()):.0f} %", numbers)
    return GPU_USE.unknown("neither a page nor the status tells it of every instance", numbers)


def _errors(scene: Scene) -> Step:
    limit = float(scene.triggers.errors.max_percent)
    numbers = {"thresholdPercent": limit}
    bad, good = gained(scene.engines(), "failed"), gained(scene.engines(), "finished")
    ended = (bad or 0.0) + (good or 0.0)
    if bad is not None and ended:
        numbers |= {"failed": bad, "ended": ended, "failedPercent": 100 * bad / ended}
    if found := scene.found("errors"):
        return ERRORS.suspect(named(found), numbers)
    if "failedPercent" in numbers:
        said = f"{bad:.0f} of {ended:.0f} requests failed ({numbers['failedPercent']:.1f} %), the line is {limit:.0f} %"
        return ERRORS.suspect(said, numbers) if numbers["failedPercent"] > limit else ERRORS.ok(said, numbers)
    if scene.working() and not scene.unseen():
        return ERRORS.ok(
            f"none of {len(scene.working())} working instances is found to fail requests", numbers
        )
    return ERRORS.unknown("no request ended on the pages that were read", numbers)
