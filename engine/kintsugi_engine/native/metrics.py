"""The `/metrics` page: vLLM's names for what is the same here, `kintsugi_` names for what only slots have.

What the native runtime doesn't do has no series (prefix cache, speculation, offloading), except where vLLM's zero is
true here: nothing is ever preempted. Names, labels and buckets are those of a vLLM 0.32 page.
"""

import functools
import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from kintsugi_engine import contract
from kintsugi_engine.native.client import Request, Watcher
from kintsugi_engine.native.messages import Facts, Gauges, Piece, Step
from kintsugi_engine.telemetry.cgroup import container_memory

STEP_BUCKETS: Final = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
FIRST_TOKEN_BUCKETS: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
GAP_BUCKETS: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
SPAN_BUCKETS: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
REASONS: Final = ("stop", "length", "abort", "error")
_MEMORY: Final = {
    contract.CONTAINER_MEMORY_ANONYMOUS: "anonymous",
    contract.CONTAINER_MEMORY_SHARED: "shared",
    contract.CONTAINER_MEMORY_LIMIT: "limit",
}
_LABELS: Final = ("model_name", "engine")


def _length_buckets(limit: int) -> list[int]:
    """1, 2, 5, 10, … up to the longest request, as vLLM makes them."""
    found, scale = [], 1
    while scale <= limit:
        found += [scale * each for each in (1, 2, 5) if scale * each <= limit]
        scale *= 10
    return found or [1]


def _memory(part: str) -> float:
    """Bytes; NaN, which readers take for absent, where the container's files no longer say."""
    found = getattr(container_memory(), part)
    return float("nan") if found is None else float(found)


