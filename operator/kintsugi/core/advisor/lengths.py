"""How long requests are: prompt and answer together, from two histograms that the engine keeps apart."""

from kintsugi.core.advisor.histogram import Bucket, Histogram
from kintsugi.core.advisor.traffic import PoolTraffic
from kintsugi.core.series import Signal


def mean_length(traffic: PoolTraffic) -> float | None:
    """Mean tokens of a finished request, prompt and answer; None where a page does not tell."""
    prompts, answers = traffic.histogram(Signal.PROMPT_LENGTHS), traffic.histogram(Signal.ANSWER_LENGTHS)
    if prompts is None or answers is None or prompts.mean is None or answers.mean is None:
        return None
    return prompts.mean + answers.mean


def lengths(traffic: PoolTraffic) -> Histogram | None:
    """The distribution of whole requests: each prompt with the mean answer behind it.

    The engine does not say which answer belongs to which prompt, so the spread of the answers is lost.
    """
    prompts, answers = traffic.histogram(Signal.PROMPT_LENGTHS), traffic.histogram(Signal.ANSWER_LENGTHS)
    if prompts is None or answers is None or answers.mean is None:
        return None
    more = answers.mean
    return Histogram(
        {(low + more, high + more): count for (low, high), count in prompts.counts.items()},
        prompts.total + more * prompts.count,
    )


def below(bucket: Bucket, limit: float) -> float:
    """The share of a bucket's observations up to `limit`, as if it were evenly filled."""
    return min(1.0, max(0.0, (limit - bucket.low) / (bucket.high - bucket.low)))
