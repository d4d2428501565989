"""`maxNumSeqs`: fewer where the KV cache overflows, more where requests queue beside free KV."""

import math
from collections.abc import Sequence
from typing import Final

from kintsugi.core.advisor.advice import Answer, Missing, suggestion, worth_it
from kintsugi.core.advisor.lengths import mean_length
from kintsugi.core.advisor.settings import PoolSettings, said_elsewhere
from kintsugi.core.advisor.traffic import Moment, PoolTraffic

MIN_PREEMPTIONS: Final = 3.0
PREEMPTED_SHARE: Final = 0.01
"""Preemptions, and preemptions per finished request, from which on the cache is called too small for so many: each
throws a request's KV away and computes it again."""
FULL_KV: Final = 0.9
"""KV usage to aim at where the cache overflows, so that growing answers find a block."""
SPARE_KV: Final = 0.7
"""KV usage below which more requests may run ..."""
RAISED_KV: Final = 0.85
"""... and the usage to stop at. Below FULL_KV, so that one advice does not bring on the other."""
AT_LIMIT: Final = 0.95
QUEUED_SHARE: Final = 0.5
"""A queue counts as standing where it is there, all places taken, at this share of the looks."""

GROWING: Final = 1.1
"""Arrivals per ended request from which on the queue grows and its length says nothing of the demand."""
LEAST_STEP: Final = 1.25
"""A queue that grows asks for at least so much more: each request stays longer once more of them run."""
ONE_STEP: Final = 2
"""Largest factor of one raise: how much longer a step gets is only seen afterwards."""


def sequences(settings: PoolSettings, traffic: PoolTraffic) -> Answer:
    """Advice on `maxNumSeqs`, which counts per engine (data-parallel rank)."""
    path = settings.argument("maxNumSeqs")
    moments = [m for m in traffic.moments() if m.kv is not None and m.running > 0]
    preempted = traffic.gained("preemptions")
    if preempted is None:
        return Missing(traffic.pool, path, "vllm:num_preemptions_total is not on the page of every instance")
    if not moments:
        return Missing(traffic.pool, path, "no look found a request running and vllm:kv_cache_usage_perc")
    if preempted >= max(MIN_PREEMPTIONS, PREEMPTED_SHARE * traffic.requests):
        return _fewer(settings, traffic, path, moments, preempted)
    return _more(settings, traffic, path, moments)


def kv_per_request(moments: Sequence[Moment]) -> float:
    """Share of an engine's KV blocks that one running request holds, as seen. Needs moments with a request running."""
    used = math.fsum(m.kv or 0.0 for m in moments)
    return used / math.fsum(m.running for m in moments)


def rounded_down(number: float) -> int:
    """To a number that people would write: a multiple of 8 from 64 on, of 4 from 16 on; at least 1."""
    step = 8 if number >= 64 else 4 if number >= 16 else 1
    return max(1, int(number // step) * step)


def _fewer(
    settings: PoolSettings, traffic: PoolTraffic, path: str, moments: Sequence[Moment], preempted: float
) -> Answer:
    fullest = max(m.kv or 0.0 for m in moments)
    full = [m for m in moments if (m.kv or 0.0) >= 0.8 * fullest]
    each = kv_per_request(full)
    if each <= 0:
        return Missing(traffic.pool, path, "requests were preempted, and no look found KV blocks in use")
    fits = rounded_down(FULL_KV / each)
    current = settings.sequences
    limit = current.value if current else max(m.running for m in moments)
    if fits >= limit or not worth_it(limit, fits):
        return None
    why = (
        f"{preempted:.0f} preemptions beside {traffic.requests:.0f} finished requests. In the {len(full)} fullest looks "
        f"({percent(fullest)} of KV at most) a running request held {percent(each)} of its engine's KV blocks"
        f"{_model_says(settings, traffic)}, so {FULL_KV:g} / {each:.3g} = {FULL_KV / each:.0f} can run without "
        f"throwing each other out."
    )
    return suggestion(traffic, path, current.value if current else None, fits, why + _origin(settings, path))


def _more(settings: PoolSettings, traffic: PoolTraffic, path: str, moments: Sequence[Moment]) -> Answer:
    every = traffic.moments()
    queued = [m for m in moments if m.waiting >= 1]
    if len(queued) < QUEUED_SHARE * len(every):
        return None
    if settings.sequences is None:
        why = (
            "a queue stands, and the limit in force is not known: say engine.args.maxNumSeqs or hardware.gpu"
        )
        return Missing(traffic.pool, path, why)
    current = settings.sequences.value
    at_limit = [m for m in queued if m.running >= AT_LIMIT * current]
    if len(at_limit) < QUEUED_SHARE * len(every):
        return None
    usage = math.fsum(m.kv or 0.0 for m in at_limit) / len(at_limit)
    each = kv_per_request(at_limit)
    if usage >= SPARE_KV or each <= 0:
        return None
    running = math.fsum(m.running for m in at_limit) / len(at_limit)
    inside = running + math.fsum(m.waiting for m in at_limit) / len(at_limit)
    engines = sum(i.ranks for i in traffic.instances)
    ended, came = traffic.requests / traffic.seconds / engines, traffic.arrived / traffic.seconds / engines
    stay = running / ended
    wanted = max(came * stay, LEAST_STEP * current) if came > GROWING * ended else inside
    most = min(RAISED_KV / each, wanted, ONE_STEP * current)
    if settings.batched_tokens is not None:
        most = min(most, settings.batched_tokens.value)
    raised = rounded_down(most)
    if raised <= current or not worth_it(current, raised):
        return None
    why = (
        f"In {len(at_limit)} of {len(every)} looks a queue stood while all {current:.0f} places were taken and only "
        f"{percent(usage)} of KV were in use. {came:.3g} requests a second came to an engine, {ended:.3g} ended, each "
        f"after {stay:.3g} s of running: {wanted:.0f} would have to run at a time (Little's law). A running request "
        f"holds {percent(each)} of KV, so {RAISED_KV:g} / {each:.3g} = {RAISED_KV / each:.0f} fit; not more than "
        f"{ONE_STEP} times the present limit in one step. Every engine step gets longer as more run: watch the time "
        f"between tokens, and look again."
    )
    return suggestion(traffic, path, current, raised, why + _origin(settings, path))


def _model_says(settings: PoolSettings, traffic: PoolTraffic) -> str:
    """The model's own arithmetic beside the observed share, where its layout and the engine's blocks are known."""
    blocks, length = traffic.blocks(), mean_length(traffic)
    layout = settings.model.kv if settings.model else None
    if layout is None or blocks is None or length is None:
        return ""
    wanted = math.ceil(length / layout.block_tokens) + layout.fixed_blocks[1]
    return (
        f" (by the model's layout: {length:.0f} tokens are {wanted:.0f} of {blocks:.0f} blocks, "
        f"{percent(wanted / blocks)})"
    )


def _origin(settings: PoolSettings, path: str) -> str:
    return said_elsewhere(settings.sequences, path) if settings.sequences else ""


def percent(share: float) -> str:
    """A share for people, three digits."""
    return f"{100 * share:.3g} %"
