"""Whether a pool fits at all, before any block is counted: known hardware, legal parallelism, enough memory."""

from typing import Final

from kintsugi.core.catalog.entities import Gpu, Model
from kintsugi.core.planner.finding import PlanFinding, Severity, gigabytes, grouped
from kintsugi.core.planner.memory import GpuMemory
from kintsugi.core.planner.subject import Subject, nominal_gigabytes

UNSUPPORTED_GPU: Final = "UnsupportedGpu"


def unplannable(subject: Subject) -> PlanFinding | None:
    """Why nothing can be computed for this pool; None where it can."""
    hardware = subject.pool.hardware
    if subject.model is None:
        return PlanFinding(
            "Error",
            "CannotPlan",
            "spec.model.id",
            f"cannot plan: model {subject.model_id!r} is not in the catalog, so its weights and KV cache are not known",
            "use a known model, or describe this one in a file for --catalog",
        )
    if hardware.gpus_per_instance == 0:
        return PlanFinding(
            "Info",
            "CannotPlan",
            subject.origins.path("hardware", "gpus_per_instance"),
            "cannot plan: an instance on the CPU has no GPU memory to divide",
            "set hardware.gpu and gpusPerInstance to plan for GPUs",
        )
    if subject.gpu is None:
        named = f"GPU {hardware.gpu!r} is not in the catalog" if hardware.gpu else "no GPU is named"
        return PlanFinding(
            "Error",
            "CannotPlan",
            subject.origins.path("hardware", "gpu"),
            f"cannot plan: {named}, so its memory is not known",
            "use a known name such as H200, or describe this GPU in a file for --catalog",
        )
    if not subject.gpus_per_node:
        return PlanFinding(
            "Error",
            "CannotPlan",
            subject.origins.path("hardware", "gpus_per_instance"),
            f"cannot plan: no recipe says how many {subject.gpu.name} hold {subject.model.id}",
            "set hardware.gpusPerInstance",
        )
    return None


def hardware_findings(subject: Subject, model: Model, gpu: Gpu) -> tuple[PlanFinding, ...]:
    """What is wrong with the hardware or the way the engine is spread over it."""
    found = [
        _generation(subject, model, gpu),
        _floor(subject, model, gpu),
        _context(subject, model),
        *_parallelism(subject, model),
        *_nodes(subject, gpu),
    ]
    return tuple(finding for finding in found if finding is not None)


def weights_finding(subject: Subject, memory: GpuMemory) -> PlanFinding | None:
    """Weights and runtime leave nothing, even where both are as small as they may be."""
    if (
        memory.kv.high > 0
        and memory.weights.low + memory.reserve.low + _set_kv(subject) <= memory.total.value
    ):
        return None
    told = (
        f"each GPU holds {gigabytes(memory.usable.value)} for the engine; weights take "
        f"{gigabytes(memory.weights.value)} and the runtime about {gigabytes(memory.reserve.value)} of it"
    )
    if subject.settings.kv_cache_memory_bytes:
        told += f", and --kv-cache-memory-bytes asks for {gigabytes(_set_kv(subject))}"
    return PlanFinding(
        "Warning" if subject.verified and memory.usable.value > memory.weights.low else "Error",
        "WeightsDoNotFit",
        subject.path("--tensor-parallel-size", "hardware", "gpus_per_instance"),
        f"no KV cache is left: {told} ({subject.settings.layout})",
        "use more or larger GPUs, or tensor parallelism instead of data parallelism, which copies the attention weights",
    )


def _set_kv(subject: Subject) -> float:
    return float(subject.settings.kv_cache_memory_bytes or 0)


def _generation(subject: Subject, model: Model, gpu: Gpu) -> PlanFinding | None:
    if gpu.compute_capability is None:
        if model.quantization == "nvfp4":
            return PlanFinding(
                "Warning" if UNSUPPORTED_GPU in subject.allowed else "Error",
                UNSUPPORTED_GPU,
                subject.origins.path("hardware", "gpu"),
                f"{model.id} has NVFP4 weights, which only datacenter Blackwell computes; {gpu.name} is another vendor's",
                "use the native checkpoint",
            )
        if subject.verified or not model.compute_capabilities:
            return None
        severity: Severity = "Warning" if UNSUPPORTED_GPU in subject.allowed else "Error"
        why = f"no recipe calls {model.id} verified on {gpu.name}"
    elif not model.compute_capabilities or gpu.compute_capability[0] in model.compute_capabilities:
        return None
    else:
        severity = "Warning" if UNSUPPORTED_GPU in subject.allowed else "Error"
        major, minor = gpu.compute_capability
        need = " or ".join(f"sm_{each}0" for each in sorted(model.compute_capabilities))
        why = f"{gpu.name} is sm_{major}{minor}; {model.id} needs {need}"
    return PlanFinding(
        severity,
        UNSUPPORTED_GPU,
        subject.origins.path("hardware", "gpu"),
        why,
        "use H200, B200 or another listed GPU",
    )


