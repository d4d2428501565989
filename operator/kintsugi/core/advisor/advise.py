"""All advice on one deployment, in one order, from its settings and its pools' traffic."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kintsugi.core.advisor.advice import Answer, Missing, Suggestion, lacking
from kintsugi.core.advisor.batch import batched_tokens
from kintsugi.core.advisor.blocks import block_size
from kintsugi.core.advisor.memory import memory_utilization
from kintsugi.core.advisor.replicas import replicas
from kintsugi.core.advisor.sequences import sequences
from kintsugi.core.advisor.settings import PoolSettings
from kintsugi.core.advisor.threshold import threshold
from kintsugi.core.advisor.traffic import PoolTraffic

RULES: Final[tuple[Callable[[PoolSettings, PoolTraffic], Answer], ...]] = (
    sequences,
    batched_tokens,
    memory_utilization,
    block_size,
)
"""What is asked of each pool by itself."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What a person may change, and what could not be judged."""

    suggestions: tuple[Suggestion, ...]
    missing: tuple[Missing, ...]


def advise(settings: Sequence[PoolSettings], traffic: Mapping[str, PoolTraffic]) -> Advice:
    """Advice on every pool of `settings`, in their order. The same input gives the same advice."""
    answers: list[Answer] = []
    ready: list[tuple[PoolSettings, PoolTraffic]] = []
    for pool in settings:
        seen = traffic.get(pool.name, PoolTraffic(pool.name, ()))
        answers += [Missing(pool.name, pool.path, f"left out: {why}") for why in seen.left_out]
        why = lacking(seen)
        if why:
            answers.append(Missing(pool.name, pool.path, why))
            continue
        ready.append((pool, seen))
        answers += [rule(pool, seen) for rule in RULES]
        answers.append(_instances(pool, seen, answers))
    answers += [threshold(short, long) for short, long in _neighbours(ready)]
    return Advice(
        tuple(a for a in answers if isinstance(a, Suggestion)),
        tuple(a for a in answers if isinstance(a, Missing)),
    )


def _instances(pool: PoolSettings, seen: PoolTraffic, answers: Sequence[Answer]) -> Answer:
    """Advice on replicas, unless places are short only because a limit is low: more instances would be waste."""
    path = pool.argument("maxNumSeqs")
    for answer in answers:
        if (
            isinstance(answer, Suggestion)
            and answer.path == path
            and answer.suggested > (answer.current or 0)
        ):
            why = "maxNumSeqs holds requests back while KV is free: change that first, then look again"
            return Missing(pool.name, pool.replicas_path, why)
    return replicas(pool, seen)


def _neighbours(
    ready: Sequence[tuple[PoolSettings, PoolTraffic]],
) -> Sequence[tuple[tuple[PoolSettings, PoolTraffic], tuple[PoolSettings, PoolTraffic]]]:
    """Pools side by side in length; one without a limit of its own is the longest."""
    ordered = sorted(ready, key=lambda pair: pair[0].max_tokens or float("inf"))
    return list(pairwise(ordered))