class Metrics(Watcher):
    """Everything on the page. One server, one engine, `engine="0"`."""

    def __init__(self, model_name: str, facts: Facts) -> None:
        self._registry = CollectorRegistry()
        self._labels = {"model_name": model_name, "engine": "0"}
        self._facts = facts
        self._gauges = Gauges()
        self._seen = time.monotonic()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        lengths = _length_buckets(facts.max_tokens)
        self._running = self._gauge("vllm:num_requests_running", "Requests that hold a slot.")
        self._waiting = self._gauge("vllm:num_requests_waiting", "Requests that wait for a slot.")
        reasons = self._gauge("vllm:num_requests_waiting_by_reason", "The same, by reason.", "reason")
        self._capacity = reasons.labels(**self._labels, reason="capacity")
        reasons.labels(**self._labels, reason="deferred")
        self._usage = self._gauge("vllm:kv_cache_usage_perc", "Slots that are held, of all, 0 to 1.")
        awake = self._gauge("vllm:engine_sleep_state", "The native runtime never sleeps.", "sleep_state")
        for state in ("awake", "weights_offloaded", "discard_all"):
            awake.labels(**self._labels, sleep_state=state).set(state == "awake")
        self._counter("vllm:num_preemptions", "Nothing is ever preempted.").labels(**self._labels)
        self._prompt = self._counter("vllm:prompt_tokens", "Prompt tokens computed.").labels(**self._labels)
        prefill = self._gauge(
            contract.PREFILL_TOKENS,
            "Prompt tokens computed so far, in steps that also decoded (mixed) and in others (alone).",
            "step",
        )
        self._mixed, self._alone = (prefill.labels(**self._labels, step=name) for name in ("mixed", "alone"))
        self._made = self._counter("vllm:generation_tokens", "Tokens made.").labels(**self._labels)
        finished = self._counter("vllm:request_success", "Requests ended, by reason.", "finished_reason")
        self._finished = {
            reason: finished.labels(**self._labels, finished_reason=reason) for reason in REASONS
        }
        self._corrupted = self._counter(
            "vllm:corrupted_requests", "Requests whose logits were no numbers."
        ).labels(**self._labels)
        rejections = Counter(
            "vllm:admission_rejections",
            "Requests refused.",
            ("model_name", "reason"),
            registry=self._registry,
        )
        self._rejections = rejections.labels(model_name=model_name, reason="max_num_queued_reqs")
        self._steps = self._histogram("vllm:iteration_tokens_total", "Tokens of each step.", STEP_BUCKETS)
        self._first = self._histogram(
            "vllm:time_to_first_token_seconds", "Arrival to the first token.", FIRST_TOKEN_BUCKETS
        )
        self._gap = self._histogram("vllm:inter_token_latency_seconds", "Between tokens.", GAP_BUCKETS)
        self._mean_gap = self._histogram(
            "vllm:request_time_per_output_token_seconds", "Mean of a request's gaps.", GAP_BUCKETS
        )
        self._e2e = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to the end.", SPAN_BUCKETS)
        self._queue = self._histogram("vllm:request_queue_time_seconds", "Waiting for a slot.", SPAN_BUCKETS)
        self._prefill = self._histogram(
            "vllm:request_prefill_time_seconds", "Slot to first token.", SPAN_BUCKETS
        )
        self._decode = self._histogram(
            "vllm:request_decode_time_seconds", "First token to the end.", SPAN_BUCKETS
        )
        self._inference = self._histogram(
            "vllm:request_inference_time_seconds", "Slot to the end.", SPAN_BUCKETS
        )
        self._prompts = self._histogram("vllm:request_prompt_tokens", "Prompt lengths.", lengths)
        self._answers = self._histogram("vllm:request_generation_tokens", "Answer lengths.", lengths)
        self._asked = self._histogram("vllm:request_params_max_tokens", "Tokens asked for.", lengths)
        http = ("handler", "method", "status")
        self._http = Counter("http_requests", "Requests, by status.", http, registry=self._registry)
        self._config(facts)
        self._own(facts)

    def stepped(self, step: Step) -> None:
        """Take a step's figures in."""
        self._seen = time.monotonic()
        self._gauges = gauges = step.gauges
        self._running.labels(**self._labels).set(gauges.running)
        self._waiting.labels(**self._labels).set(gauges.waiting)
        self._capacity.set(gauges.waiting)
        self._usage.labels(**self._labels).set(gauges.held_slots / self._facts.slots)
        self._orphans.set(gauges.held_slots - gauges.running)
        self._orphans_ratio.set((gauges.held_slots - gauges.running) / self._facts.slots)
        self._prompt.inc(step.prompt_tokens)
        (self._mixed if step.decoded else self._alone).inc(step.prompt_tokens)
        self._made.inc(step.new_tokens)
        if step.prompt_tokens or step.new_tokens:
            self._steps.observe(step.prompt_tokens + step.new_tokens)

    def progressed(self, request: Request, piece: Piece, moment: float) -> None:
        """Take a request's progress in."""
        if request.made == 0:
            request.first = moment
            self._first.observe(moment - request.arrived)
        else:
            self._gap.observe(moment - request.last)
        request.last, request.made = moment, request.made + len(piece.chosen)
        if piece.corrupted:
            self._corrupted.inc()
        if piece.finish:
            self._ended(request, piece.finish)

    def stopped(self, request: Request) -> None:
        """An answer that ended with a stop text."""
        self._ended(request, "stop")

    def rejected(self) -> None:
        """The queue was full."""
        self._rejections.inc()

    def answered(self, handler: str, method: str, status: int) -> None:
        """Count one HTTP answer."""
        self._http.labels(handler=handler, method=method, status=f"{status // 100}xx").inc()

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)

    def _ended(self, request: Request, finish: str) -> None:
        self._finished[finish].inc()
        self._e2e.observe(request.last - request.arrived)
        self._queue.observe(request.admitted - request.arrived)
        self._prefill.observe(request.first - request.admitted)
        self._decode.observe(request.last - request.first)
        self._inference.observe(request.last - request.admitted)
        self._prompts.observe(len(request.tokens))
        self._answers.observe(request.made)
        self._asked.observe(request.sampling.max_tokens)
        if request.made > 1:
            self._mean_gap.observe((request.last - request.first) / (request.made - 1))

    def _config(self, facts: Facts) -> None:
        """A slot is one block of as many tokens as it holds."""
        labels = {
            "engine": "0", "block_size": str(facts.max_tokens), "num_gpu_blocks": str(facts.slots),
            "kv_cache_size_tokens": str(facts.slots * facts.max_tokens),
            "kv_cache_memory_bytes": str(facts.slots * facts.slot_bytes), "cache_dtype": facts.dtype,
            "kv_cache_max_concurrency": f"{facts.slots:.1f}",
            "enable_prefix_caching": "False",
        }  # fmt: skip
        Gauge("vllm:cache_config_info", "The slots.", list(labels), registry=self._registry).labels(
            **labels
        ).set(1)

    def _own(self, facts: Facts) -> None:
        def gauge(name: str, text: str, rank: str = contract.POOL_RANK) -> Gauge:
            made = own.get(name) or Gauge(name, text, ("engine", "rank"), registry=self._registry)
            own[name] = made
            return made.labels(engine="0", rank=rank)

        own: dict[str, Gauge] = {}
        gauge(contract.NATIVE_SLOTS, "Slots.").set(facts.slots)
        gauge(contract.NATIVE_SLOT_BYTES, "Bytes of one slot.").set(facts.slot_bytes)
        gauge(contract.NATIVE_MODEL_BYTES, "Bytes of the weights.").set(facts.model_bytes)
        self._orphans = gauge(contract.KV_ORPHANED_BLOCKS, "Slots held that no live request explains.")
        self._orphans_ratio = gauge(contract.KV_ORPHANED_BLOCKS_RATIO, "The same, of all slots.")
        gauge(
            contract.KV_BLOCK_WASTE, "Tokens that held slots could hold and don't, of all they could."
        ).set_function(self._waste)
        for name, part in _MEMORY.items():
            if getattr(container_memory(), part) is not None:
                memory = Gauge(
                    name, f"Memory of this container, {part}.", ("source",), registry=self._registry
                )
                memory.labels(source="cgroup").set_function(functools.partial(_memory, part))
        ranks = [contract.POOL_RANK, contract.STEPS_RANK]
        if facts.device.startswith("cuda"):
            ranks.append("0")
            gauge(
                contract.GPU_FRAGMENTATION, "Share of the allocator's reusable memory that is split.", "0"
            ).set_function(self._split)
        for rank in ranks:
            gauge(contract.SAMPLE_AGE, "Seconds since the engine's last word.", rank).set_function(
                lambda: time.monotonic() - self._seen
            )

    def _waste(self) -> float:
        gauges = self._gauges
        return 1 - gauges.written_tokens / gauges.held_tokens if gauges.held_tokens else 0.0

    def _split(self) -> float:
        """NaN, which readers take for absent, where there is too little memory to speak of."""
        found = self._gauges.fragmentation
        return float("nan") if found is None else found

    def _gauge(self, name: str, text: str, *more: str) -> Gauge:
        made = Gauge(name, text, (*_LABELS, *more), registry=self._registry)
        if not more:
            made.labels(**self._labels)
        return made

    def _counter(self, name: str, text: str, *more: str) -> Counter:
        return Counter(name, text, (*_LABELS, *more), registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: "tuple[float, ...] | list[int]") -> Histogram:
        made = Histogram(name, text, _LABELS, registry=self._registry, buckets=buckets)
        return made.labels(**self._labels)
