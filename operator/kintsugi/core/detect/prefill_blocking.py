"""`long prefill blocking`: one giant prefill keeps a rank so busy that no other request gets a token. Advice only.

The engine works: its steps go on, or its KV usage moves. A new instance would throw that prefill away and begin it again
(S18); what helps is to send long prompts elsewhere, or to cut them smaller.
"""

from dataclasses import dataclass, field
from typing import Final

from kintsugi.core.finding import Detector, Evidence, Finding, Severity
from kintsugi.core.sample import RankSample, Sample
from kintsugi.core.times import Times

BLOCKED_FROM: Final = 2.0
"""Running requests of a rank from which on somebody waits for another's prefill."""
CURE: Final = (
    "send prompts of that length to a pool of their own, use data instead of tensor parallelism, or lower "
    "maxNumBatchedTokens"
)


@dataclass(frozen=True, slots=True)
class Blocked:
    """A rank in which no token comes though it works. Monotonic seconds."""

    since: float
    kv_usage: float | None
    """Share of its KV blocks in use when it began."""


@dataclass(slots=True)
class PrefillState:
    """The ranks of one process in which a prefill blocks the others."""

    ranks: dict[str, Blocked] = field(default_factory=dict)


def see_prefill(state: PrefillState, before: Sample | None, after: Sample, times: Times) -> None:
    """Take in one readable page. A gap between two pages proves nothing."""
    if before is None or after.mono - before.mono > times.readable_gap:
        state.ranks.clear()
        return
    blocked: dict[str, Blocked] = {}
    for rank in after.ranks:
        if rank.running is None or rank.running < BLOCKED_FROM:
            continue
        then = before.rank(rank.rank)
        if then is not None and _is_blocked(then, rank):
            blocked[rank.rank] = state.ranks.get(rank.rank) or Blocked(before.mono, then.kv_usage)
    state.ranks = blocked


def prefill_finding(state: PrefillState, sample: Sample, now: float, times: Times) -> Finding | None:
    """The advice on the rank that is blocked the longest, once that is no accident of two pages. `now`: epoch seconds."""
    if not state.ranks:
        return None
    name, blocked = min(state.ranks.items(), key=lambda item: (item[1].since, item[0]))
    seconds = sample.mono - blocked.since
    if seconds < times.readable_gap:
        return None
    rank = sample.rank(name)
    running = (rank.running if rank is not None else None) or 0.0
    where = f" of rank {name}" if len(sample.ranks) > 1 else ""
    text = f"a long prefill has kept {running - 1:.0f} other requests{where} from their next token for {seconds:.0f} s"
    evidence = [
        Evidence("seconds without a token", seconds, "s", 1),
        Evidence("requests running", running, "count", 1),
    ]
    if rank is not None and rank.kv_usage is not None and blocked.kv_usage is not None:
        grown = 100.0 * (rank.kv_usage - blocked.kv_usage)
        evidence.append(Evidence("KV usage gained meanwhile", grown, "points", 1))
    return Finding(
        Detector.LOAD,
        "LongPrefillBlocks",
        Severity.ADVICE,
        f"{text}, and the engine works: {CURE}",
        now - seconds,
        tuple(evidence),
        removable=False,
    )


def _is_blocked(before: RankSample, after: RankSample) -> bool:
    """No token came, and there is proof of work: a step, or a change of KV usage."""
    if after.generation_tokens is None or after.generation_tokens != before.generation_tokens:
        return False
    return _differ(before.steps, after.steps) or _differ(before.kv_usage, after.kv_usage)


def _differ(then: float | None, now: float | None) -> bool:
    return then is not None and now is not None and then != now
