"""One page as the advisor reads it: the judge's sample of it, and the histograms beside."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kintsugi.core.advisor.histogram import Histogram, histogram
from kintsugi.core.page import PageReader, Target
from kintsugi.core.reading import Unreadable
from kintsugi.core.sample import MAX_RANKS, Sample, sample_of
from kintsugi.core.series import TRAFFIC_TABLE, Signal
from kintsugi.core.snapshot import Page

_HISTOGRAMS: Final = {
    Signal.PROMPT_LENGTHS: Signal.PROMPT_LENGTHS_SUM,
    Signal.ANSWER_LENGTHS: Signal.ANSWER_LENGTHS_SUM,
    Signal.STEP_SIZES: Signal.STEP_SIZES_SUM,
    Signal.TOKEN_GAPS: Signal.ITL_SUM,
}
"""Buckets, and the sum that goes with them."""
_SUMS: Final = frozenset(
    {
        *_HISTOGRAMS.values(),
        Signal.FIRST_TOKEN_SUM,
        Signal.FIRST_TOKENS,
        Signal.QUEUE_SUM,
        Signal.QUEUE_COUNT,
        Signal.PREFILL_SUM,
        Signal.PREFILL_COUNT,
    }
)
UNRECOGNISED: Final = (
    "no vLLM series on its page (an engine with --disable-log-stats shows none: take the flag out)"
)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What `vllm:cache_config_info` says of the settings in force. None: not on the page."""

    blocks: float | None = None
    """KV blocks of one engine (one data-parallel rank)."""
    memory_utilization: float | None = None
    block_tokens: int | None = None
    """`block_size`; the smallest of all KV groups on V4, so only good for families with one group."""


@dataclass(frozen=True, slots=True)
class Look:
    """One instance at one moment. `sample.mono` is the time in seconds, on whichever clock the pages were stamped."""

    sample: Sample
    histograms: Mapping[Signal, Histogram]
    """Of all ranks together; a histogram that the page lacks is missing here."""
    sums: Mapping[Signal, float]
    facts: EngineFacts


def traffic_reader() -> PageReader:
    """A reader that knows the histograms as well."""
    return PageReader(table=TRAFFIC_TABLE)


def read_look(reader: PageReader, page: Page) -> Look | Unreadable:
    """What `page` says. Never raises, whatever the text."""
    values = reader.read(page.text)
    if not values.recognised:
        return Unreadable(UNRECOGNISED)
    sample = sample_of(values.numbers, page.mono)
    if len(sample.ranks) > MAX_RANKS:
        return Unreadable(f"{len(sample.ranks)} engine ranks on one page")
    sums: dict[Signal, float] = {}
    edges: dict[Signal, dict[float, float]] = {}
    facts = EngineFacts()
    for target, number in values.numbers.items():
        if not math.isfinite(number):
            continue
        if target.signal in _SUMS:
            sums[target.signal] = sums.get(target.signal, 0.0) + number
        elif target.signal in _HISTOGRAMS:
            edge = _number(target.part)
            if edge is not None:
                by_edge = edges.setdefault(target.signal, {})
                by_edge[edge] = by_edge.get(edge, 0.0) + number
        elif target.signal is Signal.CACHE_CONFIG:
            facts = _facts(target, len(sample.ranks))
    found = {
        signal: histogram(by_edge, sums.get(_HISTOGRAMS[signal], 0.0)) for signal, by_edge in edges.items()
    }
    return Look(sample, found, sums, facts)


def _facts(target: Target, ranks: int) -> EngineFacts:
    """`num_gpu_blocks` is the sum over the ranks, repeated on each (vllm/v1/engine/core_client.py:751-755)."""
    blocks, tokens = (_positive(target.labels.get(name)) for name in ("num_gpu_blocks", "block_size"))
    return EngineFacts(
        blocks=None if blocks is None else blocks / ranks,
        memory_utilization=_positive(target.labels.get("gpu_memory_utilization")),
        block_tokens=None if tokens is None else int(tokens),
    )


def _positive(text: str | None) -> float | None:
    number = _number(text or "")
    return number if number is not None and math.isfinite(number) and number > 0 else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number
