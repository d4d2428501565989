"""One request inside the simulated engine, and its entry into the books when it ends."""

from enum import Enum

from kintsugi.testing.engine.counters import RankCounters


class Phase(Enum):
    """Where a request stands."""

    ARRIVING = "Arriving"
    WAITING = "Waiting"
    PREFILL = "Prefill"
    DECODE = "Decode"
    FINISHED = "Finished"
    ABORTED = "Aborted"


class Sequence:
    """One request inside the engine. Read-only for callers; `EngineModel.produced` says how far it is."""

    __slots__ = (
        *(
            "aborted",
            "admitted_at",
            "arrived_at",
            "base_round",
            "blocks",
            "cached_tokens",
            "context",
            "fails",
        ),
        *("finish_reason", "finished_at", "first_token_at", "given", "key", "last_token_at", "max_tokens"),
        *("output_tokens", "phase", "preemptions", "prefill_left", "promised", "prompt_tokens", "resumed"),
        "stamp",
    )

    def __init__(self, key: int, prompt: int, output: int, max_tokens: int, cached: int, now: float) -> None:
        self.key = key
        self.prompt_tokens = prompt
        self.output_tokens = output
        self.max_tokens = max_tokens
        self.cached_tokens = cached
        self.arrived_at = now
        self.phase = Phase.ARRIVING
        self.aborted = False
        self.fails = False
        self.admitted_at: float | None = None
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None
        self.finished_at: float | None = None
        self.finish_reason: str | None = None
        self.context = 0  # tokens in the KV cache, while not decoding
        self.given = 0  # tokens given so far, while not decoding
        self.base_round = 0  # while decoding: context and given stand for this round
        self.blocks = 0
        self.promised = 0  # blocks that its prefill will still take
        self.prefill_left = 0
        self.preemptions = 0
        self.resumed = False
        self.stamp = 0  # changes when planned events of this sequence become void


def count_finished(counters: RankCounters, sequence: Sequence, reason: str, now: float) -> None:
    """Enter a sequence that ended for `reason` into the per-request histograms."""
    counters.finished[reason] += 1
    first = now if sequence.first_token_at is None else sequence.first_token_at
    admitted = first if sequence.admitted_at is None else sequence.admitted_at
    decode = now - first
    counters.request_prompt_tokens.observe(sequence.prompt_tokens)
    counters.request_generation_tokens.observe(sequence.given)
    counters.request_max_num_generation_tokens.observe(sequence.given)
    counters.request_params_n.observe(1)
    counters.request_params_max_tokens.observe(sequence.max_tokens)
    counters.e2e_latency.observe(now - sequence.arrived_at)
    counters.queue_time.observe(admitted - sequence.arrived_at)
    counters.prefill_time.observe(first - admitted)
    counters.decode_time.observe(decode)
    counters.inference_time.observe(now - admitted)
    counters.time_per_output_token.observe(decode / (sequence.given - 1) if sequence.given > 1 else 0.0)
    counters.request_preemptions.observe(sequence.preemptions)
    counters.prefill_kv_computed.observe(sequence.prompt_tokens - sequence.cached_tokens)
