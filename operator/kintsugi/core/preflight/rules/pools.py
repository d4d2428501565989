"""Pools: which requests go where (A4, A15, A16)."""

from collections.abc import Iterator
from typing import Final

from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.view import PoolView, View


def _limits(view: View) -> list[tuple[PoolView, int]]:
    """Pools that people's requests go to, with their limit: the model's own context where none is written."""
    found = []
    for pool in view.pools:
        longest = pool.pool.max_tokens or (pool.model.max_context if pool.model else 0)
        if pool.written(TRANSFER) is None:
            found.append((pool, longest))
    return found


TRANSFER: Final = "--kv-transfer-config"
"""Where a person writes it, pools hand KV blocks to one another: halves of one request have no range of their own."""


def _same_range(view: View) -> Iterator[Said]:
    seen: dict[int, PoolView] = {}
    for pool, limit in _limits(view):
        if limit and limit in seen:
            yield Said(
                f"{pool.at}.context.maxTokens",
                f"is {limit}, as is that of pool {seen[limit].pool.name!r}: both take the same requests, and which one gets "
                "them is left to the router",
                "give each pool a range of its own, or make one pool of the two",
            )
        seen.setdefault(limit, pool)


def _refused(view: View) -> Iterator[Said]:
    limits = _limits(view)
    if len(limits) < 2 or not all(pool.pool.max_tokens for pool, _ in limits):
        return
    pool, longest = max(limits, key=lambda each: each[1])
    if pool.model and longest < pool.model.max_context and not view.catalog.model(view.spec.model.id) is None:
        recipe = pool.choice.recipe
        if recipe and recipe.safe_context and longest >= recipe.safe_context:
            return
        yield Said(
            f"{pool.at}.context.maxTokens",
            f"is {longest}, the most of all pools, and {pool.model.id} takes {pool.model.max_context}: longer requests are "
            "refused with 400, and nothing can spill upward from this pool",
            "raise it, or add a LongContext pool, if such requests are meant to be served",
        )


def _profile_order(view: View) -> Iterator[Said]:
    limits = _limits(view)
    for pool, limit in limits:
        for other, larger in limits:
            if (
                pool.pool.profile == "LongContext"
                and other.pool.profile == "HighThroughput"
                and limit < larger
            ):
                yield Said(
                    f"{pool.at}.profile",
                    f"is LongContext for requests up to {limit} tokens, and pool {other.pool.name!r} takes up to {larger} with "
                    "HighThroughput: the profiles are the wrong way round",
                    "swap the profiles, or the ranges",
                )


_SHORT: Final = {"name": "short", "profile": "HighThroughput", "context": {"maxTokens": 8192}}
_LONG: Final = {"name": "long", "profile": "LongContext", "context": {"maxTokens": 1_048_576}}
_NIXL: Final = {
    "extraArgs": ["--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}']
}
_HALVES: Final = [{"name": "prefill", "engine": _NIXL}, {"name": "decode", "engine": _NIXL}]

RULES: Final = (
    Rule(
        name="PoolsAlike",
        severity="Warning",
        summary="Two pools take the same range of requests.",
        why="The router sends a request to the smallest pool that holds it; with equal ranges there is no smaller one.",
        sources=("https://github.com/llm-d/llm-d-router",),
        claims=("A15", "A23"),
        check=_same_range,
        good=(example(pools=[_SHORT, _LONG]), example(pools=[_SHORT])),
        bad=(
            example(pools=[_SHORT, {**_SHORT, "name": "other"}]),
            example(pools=[{"name": "a"}, {"name": "b"}]),
        ),
    ),
    Rule(
        name="LongRequestsRefused",
        severity="Warning",
        summary="No pool takes requests as long as the model could.",
        why="A pool without a larger sibling has nowhere to spill, and longer requests are refused.",
        sources=("https://github.com/llm-d/llm-d-router",),
        claims=("A15",),
        check=_refused,
        good=(example(pools=[_SHORT, _LONG]), example(pools=[_SHORT])),
        bad=(example(pools=[_SHORT, {**_LONG, "context": {"maxTokens": 32_768}}]),),
    ),
    Rule(
        name="ProfilesSwapped",
        severity="Warning",
        summary="The profile for long texts is on the pool of short ones.",
        why="LongContext runs 16 requests with KV offload, HighThroughput 64 without: each is slow at the other's work.",
        sources=("https://github.com/vllm-project/recipes",),
        claims=("A15", "A16"),
        check=_profile_order,
        good=(example(pools=[_SHORT, _LONG]),),
        bad=(example(pools=[{**_SHORT, "profile": "LongContext"}, {**_LONG, "profile": "HighThroughput"}]),),
    ),
)
