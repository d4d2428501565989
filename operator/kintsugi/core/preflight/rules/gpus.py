"""Hardware: whether those GPUs can run that model, and hold it (S02, S45)."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from kintsugi.core.catalog.entities import Gpu, Model
from kintsugi.core.command.number import share
from kintsugi.core.planner.subject import nominal_gigabytes
from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.view import PoolView, View

_PRO: Final = "deepseek-ai/DeepSeek-V4-Pro"
_FLASH: Final = "deepseek-ai/DeepSeek-V4-Flash"
_GB: Final = 1_000_000_000
PARTIAL: Final = (
    "--data-parallel-rank",
    "--data-parallel-external-lb",
    "--data-parallel-size-local",
    "--data-parallel-start-rank",
    "--data-parallel-multi-port-external-lb",
)
"""Flags with which one instance holds only some of the ranks that its data parallel size counts."""


def hardware(gpu: str, count: int) -> dict[str, object]:
    """An instance of so many GPUs of that kind."""
    return {"gpu": gpu, "gpusPerInstance": count}


def _unknown_gpu(view: View) -> Iterator[Said]:
    known = sorted(gpu.name for gpu in view.catalog.gpus)
    for pool in view.pools:
        if pool.gpu_name is not None and pool.gpu is None:
            close = get_close_matches(pool.gpu_name.upper(), known, n=2, cutoff=0.5)
            yield Said(
                pool.path("hardware.gpu"),
                f"is {pool.gpu_name!r}, which is not in the catalog: whether it can run and hold the model is not checked",
                f"write {' or '.join(close)}, or describe it in a catalog file"
                if close
                else "use a known name, or describe it in a catalog file",
            )


def _unsupported(view: View) -> Iterator[Said]:
    for pool in view.pools:
        if pool.model and pool.gpu and pool.gpu_name and pool.vllm and not runs_on(pool.model, pool.gpu):
            yield Said(
                pool.path("hardware.gpu"),
                f"is {pool.gpu_name}, {_why_not(pool.model, pool.gpu)}",
                f"use {_alternatives(view, pool.model)}; where a fork can do it, set spec.validation.allow: "
                "[UnsupportedGpu]",
            )


def runs_on(model: Model, gpu: Gpu) -> bool:
    """Whether anybody's released kernels run the model on that GPU."""
    if gpu.compute_capability is None:
        return not model.compute_capabilities or f"{model.family}/{model.size}" in gpu.verified_with
    return not model.compute_capabilities or gpu.compute_capability[0] in model.compute_capabilities


def _why_not(model: Model, gpu: Gpu) -> str:
    if gpu.compute_capability is None:
        return f"on which no recipe runs {model.id}"
    least = min(model.compute_capabilities)
    own = f"sm_{gpu.compute_capability[0]}{gpu.compute_capability[1]}"
    if gpu.compute_capability[0] < least:
        return f"which is {own}: {model.id} needs at least sm_{least}0, its FP8 and sparse attention kernels have no older path"
    names = ", ".join(f"sm_{major}x" for major in model.compute_capabilities)
    return f"which is {own}: kernels for {model.id} exist for {names} only"


def _alternatives(view: View, model: Model) -> str:
    fits = [
        g.name
        for g in view.catalog.gpus
        if f"{model.family}/{model.size}" in g.verified_with and runs_on(model, g)
    ]
    return " or ".join(fits[:3]) if fits else "a kind that its recipe names"


