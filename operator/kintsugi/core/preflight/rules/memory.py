"""Host memory and shared memory (S47, S49)."""

import math
from collections.abc import Iterator
from typing import Final

from kintsugi.core.catalog.amount import bytes_of
from kintsugi.core.command.number import share
from kintsugi.core.command.offload import SIZE, TRANSFER, connector_bytes, wanted_bytes
from kintsugi.core.planner.offload import ENGINE_HOST, OffloadNeeds, offload_needs
from kintsugi.core.pod.known import gpu_resource
from kintsugi.core.pod.volumes import SHM_PATH
from kintsugi.core.preflight.rule import Rule, Said, example
from kintsugi.core.preflight.rules.gpus import hardware
from kintsugi.core.preflight.view import Json, PoolView, View, by_a_person, mapping, objects

_GIB: Final = 2**30
LEAST_SHM: Final = 2 * _GIB
"""vLLM's own manifest for Kubernetes gives 2 GiB (docs/deployment/k8s.md); Kubernetes' default of 64 MiB ends NCCL."""


def _needs(pool: PoolView) -> OffloadNeeds | None:
    """What the offload that a person asked for needs; None where nobody asked."""
    asked = wanted_bytes(pool.pool) if pool.pool.engine.kv_offload else 0
    written = pool.written(SIZE)
    if written and not asked:
        asked = round((share(written.value) or 0) * _GIB)
    return _offload_needs(pool, asked)


def _connector_needs(pool: PoolView) -> OffloadNeeds | None:
    """What the blocks need that a connector of the user's own keeps in host memory; None where it keeps none."""
    ranks = (pool.number("--tensor-parallel-size") or 1) * (pool.number("--pipeline-parallel-size") or 1)
    given = [each for each in pool.command.arguments if by_a_person(each)]
    return _offload_needs(pool, connector_bytes(given, ranks))


def _offload_needs(pool: PoolView, asked: int) -> OffloadNeeds | None:
    engines = math.ceil((pool.number("--data-parallel-size") or 1) / pool.nodes)
    return offload_needs(asked, engines, pool.version) if asked > 0 else None


def _memory_limit(pool: PoolView) -> tuple[int, str] | None:
    """The container's memory limit in bytes, and where a person wrote it."""
    if not pool.pod:
        return _raw_limit(pool)
    limits = mapping(mapping(pool.container.get("resources")).get("limits"))
    size = bytes_of(limits.get("memory"))
    path = pool.template_path("engine", "resources", "limits", "memory") or (
        pool.path("engine.resources.limits.memory") if pool.says("engine.resources.limits.memory") else None
    )
    return (size, path) if size and path else None


def _raw_limit(pool: PoolView) -> tuple[int, str] | None:
    """The same where the pod can't be rendered: the first limit in a template is most likely meant for the engine."""
    for at, template in pool.templates():
        for index, container in enumerate(objects(mapping(template.get("spec")).get("containers"))):
            limits = mapping(mapping(container.get("resources")).get("limits"))
            if size := bytes_of(limits.get("memory")):
                return size, f"{at}.spec.containers[{index}].resources.limits.memory"
    return None


def _shared_memory(pool: PoolView) -> tuple[int, str] | None:
    """The size of /dev/shm in bytes, and where a person wrote it; None where nobody did."""
    if not pool.pod:
        size = bytes_of(pool.pool.engine.shm.size) if pool.pool.engine.shm else None
        return (size, pool.path("engine.shm.size")) if size else None
    mounts = objects(pool.container.get("volumeMounts"))
    name = next((m.get("name") for m in mounts if str(m.get("mountPath")).rstrip("/") == SHM_PATH), None)
    volume = next((v for v in objects(pool.pod_spec.get("volumes")) if v.get("name") == name and name), {})
    size = bytes_of(mapping(volume.get("emptyDir")).get("sizeLimit"))
    path = _volume_path(pool, volume) or (
        pool.path("engine.shm.size") if pool.says("engine.shm.size") else None
    )
    return (size, path) if size and path else None


def _volume_path(pool: PoolView, volume: Json) -> str | None:
    for at, template in pool.templates():
        for index, each in enumerate(objects(mapping(template.get("spec")).get("volumes"))):
            if each.get("name") == volume.get("name"):
                return f"{at}.spec.volumes[{index}]"
    return None


