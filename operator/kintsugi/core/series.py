"""The one table of metric names: what each signal is called, by which engine versions, and how ranks add up.

Sources: `vllm/v1/metrics/loggers.py` of vLLM 0.32 (Python front end), pages of a real 0.32 engine, and the engine's own
change history: `gpu_` names renamed in pull request 18354 and removed in 29330; `time_per_output_token_seconds`
deprecated in 0.11 and removed in 0.13 (32661); `num_requests_swapped` deprecated in 0.8 (14136).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from kintsugi_engine import contract


@unique
class Signal(Enum):
    """What is read from a page, by its meaning."""

    __hash__ = object.__hash__
    """There is one of each. `Enum`'s own is written in Python, and a pass looks up a hundred for each instance."""
    RUNNING = "running"
    WAITING = "waiting"
    WAITING_BY_REASON = "waiting_by_reason"
    SWAPPED = "swapped"
    KV_USAGE = "kv_usage"
    SLEEP_STATE = "sleep_state"
    STEPS = "steps"
    GENERATION_TOKENS = "generation_tokens"
    PROMPT_TOKENS = "prompt_tokens"
    PREFILL_TOKENS = "prefill_tokens"
    PREFIX_QUERIES = "prefix_queries"
    PREFIX_HITS = "prefix_hits"
    PREEMPTIONS = "preemptions"
    ITL_SUM = "itl_sum"
    ITL_COUNT = "itl_count"
    ITL_BUCKET = "itl_bucket"
    FIRST_TOKENS = "first_tokens"
    FINISHED = "finished"
    CORRUPTED = "corrupted"
    REJECTIONS = "rejections"
    HTTP_REQUESTS = "http_requests"
    CACHE_CONFIG = "cache_config"
    PROCESS_START = "process_start"
    PROCESS_CPU = "process_cpu"
    GPU_FRAGMENTATION = "gpu_fragmentation"
    ORPHANED_RATIO = "orphaned_ratio"
    ORPHANED_BLOCKS = "orphaned_blocks"
    BLOCK_WASTE = "block_waste"
    SAMPLE_AGE = "sample_age"
    MEMORY_ANONYMOUS = "memory_anonymous"
    MEMORY_SHARED = "memory_shared"
    MEMORY_LIMIT = "memory_limit"
    PROMPT_LENGTHS = "prompt_lengths"
    PROMPT_LENGTHS_SUM = "prompt_lengths_sum"
    ANSWER_LENGTHS = "answer_lengths"
    ANSWER_LENGTHS_SUM = "answer_lengths_sum"
    STEP_SIZES = "step_sizes"
    STEP_SIZES_SUM = "step_sizes_sum"
    TOKEN_GAPS = "token_gaps"
    FIRST_TOKEN_SUM = "first_token_sum"
    QUEUE_SUM = "queue_sum"
    QUEUE_COUNT = "queue_count"
    PREFILL_SUM = "prefill_sum"
    PREFILL_COUNT = "prefill_count"


@unique
class Kind(Enum):
    """How the values of several ranks make one value of the instance."""

    LOAD = "load"
    """A gauge of amounts: summed."""
    RATIO = "ratio"
    """A gauge from 0 to 1: never summed; maximum and mean are kept."""
    COUNTER = "counter"
    """Only ever rises within one process: summed; a fall is a restart."""
    PAGE = "page"
    """One value for the whole page, or labels only."""


