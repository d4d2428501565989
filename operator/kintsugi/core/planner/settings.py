"""The engine's settings that decide about memory, read from the rendered command as the engine will read it.

A value that can't be read is left out here: preflight reports it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kintsugi.core.catalog.amount import bytes_of
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.entities import Gpu, Model
from kintsugi.core.catalog.version import EngineVersion
from kintsugi.core.command.argument import Argument, Command
from kintsugi.core.command.effective import Effective, effective
from kintsugi.core.command.nested import object_of
from kintsugi.core.command.number import whole
from kintsugi.core.command.offload import TRANSFER

LARGEST: Final = 10**12
"""Sizes above this are slips, and would only overflow; bytes may be 1,000 times as many."""
SEQUENCES: Final = "max_num_seqs"
UTILIZATION: Final = 0.92
"""vLLM's own share of GPU memory (`vllm/config/cache.py`)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the engine gets."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    max_model_len: int | None = None
    """None: the engine takes the longest context that its memory holds (`--max-model-len auto`)."""
    max_num_seqs: int = 1024
    """Requests that one engine runs at a time."""
    batched_tokens: int = 8192
    """Tokens of one step."""
    utilization: float = UTILIZATION
    """Share of a GPU's memory that the engine takes."""
    kv_cache_memory_bytes: int | None = None
    """Set: the KV cache has this size per GPU, whatever the share of memory says."""
    num_gpu_blocks_override: int | None = None
    """Set: an engine has this many blocks, whatever its memory holds."""
    kv_cache_dtype: str = "auto"
    fp4_indexer: bool = False
    block_size: int | None = None
    """None: the engine's own choice."""
    enforce_eager: bool = False
    mega_moe: bool = False
    """DeepGEMM's fused expert kernels, which keep large buffers."""
    async_scheduling: bool = True
    offload_bytes: int = 0
    """Host memory of one engine for KV blocks."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """By flag, and `max_num_seqs`: the JSON path of the field that says it, or `recipe`, `profile`, `default` …"""

    @property
    def gpus(self) -> int:
        """GPUs that the engines of one instance take."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def layout(self) -> str:
        """`TP8`, `TP8 x DP2`, `DP8 + EP`."""
        sizes = (("TP", self.tensor_parallel), ("PP", self.pipeline_parallel), ("DP", self.data_parallel))
        parts = [f"{name}{size}" for name, size in sizes if size > 1]
        return " x ".join(parts or ["TP1"]) + (" + EP" if self.expert_parallel else "")

    @property
    def chosen_sequences(self) -> bool:
        """Whether the user set `maxNumSeqs`, rather than a recipe, a profile or the engine."""
        return self.origins.get(SEQUENCES, "").startswith("spec.")

    def origin(self, flag: str, fallback: str) -> str:
        """The JSON path that says `flag`; `fallback` where the user did not."""
        said = self.origins.get(flag, "")
        return said if said.startswith("spec.") else fallback


def read_settings(
    command: Command,
    model: Model | None = None,
    gpu: Gpu | None = None,
    version: EngineVersion | None = None,
    catalog: Catalog | None = None,
) -> Settings:
    """What `command` sets, and the engine's defaults on that GPU. A value that the engine refuses counts as not said."""
    told = effective(command, model, gpu, version, catalog)
    share = told.gpu_memory_utilization
    return Settings(
        tensor_parallel=_size(told.tensor_parallel),
        pipeline_parallel=_size(told.pipeline_parallel),
        data_parallel=_size(told.data_parallel),
        expert_parallel=told.expert_parallel,
        max_model_len=_at_most(told.max_model_len, LARGEST),
        max_num_seqs=_size(told.max_num_seqs),
        batched_tokens=_size(told.max_num_batched_tokens),
        utilization=share if 0 < share <= 1 else UTILIZATION,
        kv_cache_memory_bytes=_at_most(told.kv_cache_memory_bytes, LARGEST * 1000),
        num_gpu_blocks_override=_number(command.get("--num-gpu-blocks-override")),
        kv_cache_dtype=told.kv_cache_dtype.strip().lower(),
        fp4_indexer="fp4" in told.indexer_cache.lower(),
        block_size=_at_most(told.block_size, LARGEST),
        enforce_eager=told.enforce_eager,
        mega_moe="mega_moe" in (getattr(command.get("--moe-backend"), "value", None) or ""),
        async_scheduling=command.on("--async-scheduling", True),
        offload_bytes=_offload(command, told),
        origins={argument.flag: argument.origin for argument in command.arguments}
        | {SEQUENCES: told.origin("max_num_seqs")},
    )


def _size(number: int) -> int:
    return number if 1 <= number <= LARGEST else 1


def _at_most(number: int | None, most: int) -> int | None:
    return number if number is not None and 0 < number <= most else None


def _number(argument: Argument | None) -> int | None:
    return _at_most(whole(argument.value), LARGEST) if argument else None


def _offload(command: Command, told: Effective) -> int:
    """Bytes of host memory per engine; one connector is told the bytes of each tensor parallel rank instead."""
    if told.offload_bytes:
        return min(told.offload_bytes, LARGEST * 1000)
    extra = object_of(command.arguments, TRANSFER).get("kv_connector_extra_config")
    each = bytes_of(extra.get("cpu_bytes_to_use_per_rank")) if isinstance(extra, dict) else None
    return min(each * _size(told.tensor_parallel), LARGEST * 1000) if each else 0
