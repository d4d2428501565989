"""What the engine really gets from a command: each value with the argument that says it, or the engine's default."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.entities import EngineDefaults, Gpu, Model
from kintsugi.core.catalog.load import in_force
from kintsugi.core.catalog.version import EngineVersion
from kintsugi.core.command.argument import Argument, Command
from kintsugi.core.command.choice import DATA, EXPERT, PIPELINE, TENSOR
from kintsugi.core.command.nested import object_of, source_of
from kintsugi.core.command.number import share, whole
from kintsugi.core.command.offload import GIB, SIZE, TRANSFER

DEFAULT: Final = "default"
MODEL_LENGTH: Final = (-1, 0)
"""`--max-model-len -1` (or `auto`): as long as the memory allows, at most the model's own context."""
_SEQUENCES: Final = 1024
_BATCHED: Final = 8192
_SHARE: Final = 0.92
"""Engine defaults on the class of H100 and H200, used where the GPU is not known (`vllm/engine/arg_utils.py`,
`vllm/config/cache.py`)."""


@dataclass(frozen=True, slots=True)
class Effective:
    """The settings of one engine (data parallel rank) that capacity and rules go by. Bytes are bytes."""

    max_model_len: int | None
    """Tokens; None: neither the command nor the catalog says, or the engine fits it to the memory."""
    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: bool
    nodes: int
    gpu_memory_utilization: float
    kv_cache_memory_bytes: int | None
    """Set by hand; then `gpu_memory_utilization` sizes no KV cache."""
    block_size: int | None
    """None: the engine chooses."""
    kv_cache_dtype: str
    """`auto` where nothing is said."""
    indexer_cache: str
    """`fp8` or `mxfp4`: the format of the sparse indexer's cache, where the model has one."""
    chunked_prefill: bool
    prefix_caching: bool
    enforce_eager: bool
    offload_bytes: int
    """Host memory for KV blocks, of one engine; 0: none."""
    speculative: Mapping[str, Any]
    """`--speculative-config` as an object; empty: no drafting."""
    origins: Mapping[str, str]
    """Field of this record → origin of the argument that says it. A field that is not here is the engine's default."""

    def origin(self, field: str) -> str:
        """JSON path (or `recipe`, `profile`, `model`) of what sets a field; `default` where nothing does."""
        return self.origins.get(field, DEFAULT)

    @property
    def gpus(self) -> int:
        """GPUs that the engine's processes take, over all nodes."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel


def effective(
    command: Command,
    model: Model | None = None,
    gpu: Gpu | None = None,
    version: EngineVersion | None = None,
    catalog: Catalog | None = None,
) -> Effective:
    """What the engine gets. A value that the engine would refuse counts as not said."""
    reader = _Reader(command)
    defaults = (catalog or in_force()).engine_defaults(gpu, version)
    seqs, batched, portion = _defaults(defaults)
    attention = object_of(command.arguments, "--attention-config")
    return Effective(
        max_model_len=_length(reader, model),
        max_num_seqs=reader.count("max_num_seqs", "--max-num-seqs", seqs),
        max_num_batched_tokens=reader.count("max_num_batched_tokens", "--max-num-batched-tokens", batched),
        tensor_parallel=reader.count("tensor_parallel", TENSOR, 1),
        pipeline_parallel=reader.count("pipeline_parallel", PIPELINE, 1),
        data_parallel=reader.count("data_parallel", DATA, 1),
        expert_parallel=reader.switch("expert_parallel", EXPERT, False),
        nodes=reader.count("nodes", "--nnodes", 1),
        gpu_memory_utilization=reader.portion("gpu_memory_utilization", "--gpu-memory-utilization", portion),
        kv_cache_memory_bytes=reader.count("kv_cache_memory_bytes", "--kv-cache-memory-bytes", 0) or None,
        block_size=reader.count("block_size", "--block-size", 0) or None,
        kv_cache_dtype=reader.text("kv_cache_dtype", "--kv-cache-dtype", "auto"),
        indexer_cache=_indexer(reader, attention),
        chunked_prefill=reader.switch("chunked_prefill", "--enable-chunked-prefill", True),
        prefix_caching=reader.switch("prefix_caching", "--enable-prefix-caching", True),
        enforce_eager=reader.switch("enforce_eager", "--enforce-eager", False),
        offload_bytes=_offload(reader),
        speculative=_speculative(reader),
        origins=reader.origins,
    )


class _Reader:
    """Takes values out of a command and keeps where they came from."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.origins: dict[str, str] = {}

    def last(self, field: str, flag: str) -> Argument | None:
        found = self.command.get(flag)
        if found:
            self.origins[field] = found.origin
        return found

    def count(self, field: str, flag: str, default: int) -> int:
        found = self.command.get(flag)
        number = whole(found.value) if found else None
        if found is None or number is None or number < 1:
            return default
        self.origins[field] = found.origin
        return number

    def portion(self, field: str, flag: str, default: float) -> float:
        found = self.command.get(flag)
        value = share(found.value) if found else None
        if found is None or value is None:
            return default
        self.origins[field] = found.origin
        return value

    def text(self, field: str, flag: str, default: str) -> str:
        found = self.last(field, flag)
        return (found.value if found else None) or default

    def switch(self, field: str, flag: str, default: bool) -> bool:
        self.last(field, flag)
        return self.command.on(flag, default)

    def nested(self, field: str, flag: str, *keys: str) -> None:
        if found := source_of(self.command.arguments, flag, *keys):
            self.origins[field] = found.origin


