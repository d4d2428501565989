"""`maxNumBatchedTokens`: smaller where prefills hold up running answers, larger where prompts wait for their own steps."""

from typing import Final

from kintsugi.core.advisor.advice import Answer, Missing, suggestion
from kintsugi.core.advisor.sequences import percent
from kintsugi.core.advisor.settings import PoolSettings, said_elsewhere
from kintsugi.core.advisor.traffic import PoolTraffic
from kintsugi.core.series import Signal

MIN_GAPS: Final = 1000.0
"""Gaps between tokens before their 99th percentile is spoken of."""
JERKY: Final = 5.0
"""Long gaps (99th percentile) against usual ones (median) from which on answers stutter."""
HEADROOM: Final = 2.5
"""A limit may be doubled only where gaps so many times as long would still not count as stutter: twice the prompt tokens
make a step at most twice as long, and the rest keeps one advice from bringing on the other."""
FELT_SECONDS: Final = 0.1
"""Gaps below this are no stutter to a reader, whatever their ratio: ten tokens a second."""
LONG_PROMPTS: Final = 0.05
"""Share of prompts that must be longer than half the limit: others never fill a step."""
SEVERAL_STEPS: Final = 0.25
"""Share of prompts that must be longer than the limit before a larger one helps."""
LEAST: Final = 2048
MOST: Final = 32_768
SPARE_KV: Final = 0.7
KV_COST: Final = 0.05
"""Largest share of the KV blocks that a larger limit may cost."""


def batched_tokens(settings: PoolSettings, traffic: PoolTraffic) -> Answer:
    """Advice on `maxNumBatchedTokens`."""
    path = settings.argument("maxNumBatchedTokens")
    prompts, gaps = traffic.histogram(Signal.PROMPT_LENGTHS), traffic.histogram(Signal.TOKEN_GAPS)
    if prompts is None or gaps is None:
        what = "vllm:request_prompt_tokens" if prompts is None else "vllm:inter_token_latency_seconds"
        return Missing(traffic.pool, path, f"{what} is not on the page of every instance")
    if gaps.count < MIN_GAPS:
        why = f"{gaps.count:.0f} gaps between tokens in the window, at least {MIN_GAPS:.0f} are needed"
        return Missing(traffic.pool, path, why)
    if settings.batched_tokens is None:
        why = "the limit in force is not known: say engine.args.maxNumBatchedTokens or hardware.gpu"
        return Missing(traffic.pool, path, why)
    current = settings.batched_tokens.value
    usual, long = gaps.quantile(0.5) or 0.0, gaps.quantile(0.99) or 0.0
    seen = f"Half of the gaps between tokens are up to {1000 * usual:.0f} ms, 1 in 100 is above {1000 * long:.0f} ms"
    long_prompts = prompts.share_above(current / 2) or 0.0
    if long >= max(FELT_SECONDS, JERKY * usual) and long_prompts >= LONG_PROMPTS:
        return _smaller(settings, traffic, path, current, f"{seen} ({long / usual:.1f} times)", long_prompts)
    if HEADROOM * long < max(FELT_SECONDS, JERKY * usual):
        return _larger(settings, traffic, path, current, seen, prompts.share_above(current) or 0.0)
    return None


def _smaller(
    settings: PoolSettings, traffic: PoolTraffic, path: str, current: float, seen: str, share: float
) -> Answer:
    least = max(LEAST, settings.sequences.value if settings.sequences else 0)
    halved = max(least, current / 2)
    if halved > current * 0.85:
        return None
    freed = _blocks(settings, current - halved)
    why = (
        f"{seen}, and {percent(share)} of the prompts are longer than half the limit of {current:.0f}: running answers "
        f"wait while a step computes so much of a prompt. Half the limit halves the longest steps"
        f"{_of_kv(traffic, freed, ' and gives back')}; long prompts take more steps to begin."
    )
    return suggestion(traffic, path, current, halved, why + _origin(settings, path))


def _larger(
    settings: PoolSettings, traffic: PoolTraffic, path: str, current: float, seen: str, share: float
) -> Answer:
    prefill, counted = traffic.gained_sum(Signal.PREFILL_SUM), traffic.gained_sum(Signal.PREFILL_COUNT)
    first, firsts = traffic.gained_sum(Signal.FIRST_TOKEN_SUM), traffic.gained_sum(Signal.FIRST_TOKENS)
    fullest = max((m.kv for m in traffic.moments() if m.kv is not None), default=1.0)
    doubled = min(MOST, 2 * current)
    if doubled < current * 1.15 or share < SEVERAL_STEPS or fullest >= SPARE_KV:
        return None
    if not prefill or not counted or not first or not firsts:
        return Missing(
            traffic.pool,
            path,
            "vllm:request_prefill_time_seconds or vllm:time_to_first_token_seconds is missing",
        )
    computing, waiting = prefill / counted, first / firsts
    cost, blocks = _blocks(settings, doubled - current), traffic.blocks()
    if computing < 0.5 * waiting or (cost and (blocks is None or cost > KV_COST * blocks)):
        return None
    why = (
        f"{percent(share)} of the prompts are longer than the limit of {current:.0f}, and of the {waiting:.2f} s to the "
        f"first token {computing:.2f} s are their prefill. {seen}, so running answers have room"
        f"{_of_kv(traffic, cost, '. It costs')}; KV usage was {percent(fullest)} at most."
    )
    return suggestion(traffic, path, current, doubled, why + _origin(settings, path))


def _blocks(settings: PoolSettings, tokens: float) -> float:
    """KV blocks that the engine sets aside for so many more tokens in a step: twice, since steps overlap."""
    layout = settings.model.kv if settings.model else None
    return 2 * tokens / 8192 * layout.prefill_blocks_per_8192_tokens if layout else 0.0


def _of_kv(traffic: PoolTraffic, blocks: float, verb: str) -> str:
    whole = traffic.blocks()
    if not blocks or whole is None:
        return ""
    return f"{verb} {blocks:.0f} of {whole:.0f} KV blocks ({percent(blocks / whole)})"


def _origin(settings: PoolSettings, path: str) -> str:
    return said_elsewhere(settings.batched_tokens, path) if settings.batched_tokens else ""
