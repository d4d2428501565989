"""From the entries of a catalog file to its records."""

from typing import Final, get_args

from kintsugi.core.catalog.entities import (
    Addition,
    Confidence,
    Draft,
    EngineDefaults,
    FlagChange,
    Gpu,
    KvLayout,
    MetricChange,
    Model,
    Recipe,
)
from kintsugi.core.catalog.entry import Entry

_CONFIDENCE: Final = get_args(Confidence)
_VENDORS: Final = ("NVIDIA", "AMD")
USERS: Final = ("given by the user's catalog file",)
"""Source of an entry that names none."""


def model_of(entry: Entry, base: Model | None) -> Model:
    """A checkpoint; `base` is the one that the entry changes or is like."""
    disk = entry.amount("diskBytes")
    grown = entry.says("diskBytes") and not entry.says("loadedBytes")
    loaded = entry.amount("loadedBytes", disk)
    model = Model(
        id=entry.text("id"),
        family=entry.text("family"),
        size=entry.text("size"),
        parameters=entry.number("parameters"),
        active_parameters=entry.number("activeParameters"),
        disk_bytes=disk,
        loaded_bytes=disk if grown else loaded,
        memory_floor_bytes=entry.amount("memoryFloorBytes", 0),
        max_context=entry.integer("maxContext"),
        min_engine=entry.version("minEngine"),
        draft=entry.choice("draft", get_args(Draft), None),
        draft_tokens=entry.integer("draftTokens", None),
        block_sizes=entry.integers("blockSizes", ()),
        kv_cache_dtypes=entry.texts("kvCacheDtypes", ()),
        compute_capabilities=entry.integers("computeCapabilities", ()),
        tensor_parallel_limit=entry.integer("tensorParallelLimit", None),
        tokenizer_mode=entry.text("tokenizerMode", None),
        tool_call_parser=entry.text("toolCallParser", None),
        reasoning_parser=entry.text("reasoningParser", None),
        quantization=entry.text("quantization"),
        start_budget_seconds=entry.integer("startBudgetSeconds", 3600),
        kv=_layout(entry, base.kv if base else None),
        confidence=entry.choice("confidence", _CONFIDENCE, "assumed"),
        sources=entry.texts("sources", USERS),
        unsupported_gpus=entry.texts("unsupportedGpus", ()),
        draft_options=entry.options("draftOptions", ()),
    )
    entry.finish()
    return model


def _layout(outer: Entry, base: KvLayout | None) -> KvLayout | None:
    entry = outer.entry("kv", base)
    if entry is None:
        return None if outer.says("kv") else base
    layout = KvLayout(
        block_tokens=entry.integer("blockTokens"),
        block_bytes=entry.amounts("blockBytes"),
        fixed_blocks=entry.pair("fixedBlocks", (0, 0)),
        prefill_blocks_per_8192_tokens=entry.integer("prefillBlocksPer8192Tokens", 0, least=0),
        replicated_over_tensor_parallel=entry.flag("replicatedOverTensorParallel", True),
        confidence=entry.choice("confidence", _CONFIDENCE, "assumed"),
    )
    entry.finish()
    return layout


def gpu_of(entry: Entry) -> Gpu:
    """A kind of GPU."""
    gpu = Gpu(
        name=entry.text("name"),
        aliases=entry.texts("aliases", ()),
        memory_bytes=entry.amount("memoryBytes"),
        compute_capability=entry.capability("computeCapability", None),
        generation=entry.text("generation"),
        per_node=entry.integer("perNode", 8),
        verified_with=entry.texts("verifiedWith", ()),
        sources=entry.texts("sources", USERS),
        vendor=entry.choice("vendor", _VENDORS, "NVIDIA"),
        confidence=entry.choice("confidence", _CONFIDENCE, "assumed"),
    )
    entry.finish()
    return gpu


def recipe_of(entry: Entry) -> Recipe:
    """The fit of a size on generations of GPUs by one strategy."""
    recipe = Recipe(
        family=entry.text("family"),
        size=entry.text("size"),
        generations=entry.texts("generations"),
        strategy=entry.choice("strategy", ("tep", "dep", "tp")),
        gpu=entry.text("gpu", ""),
        gpus=entry.integer("gpus"),
        args=entry.arguments("args", ()),
        env=entry.variables("env", ()),
        min_engine=entry.version("minEngine"),
        safe_context=entry.integer("safeContext", None),
        sources=entry.texts("sources", USERS),
        draft_tokens=entry.integer("draftTokens", None),
        confidence=entry.choice("confidence", _CONFIDENCE, "assumed"),
    )
    entry.finish()
    return recipe


def addition_of(entry: Entry) -> Addition:
    """Arguments for every recipe of a kind."""
    addition = Addition(
        families=entry.texts("families", ()),
        sizes=entry.texts("sizes", ()),
        generations=entry.texts("generations", ()),
        vendors=entry.texts("vendors", ()),
        quantizations=entry.texts("quantizations", ()),
        strategies=entry.texts("strategies", ()),
        since=entry.version("since", None),
        until=entry.version("until", None),
        args=entry.arguments("args", ()),
        env=entry.variables("env", ()),
        draft_options=entry.options("draftOptions", ()),
        sources=entry.texts("sources", USERS),
    )
    entry.finish()
    return addition


def flag_change_of(entry: Entry) -> FlagChange:
    """A flag that came, went or was renamed."""
    change = FlagChange(
        flag=entry.text("flag"),
        added=entry.version("added", None),
        removed=entry.version("removed", None),
        replacement=entry.text("replacement", None),
        sources=entry.texts("sources", USERS),
    )
    entry.finish()
    return change


def metric_change_of(entry: Entry) -> MetricChange:
    """A series that was renamed or went away."""
    change = MetricChange(
        metric=entry.text("metric"),
        removed=entry.version("removed"),
        replacement=entry.text("replacement", None),
        sources=entry.texts("sources", USERS),
    )
    entry.finish()
    return change


def defaults_of(entry: Entry) -> EngineDefaults:
    """What the engine takes where nothing is said."""
    defaults = EngineDefaults(
        since=entry.version("since"),
        memory_bytes=entry.amount("memoryBytes", 0),
        excluded_gpus=entry.texts("excludedGpus", ()),
        max_num_seqs=entry.integer("maxNumSeqs"),
        max_num_batched_tokens=entry.integer("maxNumBatchedTokens"),
        gpu_memory_utilization=entry.number("gpuMemoryUtilization"),
        sources=entry.texts("sources", USERS),
    )
    entry.finish()
    return defaults
