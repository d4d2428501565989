"""The engine's settings that decide about memory, read from the rendered command as the engine will read it.

A value that can't be read is left out here: preflight reports it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kintsugi.core.catalog.amount import bytes_of
from kintsugi.core.command.argument import Argument, Command
from kintsugi.core.command.number import share, whole

LARGEST: Final = 10**15
"""Numbers above this are slips, and would only overflow."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command says. None: the engine's own default."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    max_model_len: int | None = None
    fits_context: bool = False
    """`--max-model-len auto`: the engine takes the longest context that its memory holds."""
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    """Set: the KV cache has this size per GPU, whatever the share of memory says."""
    num_gpu_blocks_override: int | None = None
    """Set: an engine has this many blocks, whatever its memory holds."""
    kv_cache_dtype: str | None = None
    fp4_indexer: bool = False
    block_size: int | None = None
    enforce_eager: bool = False
    mega_moe: bool = False
    """DeepGEMM's fused expert kernels, which keep large buffers."""
    async_scheduling: bool = True
    offload_bytes: int | None = None
    """Host memory of one engine for KV blocks."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """By flag: the JSON path of the field that says it, or `recipe`, `profile`, `default` …"""

    @property
    def gpus(self) -> int:
        """GPUs that the engines of one instance take."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def layout(self) -> str:
        """`TP8`, `TP8 x DP2`, `DP8 + EP`."""
        parts = [
            f"{name}{size}"
            for name, size in (
                ("TP", self.tensor_parallel),
                ("PP", self.pipeline_parallel),
                ("DP", self.data_parallel),
            )
            if size > 1
        ]
        return " x ".join(parts or ["TP1"]) + (" + EP" if self.expert_parallel else "")

    def origin(self, flag: str, fallback: str) -> str:
        """The JSON path that says `flag`; `fallback` where the user did not."""
        said = self.origins.get(flag, "")
        return said if said.startswith(("spec.", "--")) else fallback


def read_settings(command: Command) -> Settings:
    """What `command` sets; where a flag comes twice, the last one counts."""
    length = command.get("--max-model-len")
    said = (length.value or "").strip().lower() if length else ""
    return Settings(
        tensor_parallel=_size(command, "--tensor-parallel-size"),
        pipeline_parallel=_size(command, "--pipeline-parallel-size"),
        data_parallel=_size(command, "--data-parallel-size"),
        expert_parallel=_switch(command, "--enable-expert-parallel", False),
        max_model_len=_positive(length),
        fits_context=said in ("auto", "-1"),
        max_num_seqs=_positive(command.get("--max-num-seqs")),
        max_num_batched_tokens=_positive(command.get("--max-num-batched-tokens")),
        gpu_memory_utilization=_share(command.get("--gpu-memory-utilization")),
        kv_cache_memory_bytes=_positive(command.get("--kv-cache-memory-bytes")),
        num_gpu_blocks_override=_positive(command.get("--num-gpu-blocks-override")),
        kv_cache_dtype=_word(command.get("--kv-cache-dtype")),
        fp4_indexer=_fp4_indexer(command),
        block_size=_positive(command.get("--block-size")),
        enforce_eager=_switch(command, "--enforce-eager", False),
        mega_moe="mega_moe" in (_word(command.get("--moe-backend")) or ""),
        async_scheduling=_switch(command, "--async-scheduling", True),
        offload_bytes=_offload(command),
        origins={argument.flag: argument.origin for argument in command.arguments},
    )


def _positive(argument: Argument | None) -> int | None:
    number = whole(argument.value) if argument else None
    return number if number is not None and 0 < number <= LARGEST else None


def _size(command: Command, flag: str) -> int:
    return _positive(command.get(flag)) or 1


def _word(argument: Argument | None) -> str | None:
    return (argument.value or "").strip().lower() or None if argument else None


def _share(argument: Argument | None) -> float | None:
    number = share(argument.value) if argument else None
    return number if number is not None and 0 < number <= 1 else None


def _switch(command: Command, flag: str, default: bool) -> bool:
    argument = command.get(flag)
    if argument is None:
        return default
    return (argument.value or "true").strip().lower() != "false"


def _fp4_indexer(command: Command) -> bool:
    """Whether the indexer's cache is mxfp4: `use_fp4_indexer_cache` is the old name of `indexer_kv_dtype: mxfp4`."""
    found = False
    for argument in command.arguments:
        root, _, key = argument.flag.partition(".")
        if root != "--attention-config":
            continue
        told = {key: argument.value} if key else _json(argument.value)
        if "use_fp4_indexer_cache" in told:
            found = str(told["use_fp4_indexer_cache"]).strip().lower() in ("true", "1", "none")
        if "indexer_kv_dtype" in told:
            found = "fp4" in str(told["indexer_kv_dtype"]).lower()
    return found


def _offload(command: Command) -> int | None:
    """Bytes of host memory per engine, from `--kv-offloading-size` (GiB) or an offloading connector's own key."""
    size = command.get("--kv-offloading-size")
    if size is not None:
        gib = share(size.value)
        return int(gib * 2**30) if gib is not None and 0 < gib < 2**20 else None
    connector = command.get("--kv-transfer-config")
    extra = _json(connector.value if connector else None).get("kv_connector_extra_config")
    told = extra if isinstance(extra, dict) else {}
    whole = bytes_of(told.get("cpu_bytes_to_use"))
    if whole:
        return whole
    per_rank = bytes_of(told.get("cpu_bytes_to_use_per_rank"))
    return per_rank * _size(command, "--tensor-parallel-size") if per_rank else None


def _json(text: str | None) -> dict[str, Any]:
    try:
        told = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