@dataclass(frozen=True, slots=True)
class Name:
    """One metric name. `removed_in` is the first engine version without it, '' where it is current."""

    metric: str
    removed_in: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One signal: its kind, its names with the newest first, and the label whose value tells its parts apart."""

    kind: Kind
    names: tuple[Name, ...]
    part: str = ""


def _row(kind: Kind, *names: str | Name, part: str = "") -> Row:
    return Row(kind, tuple(n if isinstance(n, Name) else Name(n) for n in names), part)


TABLE: Final[Mapping[Signal, Row]] = {
    Signal.RUNNING: _row(Kind.LOAD, "vllm:num_requests_running"),
    Signal.WAITING: _row(Kind.LOAD, "vllm:num_requests_waiting"),
    Signal.WAITING_BY_REASON: _row(Kind.LOAD, "vllm:num_requests_waiting_by_reason", part="reason"),
    Signal.SWAPPED: _row(Kind.LOAD, Name("vllm:num_requests_swapped", "0.10")),
    Signal.KV_USAGE: _row(Kind.RATIO, "vllm:kv_cache_usage_perc", Name("vllm:gpu_cache_usage_perc", "0.13")),
    Signal.SLEEP_STATE: _row(Kind.LOAD, "vllm:engine_sleep_state", part="sleep_state"),
    Signal.STEPS: _row(Kind.COUNTER, "vllm:iteration_tokens_total_count"),
    Signal.GENERATION_TOKENS: _row(Kind.COUNTER, "vllm:generation_tokens_total"),
    Signal.PROMPT_TOKENS: _row(Kind.COUNTER, "vllm:prompt_tokens_total"),
    Signal.PREFILL_TOKENS: _row(Kind.COUNTER, contract.PREFILL_TOKENS, part="step"),
    Signal.PREFIX_QUERIES: _row(
        Kind.COUNTER, "vllm:prefix_cache_queries_total", Name("vllm:gpu_prefix_cache_queries_total", "0.13")
    ),
    Signal.PREFIX_HITS: _row(
        Kind.COUNTER, "vllm:prefix_cache_hits_total", Name("vllm:gpu_prefix_cache_hits_total", "0.13")
    ),
    Signal.PREEMPTIONS: _row(Kind.COUNTER, "vllm:num_preemptions_total"),
    Signal.ITL_SUM: _row(
        Kind.COUNTER,
        "vllm:inter_token_latency_seconds_sum",
        Name("vllm:time_per_output_token_seconds_sum", "0.13"),
    ),
    Signal.ITL_COUNT: _row(
        Kind.COUNTER,
        "vllm:inter_token_latency_seconds_count",
        Name("vllm:time_per_output_token_seconds_count", "0.13"),
    ),
    Signal.ITL_BUCKET: _row(
        Kind.COUNTER,
        "vllm:inter_token_latency_seconds_bucket",
        Name("vllm:time_per_output_token_seconds_bucket", "0.13"),
        part="le",
    ),
    Signal.FIRST_TOKENS: _row(Kind.COUNTER, "vllm:time_to_first_token_seconds_count"),
    Signal.FINISHED: _row(Kind.COUNTER, "vllm:request_success_total", part="finished_reason"),
    Signal.CORRUPTED: _row(Kind.COUNTER, "vllm:corrupted_requests_total"),
    Signal.REJECTIONS: _row(Kind.COUNTER, "vllm:admission_rejections_total", part="reason"),
    Signal.HTTP_REQUESTS: _row(Kind.COUNTER, "http_requests_total", part="status"),
    Signal.CACHE_CONFIG: _row(Kind.PAGE, "vllm:cache_config_info"),
    Signal.PROCESS_START: _row(Kind.PAGE, "process_start_time_seconds"),
    Signal.PROCESS_CPU: _row(Kind.PAGE, "process_cpu_seconds_total"),
    Signal.GPU_FRAGMENTATION: _row(Kind.RATIO, contract.GPU_FRAGMENTATION, part="rank"),
    Signal.ORPHANED_RATIO: _row(Kind.RATIO, contract.KV_ORPHANED_BLOCKS_RATIO, part="rank"),
    Signal.ORPHANED_BLOCKS: _row(Kind.LOAD, contract.KV_ORPHANED_BLOCKS, part="rank"),
    Signal.BLOCK_WASTE: _row(Kind.RATIO, contract.KV_BLOCK_WASTE, part="rank"),
    Signal.SAMPLE_AGE: _row(Kind.RATIO, contract.SAMPLE_AGE, part="rank"),
    Signal.MEMORY_ANONYMOUS: _row(Kind.PAGE, contract.CONTAINER_MEMORY_ANONYMOUS),
    Signal.MEMORY_SHARED: _row(Kind.PAGE, contract.CONTAINER_MEMORY_SHARED),
    Signal.MEMORY_LIMIT: _row(Kind.PAGE, contract.CONTAINER_MEMORY_LIMIT),
}
"""Every signal that the judge reads. A name that is not in here is not read."""

TRAFFIC_TABLE: Final[Mapping[Signal, Row]] = {
    **{signal: row for signal, row in TABLE.items() if signal is not Signal.ITL_BUCKET},
    Signal.PROMPT_LENGTHS: _row(Kind.COUNTER, "vllm:request_prompt_tokens_bucket", part="le"),
    Signal.PROMPT_LENGTHS_SUM: _row(Kind.COUNTER, "vllm:request_prompt_tokens_sum"),
    Signal.ANSWER_LENGTHS: _row(Kind.COUNTER, "vllm:request_generation_tokens_bucket", part="le"),
    Signal.ANSWER_LENGTHS_SUM: _row(Kind.COUNTER, "vllm:request_generation_tokens_sum"),
    Signal.STEP_SIZES: _row(Kind.COUNTER, "vllm:iteration_tokens_total_bucket", part="le"),
    Signal.STEP_SIZES_SUM: _row(Kind.COUNTER, "vllm:iteration_tokens_total_sum"),
    Signal.TOKEN_GAPS: _row(
        Kind.COUNTER,
        "vllm:inter_token_latency_seconds_bucket",
        Name("vllm:time_per_output_token_seconds_bucket", "0.13"),
        part="le",
    ),
    Signal.FIRST_TOKEN_SUM: _row(Kind.COUNTER, "vllm:time_to_first_token_seconds_sum"),
    Signal.QUEUE_SUM: _row(Kind.COUNTER, "vllm:request_queue_time_seconds_sum"),
    Signal.QUEUE_COUNT: _row(Kind.COUNTER, "vllm:request_queue_time_seconds_count"),
    Signal.PREFILL_SUM: _row(Kind.COUNTER, "vllm:request_prefill_time_seconds_sum"),
    Signal.PREFILL_COUNT: _row(Kind.COUNTER, "vllm:request_prefill_time_seconds_count"),
}
"""The same with the histograms of lengths, steps and waits, which only the advisor reads: the operator's own passes
do not pay for them."""

EXPECTED: Final[frozenset[Signal]] = frozenset(
    {
        Signal.RUNNING,
        Signal.WAITING,
        Signal.KV_USAGE,
        Signal.STEPS,
        Signal.GENERATION_TOKENS,
        Signal.PROMPT_TOKENS,
        Signal.ITL_COUNT,
        Signal.FIRST_TOKENS,
    }
)
"""A page on which none of these occurs is not an idle engine's page: it is unreadable (`Unrecognised`)."""

NOT_APPLICABLE: Final[Mapping[Signal, str]] = {
    Signal.SWAPPED: "not applicable: engines from 0.10 on recompute and never swap",
}
"""Why a signal may rightly be missing from a page."""

LONG_GAP_SECONDS: Final = 2.5
"""Inter-token gaps in buckets from this edge on are waits, not steps (slow paper §2)."""