def _offload(view: View) -> Iterator[Said]:
    for pool in view.pools:
        needs = _needs(pool) if pool.vllm else None
        if needs is None:
            continue
        asked = needs.per_engine * needs.engines
        for found, least, what in (
            (_memory_limit(pool), needs.memory_limit_bytes, "limits the container's memory to"),
            (_shared_memory(pool), needs.shared_memory_bytes, "limits /dev/shm to"),
        ):
            if found and found[0] < least:
                yield Said(
                    found[1],
                    f"{what} {_gi(found[0])}, and KV offload needs {needs.engines} x {_gi(needs.per_engine)} x "
                    f"{needs.factor:g}, with room for the engine {_gi(least)} (at least {_gi(needs.memory_limit_bytes)} in "
                    f"resources.limits.memory and {_gi(needs.shared_memory_bytes)} in spec.engine.shm.size): "
                    + ("the pod is killed when it fills" if found[0] < asked else "there is no margin"),
                    f"use at least {_gi(least)}, or offload less: it is per engine, and there are {needs.engines}",
                    None if found[0] < asked else "Warning",
                )


def _connector(view: View) -> Iterator[Said]:
    for pool in view.pools:
        needs = _connector_needs(pool) if pool.vllm else None
        found = _memory_limit(pool)
        if needs is None or found is None or _needs(pool) is not None:
            continue
        asked, least = needs.per_engine * needs.engines, needs.blocks_bytes + ENGINE_HOST * needs.engines
        if found[0] < least:
            yield Said(
                found[1],
                f"limits the container's memory to {_gi(found[0])}, and {TRANSFER} keeps {needs.engines} x "
                f"{_gi(needs.per_engine)} of KV blocks in host memory, with room for the engine {_gi(least)}: "
                + ("the pod is killed when it fills" if found[0] < asked else "there is no margin"),
                f"use at least {_gi(least)}, or keep less there: it is per engine, and there are {needs.engines}",
                None if found[0] < asked else "Warning",
            )


def _host_memory(view: View) -> Iterator[Said]:
    yield from _offload(view)
    yield from _connector(view)


def _gi(size: int) -> str:
    return f"{-(-size // _GIB)}Gi"


def _small(view: View) -> Iterator[Said]:
    for pool in view.pools:
        found = _shared_memory(pool)
        if found and found[0] < LEAST_SHM and (pool.gpus or 0) > 1:
            yield Said(
                found[1],
                f"gives /dev/shm {found[0] / _GIB:.3g} GiB for {pool.gpus} GPUs: NCCL and the engine's own queues end with "
                "a bus error",
                "use 16Gi, or leave it out",
            )


def _beyond_limit(view: View) -> Iterator[Said]:
    for pool in view.pools:
        shm, limit = _shared_memory(pool), _memory_limit(pool)
        if shm and limit and shm[0] >= limit[0]:
            yield Said(
                shm[1],
                f"gives /dev/shm {_gi(shm[0])}, which counts towards the memory limit of {_gi(limit[0])} ({limit[1]})",
                f"raise {limit[1]} above {_gi(shm[0])} by what the engine itself needs, or use less",
            )


def _gpu_count(view: View) -> Iterator[Said]:
    for pool in view.pools:
        resource = gpu_resource(pool.pool.hardware, pool.choice.gpu)
        limits = mapping(mapping(pool.container.get("resources")).get("limits"))
        said, wanted = str(limits.get(resource, "")), pool.choice.parallel.gpus
        field = f"engine.resources.limits[{resource}]"
        path = pool.template_path("engine", "resources", "limits", resource) or pool.path(field)
        if (
            wanted is not None
            and said.isascii()
            and said.isdecimal()
            and len(said) < 9
            and int(said) != wanted
        ):
            yield Said(
                path,
                f"asks for {said} GPUs, and the command is made for {wanted} on each node (hardware.gpusPerInstance): the "
                "engine would miss some, or leave some idle",
                "remove it: hardware.gpusPerInstance sets both",
            )


def _request_beyond_limit(view: View) -> Iterator[Said]:
    for pool in view.pools:
        resources = mapping(pool.container.get("resources"))
        limits, requests = mapping(resources.get("limits")), mapping(resources.get("requests"))
        for name in ("memory", "ephemeral-storage"):
            asked, most = bytes_of(requests.get(name)), bytes_of(limits.get(name))
            if not asked or not most or asked <= most:
                continue
            for kind in ("requests", "limits"):
                field = f"engine.resources.{kind}.{name}"
                path = pool.template_path("engine", "resources", kind, name) or pool.path(field)
                if pool.template_path("engine", "resources", kind, name) or pool.says(field):
                    yield Said(
                        path,
                        f"leaves a request of {requests[name]} above the limit of {limits[name]} ({name}): Kubernetes refuses "
                        "the pod",
                        "make the request at most the limit",
                    )
                    break


_OFFLOAD: Final = {"kvOffload": {"hostMemoryPerEngine": "200Gi"}}
_DP4: Final = {"args": {"dataParallelSize": 4}}
_CONNECTOR: Final = [
    "--kv-transfer-config",
    '{"kv_connector":"OffloadingConnector","kv_connector_extra_config":{"cpu_bytes_to_use":137438953472}}',
]