def _defaults(known: EngineDefaults | None) -> tuple[int, int, float]:
    if known is None:
        return _SEQUENCES, _BATCHED, _SHARE
    return known.max_num_seqs, known.max_num_batched_tokens, known.gpu_memory_utilization


def _length(reader: _Reader, model: Model | None) -> int | None:
    found = reader.last("max_model_len", "--max-model-len")
    number = whole(found.value) if found else None
    if number is not None and number > 0:
        return number
    automatic = found is not None and found.value is not None and found.value.lower() in ("-1", "auto")
    if automatic or model is None:
        return None
    reader.origins.pop("max_model_len", None)
    return model.max_context


def _indexer(reader: _Reader, attention: Mapping[str, Any]) -> str:
    flag = "--attention-config"
    written = attention.get("indexer_kv_dtype")
    if isinstance(written, str):
        reader.nested("indexer_cache", flag, "indexer_kv_dtype")
        return written
    if _true(attention.get("use_fp4_indexer_cache")):
        reader.nested("indexer_cache", flag, "use_fp4_indexer_cache")
        return "mxfp4"
    return "fp8"


def _true(value: object) -> bool:
    """vLLM's configuration takes `True` and `"true"` alike."""
    return value is True or (isinstance(value, str) and value.lower() == "true") or value == 1


def _offload(reader: _Reader) -> int:
    found = reader.command.get(SIZE)
    size = share(found.value) if found else None
    if found and size and size > 0:
        reader.origins["offload_bytes"] = found.origin
        return round(size * GIB)
    total, seen = 0, reader.command.arguments
    for connector in _connectors(object_of(seen, TRANSFER)):
        extra = connector.get("kv_connector_extra_config")
        given = extra.get("cpu_bytes_to_use") if isinstance(extra, dict) else None
        if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < float("inf"):
            total += int(given)
    if total:
        reader.nested("offload_bytes", TRANSFER, "kv_connector_extra_config")
    return total


def _connectors(config: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The connector itself and, for a MultiConnector, those inside."""
    yield config
    extra = config.get("kv_connector_extra_config")
    inner = extra.get("connectors") if isinstance(extra, dict) else None
    yield from (each for each in inner if isinstance(each, dict)) if isinstance(inner, list) else ()


def _speculative(reader: _Reader) -> Mapping[str, Any]:
    config = object_of(reader.command.arguments, "--speculative-config")
    if config:
        reader.nested("speculative", "--speculative-config", next(iter(config)))
    return config
