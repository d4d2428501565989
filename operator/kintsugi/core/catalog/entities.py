"""The records of the catalog. Bytes are bytes, sizes of GPUs what the vendor's software reports."""

from dataclasses import dataclass
from typing import Literal

from kintsugi.core.catalog.version import EngineVersion

Draft = Literal["MTP", "DSpark"]
Confidence = Literal["measured", "assumed"]


@dataclass(frozen=True, slots=True)
class KvLayout:
    """How one model keeps its KV cache in vLLM, per engine (DP rank)."""

    block_tokens: int
    """Tokens of one block: 256 on V4."""
    block_bytes: tuple[tuple[str, int], ...]
    """Bytes of one block by the format of the indexer's cache (`fp8`, `mxfp4`), or by KV dtype for other families."""
    fixed_blocks: tuple[int, int]
    """Blocks that a decoding request holds whatever its length: least, most (22 to 26 on V4)."""
    prefill_blocks_per_8192_tokens: int
    """Blocks that one prefill chunk of 8,192 tokens takes for its time; 0 where no such spike is known."""
    replicated_over_tensor_parallel: bool
    """Whether each TP rank keeps the same KV (one KV head), so that only DP adds room."""
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class Model:
    """One checkpoint."""

    id: str
    """Its id on the hub, as written there."""
    family: str
    """`deepseek-v4`, `deepseek-v4.1`, `deepseek-v3`: what architecture, parsers and block size go by."""
    size: str
    """`Flash`, `Pro`, …: which recipes it shares."""
    parameters: float
    active_parameters: float
    """Both in billions."""
    disk_bytes: int
    loaded_bytes: int
    """All ranks together, as loaded; the disk size where nobody has measured it."""
    memory_floor_bytes: int
    """GPU memory of an instance below which it is known not to run (recipes: 960 GB for Pro); 0: nobody says."""
    max_context: int
    min_engine: EngineVersion
    draft: Draft | None
    draft_tokens: int | None
    block_sizes: tuple[int, ...]
    """Legal `--block-size`s; empty: any."""
    kv_cache_dtypes: tuple[str, ...]
    """Legal `--kv-cache-dtype`s; empty: any."""
    compute_capabilities: tuple[int, ...]
    """Majors that can run it (9: Hopper, 10: datacenter Blackwell, 12: workstation Blackwell); empty: any."""
    tensor_parallel_limit: int | None
    """Largest tensor parallel size that divides its matrices."""
    tokenizer_mode: str | None
    tool_call_parser: str | None
    reasoning_parser: str | None
    quantization: str
    """Of the weights: `fp8` (V4: MXFP4 experts, the rest FP8), `fp8-block` (all FP8, experts too), `nvfp4`, `mxfp4`,
    `bf16`."""
    start_budget_seconds: int
    """Time that a start may take from a fast volume: never less for lint, more by default where it downloads."""
    kv: KvLayout | None
    """None: the planner can't say."""
    confidence: Confidence
    """Of the sizes: whether somebody read them off the files and a running engine."""
    sources: tuple[str, ...]
    unsupported_gpus: tuple[str, ...] = ()
    """Kinds that recipes call unsupported though nothing else speaks against them (AMD has no compute capability)."""
    draft_options: tuple[tuple[str, str | bool], ...] = ()
    """What its speculative configuration says beside method and tokens."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU."""

    name: str
    """As written in `spec.hardware.gpu`: `H200`, `A100-80GB`."""
    aliases: tuple[str, ...]
    """Other spellings, such as the `nvidia.com/gpu.product` label."""
    memory_bytes: int
    compute_capability: tuple[int, int] | None
    """None on AMD."""
    generation: str
    """`Ampere`, `Hopper`, `Blackwell`, `BlackwellWorkstation`, `CDNA3`, `CDNA4`, …"""
    per_node: int
    """GPUs of the usual node."""
    verified_with: tuple[str, ...]
    """`family/size` pairs that recipes call verified on it."""
    sources: tuple[str, ...]
    vendor: Literal["NVIDIA", "AMD"] = "NVIDIA"
    confidence: Confidence = "assumed"
    """Of the memory's size: whether somebody published what the driver says."""


@dataclass(frozen=True, slots=True)
class FlagChange:
    """A flag of vLLM that came, went or was renamed."""

    flag: str
    """Canonical spelling, `--swap-space`."""
    added: EngineVersion | None
    removed: EngineVersion | None
    """First version without it."""
    replacement: str | None
    """What to write instead, in words for a person."""
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Arguments for a model on a generation of GPUs by a strategy, where nothing was said."""

    family: str
    size: str
    generations: tuple[str, ...]
    """Generations of GPUs, or names of single kinds."""
    strategy: str
    """`tep` (TP + expert parallel, the default), `dep` (DP + expert parallel), `tp`."""
    gpu: str
    """Kind used where the user names none: the first recipe with one whose kind runs the checkpoint; else empty."""
    gpus: int
    """GPUs of one instance: as asked for, else the smallest known fit on that kind of GPU."""
    args: tuple[tuple[str, str | None], ...]
    """Flags with their value; None for a switch, which may be a `--no-…`."""
    env: tuple[tuple[str, str], ...]
    min_engine: EngineVersion
    safe_context: int | None
    """Longest `--max-model-len` known to start here; None: the model's own."""
    sources: tuple[str, ...]
    draft_tokens: int | None = None
    """Tokens to draft with the checkpoint's own method on this hardware; None: it drafts nothing."""
    speculative_config: str | None = None
    """JSON for `--speculative-config` that turns the drafting on."""
    confidence: Confidence = "assumed"
    """Whether recipes call this pair of model and hardware verified."""


@dataclass(frozen=True, slots=True)
class Addition:
    """Arguments that every recipe of a kind gets: where all that is written here holds. Empty: any."""

    families: tuple[str, ...]
    sizes: tuple[str, ...]
    generations: tuple[str, ...]
    """Generations of GPUs, or names of single kinds."""
    vendors: tuple[str, ...]
    quantizations: tuple[str, ...]
    strategies: tuple[str, ...]
    since: EngineVersion | None
    until: EngineVersion | None
    """First engine version that no longer gets it."""
    args: tuple[tuple[str, str | None], ...]
    env: tuple[tuple[str, str], ...]
    draft_options: tuple[tuple[str, str | bool], ...]
    """Laid over the model's own."""
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricChange:
    """A series of the engine that was renamed or went away."""

    metric: str
    removed: EngineVersion
    """First version without it."""
    replacement: str | None
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EngineDefaults:
    """What the engine's API server takes where nothing is said, by the memory of one GPU."""

    since: EngineVersion
    memory_bytes: int
    """Least memory of a GPU of this class."""
    excluded_gpus: tuple[str, ...]
    """Kinds that are of a lower class in spite of their memory (A100: the engine looks for its name)."""
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    sources: tuple[str, ...]
