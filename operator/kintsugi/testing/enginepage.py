"""A `/metrics` page of the size of a postcard: the series of a vLLM 0.32 engine that the operator reads, no others."""

from dataclasses import dataclass

from kintsugi_engine import contract

_LABELS = 'engine="0",model_name="deepseek-v4"'
CONFIG = 'vllm:cache_config_info{block_size="32",engine="0",kv_cache_max_concurrency="64.0",num_gpu_blocks="4096"} 1.0'
_EDGES = ("2.5", "5.0", "+Inf")
"""The bucket edges around the longest step: no token here waits as long as that."""
GIB = 2.0**30
MEMORY_LIMIT = 64.0
"""GiB."""
TOKENS_PER_ANSWER = 60.0
TOKENS_PER_PROMPT = 400.0


@dataclass(slots=True)
class Counters:
    """What only ever rises within one process; whole numbers are shown."""

    steps: float = 0.0
    generation_tokens: float = 0.0
    prompt_tokens: float = 0.0
    first_tokens: float = 0.0
    finished: float = 0.0
    itl_sum: float = 0.0
    itl_count: float = 0.0
    http_good: float = 0.0
    failed: float = 0.0
    http_failed: float = 0.0
    process_cpu: float = 10.0
    corrupted: float | None = None
    """None: the engine was not told to count them."""

    def run(self, steps: float, running: float, seconds: float, admits: bool, errors: float = 0.0) -> None:
        """`steps` engine steps of a batch of `running` within `seconds`; requests end and, if it admits, begin.

        A share `errors` (0 to 1) of those that end, ends in an error.
        """
        tokens = steps * running
        ended = tokens / TOKENS_PER_ANSWER
        self.steps += steps
        self.generation_tokens += tokens
        self.itl_count += tokens
        self.itl_sum += running * seconds
        if admits:
            self.finished += ended * (1.0 - errors)
            self.http_good += ended * (1.0 - errors)
            self.failed += ended * errors
            self.http_failed += ended * errors
            self.first_tokens += ended
            self.prompt_tokens += ended * TOKENS_PER_PROMPT

    def canary(self, prompt_tokens: int) -> None:
        """One canary answered: what a real engine counted for it (hang paper §1.1)."""
        self.steps += 1
        self.generation_tokens += 1
        self.prompt_tokens += prompt_tokens
        self.first_tokens += 1
        self.finished += 1
        self.http_good += 1


def page(
    counters: Counters,
    started_at: float,
    fragmentation: float | None,
    orphaned: float | None,
    *,
    running: float,
    waiting: float,
    kv_usage: float,
    memory: float | None = 20.0,
) -> str:
    """The page as text. `started_at` in epoch seconds; ratios from 0 to 1, None where the plugin is missing; `memory` in
    GiB of 64."""
    c = counters
    lines = [
        f"process_start_time_seconds {started_at}",
        f"process_cpu_seconds_total {c.process_cpu:.2f}",
        f"vllm:num_requests_running{{{_LABELS}}} {running}",
        f"vllm:num_requests_waiting{{{_LABELS}}} {waiting}",
        f'vllm:num_requests_waiting_by_reason{{{_LABELS},reason="capacity"}} {waiting}',
        f'vllm:num_requests_waiting_by_reason{{{_LABELS},reason="deferred"}} 0.0',
        f'vllm:engine_sleep_state{{{_LABELS},sleep_state="awake"}} 1.0',
        f"vllm:kv_cache_usage_perc{{{_LABELS}}} {kv_usage}",
        f"vllm:prefix_cache_queries_total{{{_LABELS}}} {int(c.prompt_tokens)}",
        f"vllm:prefix_cache_hits_total{{{_LABELS}}} {int(c.prompt_tokens * 0.5)}",
        f"vllm:num_preemptions_total{{{_LABELS}}} 0.0",
        f"vllm:prompt_tokens_total{{{_LABELS}}} {int(c.prompt_tokens)}",
        f"vllm:generation_tokens_total{{{_LABELS}}} {int(c.generation_tokens)}",
        f'vllm:request_success_total{{{_LABELS},finished_reason="length"}} {int(c.finished)}',
        f'vllm:request_success_total{{{_LABELS},finished_reason="error"}} {int(c.failed)}',
        f"vllm:iteration_tokens_total_count{{{_LABELS}}} {int(c.steps)}",
        f"vllm:time_to_first_token_seconds_count{{{_LABELS}}} {int(c.first_tokens)}",
        f"vllm:inter_token_latency_seconds_count{{{_LABELS}}} {int(c.itl_count)}",
        f"vllm:inter_token_latency_seconds_sum{{{_LABELS}}} {c.itl_sum}",
        *([] if c.corrupted is None else [f"vllm:corrupted_requests_total{{{_LABELS}}} {int(c.corrupted)}"]),
        *(
            f'vllm:inter_token_latency_seconds_bucket{{{_LABELS},le="{le}"}} {int(c.itl_count)}'
            for le in _EDGES
        ),
        CONFIG,
        f'http_requests_total{{handler="/v1/completions",method="POST",status="2xx"}} {int(c.http_good)}',
        f'http_requests_total{{handler="/v1/completions",method="POST",status="5xx"}} {int(c.http_failed)}',
    ]
    if fragmentation is not None:
        lines.append(f'{contract.GPU_FRAGMENTATION}{{rank="0"}} {fragmentation}')
        lines.append(f'{contract.SAMPLE_AGE}{{rank="0"}} 0.5')
    if orphaned is not None:
        lines.append(f'{contract.KV_ORPHANED_BLOCKS_RATIO}{{rank="0"}} {orphaned}')
        lines.append(f'{contract.KV_ORPHANED_BLOCKS}{{rank="0"}} {int(orphaned * 4096)}')
    if memory is not None:
        lines.append(f"{contract.CONTAINER_MEMORY_ANONYMOUS} {memory * GIB:.0f}")
        lines.append(f"{contract.CONTAINER_MEMORY_SHARED} {0.5 * GIB:.0f}")
        lines.append(f"{contract.CONTAINER_MEMORY_LIMIT} {MEMORY_LIMIT * GIB:.0f}")
    return "\n".join(lines) + "\n"