def _limit(memory: str) -> dict[str, object]:
    return {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"memory": memory}}}]}}


RULES: Final = (
    Rule(
        name="OffloadMemory",
        severity="Error",
        summary="KV offload asks for more host memory than the pod may use.",
        why="The size is per engine, so that data parallel copies multiply it, and releases took up to 1.92 times of it as "
        "shared memory: the pod is OOM-killed under load, long after its start.",
        sources=(
            "https://github.com/kserve/kserve/pull/6086",
            "https://github.com/vllm-project/vllm/issues/53042",
            "https://github.com/opendatahub-io/kserve/pull/1842",
        ),
        claims=("A13", "A16"),
        check=_host_memory,
        good=(
            example(engine={**_OFFLOAD, **_DP4}),
            example(engine={**_OFFLOAD, **_DP4, "shm": {"size": "1Ti"}}, podTemplate=_limit("2Ti")),
            example(engine={"extraArgs": _CONNECTOR}, podTemplate=_limit("256Gi")),
            example(
                hardware={**hardware("H200", 8), "nodesPerInstance": 2},
                engine={**_OFFLOAD, "args": {"dataParallelSize": 4, "tensorParallelSize": 4}},
                podTemplate=_limit("600Gi"),
            ),
        ),
        bad=(
            example(engine={**_OFFLOAD, **_DP4, "shm": {"size": "16Gi"}}, podTemplate=_limit("512Gi")),
            example(engine={**_OFFLOAD, "resources": {"limits": {"memory": "128Gi"}}}),
            example(
                hardware=hardware("H200", 4),
                engine={"extraArgs": ["--kv-offloading-size", "200"], "shm": {"size": "64Gi"}},
            ),
            example(engine={"extraArgs": _CONNECTOR, **_DP4}, podTemplate=_limit("256Gi")),
        ),
    ),
    Rule(
        name="SharedMemorySmall",
        severity="Warning",
        summary="/dev/shm is too small for several GPUs.",
        why="Ranks exchange messages through it; Kubernetes' 64 MiB end NCCL.",
        sources=(
            "https://github.com/vllm-project/production-stack/issues/276",
            "https://github.com/vllm-project/vllm/issues/7466",
        ),
        check=_small,
        good=(example(engine={"shm": {"size": "16Gi"}}), example()),
        bad=(
            example(engine={"shm": {"size": "64Mi"}}),
            example(
                podTemplate={
                    "spec": {
                        "containers": [
                            {"name": "engine", "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}]}
                        ],
                        "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "512Mi"}}],
                    }
                }
            ),
        ),
    ),
    Rule(
        name="SharedMemoryBeyondLimit",
        severity="Warning",
        summary="/dev/shm alone fills the container's memory limit.",
        why="A memory-backed volume counts towards the limit: the container is killed when it fills.",
        sources=("https://kubernetes.io/docs/concepts/storage/volumes/#emptydir",),
        check=_beyond_limit,
        good=(example(engine={"shm": {"size": "16Gi"}, "resources": {"limits": {"memory": "256Gi"}}}),),
        bad=(example(engine={"shm": {"size": "64Gi"}, "resources": {"limits": {"memory": "64Gi"}}}),),
    ),
    Rule(
        name="RequestBeyondLimit",
        severity="Error",
        summary="The engine's container asks for more than its limit lets it use.",
        why="Kubernetes refuses the pod, and the operator would try again for ever.",
        sources=("https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",),
        check=_request_beyond_limit,
        good=(
            example(engine={"resources": {"requests": {"memory": "500Gi"}, "limits": {"memory": "512Gi"}}}),
        ),
        bad=(
            example(engine={"resources": {"requests": {"memory": "600Gi"}, "limits": {"memory": "512Gi"}}}),
            example(engine={"resources": {"requests": {"memory": "600Gi"}}}, podTemplate=_limit("512Gi")),
        ),
    ),
    Rule(
        name="GpuCountContradicts",
        severity="Error",
        summary="The container asks for another number of GPUs than the command is made for.",
        why="Tensor parallel over 8 GPUs ends at its start where the container has 4.",
        sources=("https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",),
        check=_gpu_count,
        good=(
            example(hardware=hardware("H200", 8), engine={"resources": {"limits": {"nvidia.com/gpu": "8"}}}),
        ),
        bad=(
            example(hardware=hardware("H200", 8), engine={"resources": {"limits": {"nvidia.com/gpu": "4"}}}),
            example(
                hardware=hardware("H200", 8),
                podTemplate={
                    "spec": {
                        "containers": [{"name": "engine", "resources": {"limits": {"nvidia.com/gpu": 4}}}]
                    }
                },
            ),
        ),
    ),
)
