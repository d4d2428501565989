"""What a simulated engine is made of: its limits and what one step of it costs."""

from dataclasses import dataclass


def _positive(owner: str, **values: float) -> None:
    for field, value in values.items():
        if not value > 0:
            raise ValueError(f"{owner}.{field} must be greater than 0, not {value}")


def _not_negative(owner: str, **values: float) -> None:
    for field, value in values.items():
        if not value >= 0:
            raise ValueError(f"{owner}.{field} must be 0 or more, not {value}")


@dataclass(frozen=True, slots=True)
class EngineShape:
    """The limits of one engine rank, named as vLLM's flags are.

    `num_gpu_blocks` counts usable blocks: vLLM's own figure holds one more, the null block.
    """

    max_num_seqs: int = 64
    max_model_len: int = 131_072
    max_num_batched_tokens: int = 8_192
    block_size: int = 256
    num_gpu_blocks: int = 4_096
    chunked_prefill: bool = True
    prefix_caching: bool = True
    max_num_queued_reqs: int | None = None
    """Refuse a request while so many wait or run."""
    gpu_memory_utilization: float = 0.9
    """Only shown on the page."""

    def __post_init__(self) -> None:
        _positive(
            "EngineShape",
            max_num_seqs=self.max_num_seqs,
            max_model_len=self.max_model_len,
            max_num_batched_tokens=self.max_num_batched_tokens,
            block_size=self.block_size,
            num_gpu_blocks=self.num_gpu_blocks,
        )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"EngineShape.max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs}): every running request decodes one token a step"
            )
        if self.max_num_queued_reqs is not None:
            _positive("EngineShape", max_num_queued_reqs=self.max_num_queued_reqs)

    @property
    def kv_tokens(self) -> int:
        """Token slots of the KV pool."""
        return self.num_gpu_blocks * self.block_size


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds that one engine step takes, by its content.

    base + per_sequence x decodes + per_prefill_token x prefill tokens + per_context_token x context of the
    decodes + per_attention_pair x (prefill tokens x their context), times lognormal noise of `noise_sigma`;
    now and then a hiccup of up to `hiccup_seconds` (`hiccups_per_hour`, of busy time) is added, as garbage
    collection or a slow collective would.

    The defaults are assumed, not measured on a GPU: they give 22 ms for one decode, 28 ms for 16 and 85 ms for
    a step that also prefills 2,000 tokens, which is the order of a large mixture-of-experts model.
    """

    base: float = 0.0218
    per_sequence: float = 0.0004
    per_prefill_token: float = 28e-6
    per_context_token: float = 4e-9
    per_attention_pair: float = 4e-10
    noise_sigma: float = 0.04
    hiccups_per_hour: float = 0.0
    hiccup_seconds: float = 1.0

    def __post_init__(self) -> None:
        _positive("StepCost", base=self.base)
        _not_negative(
            "StepCost",
            per_sequence=self.per_sequence,
            per_prefill_token=self.per_prefill_token,
            per_context_token=self.per_context_token,
            per_attention_pair=self.per_attention_pair,
            noise_sigma=self.noise_sigma,
            hiccups_per_hour=self.hiccups_per_hour,
            hiccup_seconds=self.hiccup_seconds,
        )

    def scaled(self, factor: float) -> "StepCost":
        """The same cost with every step `factor` times as long (its noise unchanged)."""
        _positive("StepCost.scaled", factor=factor)
        return StepCost(
            base=self.base * factor,
            per_sequence=self.per_sequence * factor,
            per_prefill_token=self.per_prefill_token * factor,
            per_context_token=self.per_context_token * factor,
            per_attention_pair=self.per_attention_pair * factor,
            noise_sigma=self.noise_sigma,
            hiccups_per_hour=self.hiccups_per_hour,
            hiccup_seconds=self.hiccup_seconds,
        )

    def mean(self, decodes: float, prefill_tokens: float = 0.0, context: float = 0.0) -> float:
        """Expected seconds of a step without noise and hiccups; `context` is the sum over the decodes."""
        return (
            self.base
            + self.per_sequence * decodes
            + self.per_prefill_token * prefill_tokens
            + self.per_context_token * context
        )


def cache_config(shape: EngineShape) -> tuple[tuple[str, str], ...]:
    """The labels of `vllm:cache_config_info`, as vLLM 0.32 names them, for this shape."""
    return (
        ("_block_size_resolved", "True"),
        ("block_size", str(shape.block_size)),
        ("cache_dtype", "fp8"),
        ("cache_hit_alignment_tokens", "None"),
        ("effective_attention_block_size", str(shape.block_size)),
        ("enable_mamba_shared_prefix_checkpoint", "False"),
        ("enable_prefix_caching", str(shape.prefix_caching)),
        ("gpu_memory_utilization", str(shape.gpu_memory_utilization)),
        ("hash_block_size", "None"),
        ("is_attention_free", "False"),
        ("kv_cache_dtype_skip_layers", "[]"),
        ("kv_cache_layout", "None"),
        ("kv_cache_max_concurrency", str(shape.kv_tokens / shape.max_model_len)),
        ("kv_cache_memory_bytes", "None"),
        ("kv_cache_size_tokens", str(shape.kv_tokens)),
        ("kv_offloading_backend", "native"),
        ("kv_offloading_size", "None"),
        ("kv_sharing_fast_prefill", "False"),
        ("mamba_block_size", "None"),
        ("mamba_cache_dtype", "auto"),
        ("mamba_cache_mode", "none"),
        ("mamba_page_size_padded", "None"),
        ("mamba_ssm_cache_dtype", "auto"),
        ("num_cpu_blocks", "None"),
        ("num_gpu_blocks", str(shape.num_gpu_blocks + 1)),
        ("num_gpu_blocks_override", "None"),
        ("prefix_cache_retention_interval", "0"),
        ("prefix_caching_hash_algo", "sha256"),
        ("prefix_match_unit", "None"),
        ("replayssm_buffer_len", "16"),
        ("skip_page_size_padded", "None"),
        ("sliding_window", "None"),
        ("swa_bounded_replay", "True"),
        ("use_kda_recoverssm", "False"),
        ("use_replayssm", "False"),
        ("user_specified_block_size", "True"),
    )