def _floor(subject: Subject, model: Model, gpu: Gpu) -> PlanFinding | None:
    each = nominal_gigabytes(gpu)
    have = each * subject.gpus
    need = model.memory_floor_bytes / 1e9
    if have >= need:
        return None
    least = -(-model.memory_floor_bytes // (each * 10**9))
    where = (
        f"{subject.nodes} nodes of {subject.gpus_per_node}x{each} GB"
        if subject.nodes > 1
        else f"{subject.gpus}x{each} GB"
    )
    return PlanFinding(
        "Error",
        "MemoryBelowFloor",
        subject.origins.path("hardware", "gpus_per_instance"),
        f"{where} ({gpu.name}) hold {have:,} GB; {model.id} needs at least {need:,.0f} GB: {have:,} < {need:,.0f}",
        f"use at least {least} {gpu.name}, on several nodes (nodesPerInstance) where one has fewer, or GPUs with more memory",
    )


def _context(subject: Subject, model: Model) -> PlanFinding | None:
    told = subject.settings.max_model_len
    if told is None or told <= model.max_context:
        return None
    return PlanFinding(
        "Warning",
        "ContextBeyondModel",
        subject.path("--max-model-len", "engine", "args", "max_model_len"),
        f"a context of {grouped(told)} tokens is more than {model.id} has: it is planned for {grouped(model.max_context)}",
        f"use at most {model.max_context}",
    )


def _parallelism(subject: Subject, model: Model) -> list[PlanFinding]:
    settings, found = subject.settings, []
    tensor, limit = settings.tensor_parallel, model.tensor_parallel_limit
    if limit and (tensor > limit or limit % tensor):
        found.append(
            PlanFinding(
                "Error",
                "TensorParallelIllegal",
                subject.path("--tensor-parallel-size", "engine", "args", "tensor_parallel_size"),
                f"tensor parallel {tensor} does not divide the matrices of {model.id} into whole kernel tiles "
                f"(the largest size is {limit})",
                f"use tensor parallel {limit} and data parallel {max(1, subject.gpus // limit)}"
                if tensor > limit
                else f"use a tensor parallel size that divides {limit}",
            )
        )
    if settings.gpus != subject.gpus:
        more = settings.gpus > subject.gpus
        found.append(
            PlanFinding(
                "Error" if more else "Warning",
                "ParallelismExceedsGpus" if more else "IdleGpus",
                subject.path("--tensor-parallel-size", "engine", "args", "tensor_parallel_size"),
                f"{settings.layout} takes {grouped(settings.gpus)} GPUs, an instance has {grouped(subject.gpus)}",
                "make tensor x pipeline x data parallel equal gpusPerInstance x nodesPerInstance",
            )
        )
    return found


def _nodes(subject: Subject, gpu: Gpu) -> list[PlanFinding]:
    found = []
    path = subject.origins.path("hardware", "nodes_per_instance")
    if subject.nodes > 1:
        found.append(
            PlanFinding(
                "Info",
                "NeedsGroup",
                path,
                f"one instance spans {subject.nodes} nodes of {subject.gpus_per_node} GPUs: it is a group of pods that "
                "lives and dies together",
                "needs LeaderWorkerSet in the cluster, and a fast network between the nodes",
            )
        )
        if subject.settings.tensor_parallel > (subject.gpus_per_node or 1):
            found.append(
                PlanFinding(
                    "Warning",
                    "TensorParallelOverNodes",
                    subject.path("--tensor-parallel-size", "engine", "args", "tensor_parallel_size"),
                    f"tensor parallel {subject.settings.tensor_parallel} reaches over the network: each layer waits for it",
                    f"use tensor parallel {subject.gpus_per_node} and data parallel over the nodes",
                )
            )
    elif (subject.gpus_per_node or 0) > gpu.per_node > 0:
        found.append(
            PlanFinding(
                "Warning",
                "MoreThanANode",
                subject.origins.path("hardware", "gpus_per_instance"),
                f"one node usually has {gpu.per_node} {gpu.name}, the instance asks for {subject.gpus_per_node} on one",
                f"spread it over nodes: gpusPerInstance {gpu.per_node}, nodesPerInstance "
                f"{-(-(subject.gpus_per_node or 0) // gpu.per_node)}",
            )
        )
    return found
