"""What a simulated engine has counted: plain numbers, read by the page and by tests."""

from bisect import bisect_left
from typing import Final

ITL_EDGES: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
TTFT_EDGES: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
LATENCY_EDGES: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
ITERATION_EDGES: Final = (
    *(1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0),
)
PREEMPTION_EDGES: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
PARALLEL_EDGES: Final = (1.0, 2.0, 5.0, 10.0, 20.0)
KV_BLOCK_EDGES: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0),
)

FINISH_REASONS: Final = ("stop", "length", "abort", "error", "repetition")


def token_edges(max_model_len: int) -> tuple[float, ...]:
    """Bucket edges of the token-count histograms: 1, 2, 5, 10, 20, 50 ... up to the model's context."""
    edges: list[float] = []
    power = 1
    while power <= max_model_len:
        edges.extend(float(power * m) for m in (1, 2, 5) if power * m <= max_model_len)
        power *= 10
    return tuple(edges)


class Histogram:
    """Counts per bucket (not cumulative; the last one is above every edge), their sum and number."""

    __slots__ = ("buckets", "count", "edges", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.reset()

    def reset(self) -> None:
        self.buckets = [0] * (len(self.edges) + 1)
        self.total = 0.0
        self.count = 0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value` `times` times; a value on an edge belongs to that edge's bucket."""
        self.buckets[bisect_left(self.edges, value)] += times
        self.total += value * times
        self.count += times


class RankCounters:
    """The counters, histograms and gauges of one engine rank, as its `/metrics` page shows them.

    Gauges change at the end of a step only, as the real engine's do: what arrives while a step runs, or while
    the engine hangs, is in none of them.
    """

    def __init__(self, max_model_len: int) -> None:
        self.running = 0
        self.waiting = 0
        self.waiting_deferred = 0
        self.kv_usage = 0.0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self.generation_tokens = 0
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.rejected = 0
        self.busy_steps = 0
        tokens = token_edges(max_model_len)
        self.request_prompt_tokens = Histogram(tokens)
        self.request_generation_tokens = Histogram(tokens)
        self.iteration_tokens = Histogram(ITERATION_EDGES)
        self.request_max_num_generation_tokens = Histogram(tokens)
        self.request_params_n = Histogram(PARALLEL_EDGES)
        self.request_params_max_tokens = Histogram(tokens)
        self.time_to_first_token = Histogram(TTFT_EDGES)
        self.inter_token_latency = Histogram(ITL_EDGES)
        self.time_per_output_token = Histogram(ITL_EDGES)
        self.e2e_latency = Histogram(LATENCY_EDGES)
        self.queue_time = Histogram(LATENCY_EDGES)
        self.inference_time = Histogram(LATENCY_EDGES)
        self.prefill_time = Histogram(LATENCY_EDGES)
        self.decode_time = Histogram(LATENCY_EDGES)
        self.request_preemptions = Histogram(PREEMPTION_EDGES)
        self.prefill_kv_computed = Histogram(tokens)
        self.kv_block_lifetime = Histogram(KV_BLOCK_EDGES)
        self.kv_block_idle = Histogram(KV_BLOCK_EDGES)
        self.kv_block_reuse = Histogram(KV_BLOCK_EDGES)

    def reset(self) -> None:
        """Every counter and histogram back to zero, as after a restart; the gauges keep their values."""
        self.prefix_queries = self.prefix_hits = self.preemptions = 0
        self.prompt_tokens = self.prompt_tokens_cached = self.generation_tokens = self.busy_steps = 0
        self.rejected = 0
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        for value in vars(self).values():
            if isinstance(value, Histogram):
                value.reset()

    @property
    def steps(self) -> int:
        """Engine steps that gave at least one token: what vLLM counts as `iteration_tokens_total_count`."""
        return self.iteration_tokens.count
