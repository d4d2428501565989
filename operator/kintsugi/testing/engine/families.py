"""The metric families of a vLLM 0.32 `/metrics` page, in its order, and where each value comes from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kintsugi.testing.engine.counters import FINISH_REASONS, Histogram, RankCounters

Number = int | float


@dataclass(frozen=True, slots=True)
class Family:
    """One counter or gauge family of one rank: a sample for each entry of `children`, read by `values`."""

    name: str
    kind: str
    help: str
    values: Callable[[RankCounters], Sequence[Number]]
    label: str = ""
    children: tuple[str, ...] = ("",)
    per_engine: bool = True


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    """One histogram family of one rank."""

    name: str
    help: str
    histogram: Callable[[RankCounters], Histogram]


def _zero(count: int) -> Callable[[RankCounters], Sequence[Number]]:
    zeros = (0,) * count
    return lambda _: zeros


_SOURCES = ("device", "host", "p2p", "disk", "external_unspecified")

SCALARS: Final[tuple[Family, ...]] = (
    Family("vllm:estimated_flops_per_gpu_total", "counter", "Estimated operations per GPU.", _zero(1)),
    Family("vllm:estimated_read_bytes_per_gpu_total", "counter", "Estimated bytes read per GPU.", _zero(1)),
    Family(
        "vllm:estimated_write_bytes_per_gpu_total", "counter", "Estimated bytes written per GPU.", _zero(1)
    ),
    Family("vllm:num_requests_running", "gauge", "Requests in the batch.", lambda c: (c.running,)),
    Family("vllm:num_requests_waiting", "gauge", "Requests in the queue.", lambda c: (c.waiting,)),
    Family(
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        "Requests in the queue, by what they wait for.",
        lambda c: (c.waiting - c.waiting_deferred, c.waiting_deferred),
        "reason",
        ("capacity", "deferred"),
    ),
    Family(
        "vllm:engine_sleep_state",
        "gauge",
        "Sleep state of the engine.",
        lambda c: (1, 0, 0),
        "sleep_state",
        ("awake", "weights_offloaded", "discard_all"),
    ),
    Family(
        "vllm:kv_cache_usage_perc", "gauge", "Share of KV blocks in use, 0 to 1.", lambda c: (c.kv_usage,)
    ),
    Family(
        "vllm:prefix_cache_queries_total",
        "counter",
        "Prompt tokens looked up in the prefix cache.",
        lambda c: (c.prefix_queries,),
    ),
    Family(
        "vllm:prefix_cache_hits_total",
        "counter",
        "Prompt tokens found in the prefix cache.",
        lambda c: (c.prefix_hits,),
    ),
    Family(
        "vllm:external_prefix_cache_queries_total",
        "counter",
        "Prompt tokens looked up in a connected cache.",
        _zero(1),
    ),
    Family(
        "vllm:external_prefix_cache_hits_total",
        "counter",
        "Prompt tokens found in a connected cache.",
        _zero(1),
    ),
    Family("vllm:mm_cache_queries_total", "counter", "Multi-modal cache look-ups.", _zero(1)),
    Family("vllm:mm_cache_hits_total", "counter", "Multi-modal cache hits.", _zero(1)),
    Family("vllm:num_preemptions_total", "counter", "Requests preempted.", lambda c: (c.preemptions,)),
    Family("vllm:prompt_tokens_total", "counter", "Prompt tokens prefilled.", lambda c: (c.prompt_tokens,)),
    Family(
        "vllm:prompt_tokens_by_source_total",
        "counter",
        "Prompt tokens, by where they came from.",
        lambda c: (c.prompt_tokens - c.prompt_tokens_cached, c.prompt_tokens_cached, 0),
        "source",
        ("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    Family(
        "vllm:prompt_tokens_cached_total",
        "counter",
        "Prompt tokens that were cached.",
        lambda c: (c.prompt_tokens_cached,),
    ),
    Family(
        "vllm:prompt_tokens_cached_by_source_total",
        "counter",
        "Cached prompt tokens, by the tier that held them.",
        lambda c: (c.prompt_tokens_cached, 0, 0, 0, 0),
        "source",
        _SOURCES,
    ),
    Family("vllm:generation_tokens_total", "counter", "Tokens generated.", lambda c: (c.generation_tokens,)),
    Family(
        "vllm:request_success_total",
        "counter",
        "Requests ended, by reason.",
        lambda c: [c.finished[reason] for reason in FINISH_REASONS],
        "finished_reason",
        FINISH_REASONS,
    ),
    Family(
        "vllm:admission_rejections_total",
        "counter",
        "Requests refused by a queue limit.",
        lambda c: (c.rejected, 0),
        "reason",
        ("max_num_queued_reqs", "max_num_queued_tokens"),
        per_engine=False,
    ),
)

CONNECTOR: Final[tuple[Family, ...]] = (
    Family(
        "vllm:num_requests_kv_fetch_by_stage",
        "gauge",
        "Requests that fetch KV blocks from a connector, by stage.",
        _zero(3),
        "stage",
        ("waiting_to_start", "in_progress", "completed_waiting"),
    ),
)
"""Only with a KV connector, which is how the in-engine telemetry looks inside."""

HISTOGRAMS: Final[tuple[HistogramFamily, ...]] = (
    HistogramFamily(
        "vllm:request_prompt_tokens", "Prompt tokens of a request.", lambda c: c.request_prompt_tokens
    ),
    HistogramFamily(
        "vllm:request_generation_tokens",
        "Tokens generated for a request.",
        lambda c: c.request_generation_tokens,
    ),
    HistogramFamily("vllm:iteration_tokens_total", "Tokens of an engine step.", lambda c: c.iteration_tokens),
    HistogramFamily(
        "vllm:request_max_num_generation_tokens",
        "Most tokens generated for one output of a request.",
        lambda c: c.request_max_num_generation_tokens,
    ),
    HistogramFamily("vllm:request_params_n", "Parameter n of a request.", lambda c: c.request_params_n),
    HistogramFamily(
        "vllm:request_params_max_tokens",
        "Parameter max_tokens of a request.",
        lambda c: c.request_params_max_tokens,
    ),
    HistogramFamily(
        "vllm:time_to_first_token_seconds", "Seconds to the first token.", lambda c: c.time_to_first_token
    ),
    HistogramFamily(
        "vllm:inter_token_latency_seconds", "Seconds between two tokens.", lambda c: c.inter_token_latency
    ),
    HistogramFamily(
        "vllm:request_time_per_output_token_seconds",
        "Mean seconds per token after the first.",
        lambda c: c.time_per_output_token,
    ),
    HistogramFamily(
        "vllm:e2e_request_latency_seconds", "Seconds of a whole request.", lambda c: c.e2e_latency
    ),
    HistogramFamily("vllm:request_queue_time_seconds", "Seconds in the queue.", lambda c: c.queue_time),
    HistogramFamily(
        "vllm:request_inference_time_seconds", "Seconds in the batch.", lambda c: c.inference_time
    ),
    HistogramFamily("vllm:request_prefill_time_seconds", "Seconds of prefill.", lambda c: c.prefill_time),
    HistogramFamily("vllm:request_decode_time_seconds", "Seconds of decode.", lambda c: c.decode_time),
    HistogramFamily(
        "vllm:request_num_preemptions", "Preemptions of a request.", lambda c: c.request_preemptions
    ),
    HistogramFamily(
        "vllm:request_prefill_kv_computed_tokens",
        "KV tokens computed in prefill, cached ones left out.",
        lambda c: c.prefill_kv_computed,
    ),
)

KV_BLOCK_HISTOGRAMS: Final[tuple[HistogramFamily, ...]] = (
    HistogramFamily(
        "vllm:kv_block_lifetime_seconds", "Seconds a KV block lived.", lambda c: c.kv_block_lifetime
    ),
    HistogramFamily(
        "vllm:kv_block_idle_before_evict_seconds",
        "Seconds a KV block lay idle before its eviction.",
        lambda c: c.kv_block_idle,
    ),
    HistogramFamily(
        "vllm:kv_block_reuse_gap_seconds",
        "Seconds between two uses of a KV block.",
        lambda c: c.kv_block_reuse,
    ),
)
"""Only with `--kv-cache-metrics`; the simulator renders them and observes nothing."""