def _too_small(view: View) -> Iterator[Said]:
    for pool in view.pools:
        model = pool.model
        gpu = pool.gpu if pool.gpu_name else _largest(view, model)
        if not gpu or not model or not pool.gpus or not pool.vllm or holds_a_part(pool):
            continue
        each = nominal_gigabytes(gpu)
        total = pool.gpus * each * _GB
        if total < model.memory_floor_bytes:
            least = -(-model.memory_floor_bytes // (each * _GB))
            yield Said(
                count_path(pool),
                f"gives {pool.gpus} x {gpu.name} = {total // _GB} GB of GPU memory"
                + ("" if pool.gpu_name else " at most")
                + f", and {model.id} needs at least {model.memory_floor_bytes / _GB:.0f} GB",
                f"use at least {least} x {gpu.name}, or GPUs with more memory",
                None if pool.gpu_name else "Warning",
            )


def holds_a_part(pool: PoolView) -> bool:
    """Whether other instances hold the rest of the model's experts."""
    return any(pool.command.get(flag) for flag in PARTIAL)


def _largest(view: View, model: Model | None) -> Gpu | None:
    """The GPU with most memory that could run the model: what may be meant where no kind is named."""
    fits = [gpu for gpu in view.catalog.gpus if model and runs_on(model, gpu)]
    return max(fits, key=lambda gpu: gpu.memory_bytes, default=None)


def _share_too_small(view: View) -> Iterator[Said]:
    for pool in view.pools:
        part = utilization(pool)
        found = pool.written("--gpu-memory-utilization")
        if not (pool.gpu and pool.gpu_name and pool.model and pool.gpus and found and part):
            continue
        room = pool.gpus * pool.gpu.memory_bytes
        if room >= pool.model.memory_floor_bytes and room * part < pool.model.loaded_bytes:
            least = pool.model.loaded_bytes / room
            yield Said(
                found.origin,
                f"is {part:g}: the weights of {pool.model.id} take {pool.model.loaded_bytes / _GB:.0f} GB, and that "
                f"share of {pool.gpus} x {pool.gpu.name} is {room * part / _GB:.0f} GB",
                f"use more than {least + 0.005:.2f}; recipes use 0.9 to 0.95",
            )


def utilization(pool: PoolView) -> float | None:
    """The share of GPU memory that the engine is given; None where its default counts, or it is no number."""
    found = pool.command.get("--gpu-memory-utilization")
    return share(found.value) if found else None


def count_path(pool: PoolView) -> str:
    """Path of the number of GPUs, or of their kind where only that is said."""
    if not pool.says("hardware.gpusPerInstance") and pool.says("hardware.gpu"):
        return pool.path("hardware.gpu")
    return pool.path("hardware.gpusPerInstance")


def _beyond_a_node(view: View) -> Iterator[Said]:
    for pool in view.pools:
        count = pool.pool.hardware.gpus_per_instance
        if pool.gpu_name and pool.gpu and count and count > pool.gpu.per_node:
            yield Said(
                pool.path("hardware.gpusPerInstance"),
                f"is {count}, and the usual node has {pool.gpu.per_node} x {pool.gpu.name}: without larger nodes the "
                "pod stays Pending for ever",
                "use nodesPerInstance for an instance that spans nodes",
            )


def _count_missing(view: View) -> Iterator[Said]:
    for pool in view.pools:
        if pool.gpus is None:
            yield Said(
                pool.path("hardware.gpusPerInstance"),
                f"must be set: no recipe is known for model {view.spec.model.id!r}"
                + (f" on {pool.gpu_name}" if pool.gpu_name else ""),
                "set it, 0 for a trial on the CPU",
            )


def _image_missing(view: View) -> Iterator[Said]:
    for pool in view.pools:
        if not pool.vllm and pool.pool.engine.image is None:
            yield Said(
                f"{pool.at}.engine.image" if pool.spec.pools else "spec.engine.image",
                "must be set with runtime Native: there is no default image",
                "set it to an image with the native runtime",
            )


RULES: Final = (
    Rule(
        name="UnknownGpu",
        severity="Warning",
        summary="The kind of GPU is not in the catalog, so that nothing is known of what fits on it.",
        why="Memory and compute capability decide whether a model runs; a guess would be worse than silence.",
        sources=("https://github.com/vllm-project/vllm/issues/40955",),
        check=_unknown_gpu,
        good=(example(hardware=hardware("H200", 4)), example(hardware=hardware("NVIDIA-H200", 4))),
        bad=(example(hardware=hardware("H900", 4)),),
    ),
    Rule(
        name="UnsupportedGpu",
        severity="Error",
        summary="The model has no kernels for that generation of GPUs.",
        why="V4's FP8 cache and sparse attention kernels exist for sm_90 and sm_100 (Flash for sm_120 too); elsewhere "
        "the engine ends with an assertion after the weights are loaded. Community forks exist, so it can be allowed.",
        sources=(
            "https://github.com/vllm-project/vllm/issues/40851",
            "https://github.com/vllm-project/vllm/issues/50576",
            "https://github.com/vllm-project/vllm/issues/57144",
        ),
        claims=("A1", "A4"),
        check=_unsupported,
        good=(
            example(_FLASH, hardware=hardware("H200", 8)),
            example("deepseek-ai/DeepSeek-V4-Flash", hardware=hardware("RTX PRO 6000", 8)),
            example("deepseek-ai/DeepSeek-R1", hardware=hardware("A100-80GB", 8)),
        ),
        bad=(
            example(_FLASH, hardware=hardware("A100-80GB", 8)),
            example(_PRO, hardware=hardware("RTX PRO 6000", 16)),
            example("nvidia/DeepSeek-V4-Flash-NVFP4", hardware=hardware("H200", 8)),
            example(_FLASH, pools=[{"name": "a"}, {"name": "b", "hardware": hardware("A100-80GB", 8)}]),
        ),
    ),
    Rule(
        name="NotEnoughGpuMemory",
        severity="Error",
        summary="The GPUs of an instance together are smaller than the model needs.",
        why="The weights and the engine's own buffers must fit before the first token; else the engine ends in an "
        "out-of-memory error after minutes of loading.",
        sources=(
            "https://github.com/vllm-project/vllm/issues/40955",
            "https://github.com/vllm-project/recipes",
        ),
        claims=("A21",),
        check=_too_small,
        good=(example(_PRO, hardware=hardware("H200", 8)), example(hardware={"gpusPerInstance": 1})),
        bad=(
            example(_PRO, hardware=hardware("H100", 8)),
            example(_FLASH, hardware=hardware("H100", 1)),
            example(_PRO, hardware=hardware("GB200", 4)),
            example(_PRO, hardware={"gpusPerInstance": 1}),
        ),
    ),
    Rule(
        name="WeightsBeyondShare",
        severity="Error",
        summary="The share of GPU memory that the engine may take is smaller than the weights.",
        why="vLLM takes weights, activations and KV cache out of gpuMemoryUtilization; what does not fit ends the start.",
        sources=("https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",),
        claims=("A5",),
        check=_share_too_small,
        good=(example(_PRO, hardware=hardware("H200", 8), engine={"args": {"gpuMemoryUtilization": 0.95}}),),
        bad=(example(_PRO, hardware=hardware("H200", 8), engine={"args": {"gpuMemoryUtilization": 0.5}}),),
    ),
    Rule(
        name="MoreGpusThanANode",
        severity="Warning",
        summary="One pod asks for more GPUs than the usual node has.",
        why="A pod can't span nodes: it would stay Pending without an error.",
        sources=("https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",),
        check=_beyond_a_node,
        good=(example(hardware=hardware("H200", 8)), example(hardware=hardware("GB200", 4))),
        bad=(example(hardware=hardware("H200", 16)),),
    ),
    Rule(
        name="GpusMissing",
        severity="Error",
        summary="No recipe says how many GPUs an instance needs, and neither does the object.",
        why="A pod without GPUs would start and fail.",
        sources=("https://github.com/vllm-project/recipes",),
        check=_count_missing,
        good=(example("someone/else", hardware={"gpusPerInstance": 0}), example()),
        bad=(example("someone/else"),),
        fixed=True,
    ),
    Rule(
        name="ImageMissing",
        severity="Error",
        summary="The native runtime has no default image.",
        why="Nobody publishes one: the operator would make a pod of vLLM's image that can't serve.",
        sources=("https://kubernetes.io/docs/concepts/containers/images/",),
        claims=("A2",),
        check=_image_missing,
        good=(example(engine={"runtime": "Native", "image": "registry.corp/native:1"}),),
        bad=(example(engine={"runtime": "Native"}),),
        fixed=True,
    ),
)
