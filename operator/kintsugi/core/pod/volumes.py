"""The pod's volumes and the engine's mounts, as far as the operator makes them."""

import math
from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.command.choice import Choice
from kintsugi.core.command.offload import GIB, rival, wanted_bytes
from kintsugi.core.planner.offload import OffloadNeeds, offload_needs
from kintsugi.core.pod.environment import CACHE_PATH, HUB_CACHE_PATH

Json = dict[str, Any]

DEFAULT_SHM: Final = "16Gi"
"""Enough for NCCL and the executor of eight ranks; Kubernetes gives 64 MiB, which is not (S49)."""
SHM: Final = "shm"
SHM_PATH: Final = "/dev/shm"
MODELS: Final = "models"
MODELS_PATH: Final = "/models"
HUB_CACHE: Final = "hub-cache"
CACHES: Final = "caches"


def offload_of(pool: Pool, choice: Choice) -> OffloadNeeds | None:
    """What KV cache in host memory needs in one pod; None where none is asked for, or a connector of the user's has it."""
    wanted = wanted_bytes(pool) if pool.engine.runtime != "Native" and not rival(choice.extra) else 0
    if not wanted:
        return None
    engines = math.ceil(choice.parallel.data / choice.parallel.nodes)
    return offload_needs(wanted, engines, choice.version)


def shm_size(pool: Pool, choice: Choice) -> str:
    """Size of the pod's `/dev/shm` where the operator makes it; offloaded KV cache lies there too (S47)."""
    if pool.engine.shm:
        return pool.engine.shm.size
    needs = offload_of(pool, choice)
    return f"{math.ceil(needs.shared_memory_bytes / GIB)}Gi" if needs else DEFAULT_SHM


def mounts(spec: DeploymentSpec) -> list[Json]:
    """The engine's mounts."""
    found: list[Json] = [{"name": SHM, "mountPath": SHM_PATH}, {"name": CACHES, "mountPath": CACHE_PATH}]
    source = spec.model.source
    if source and (source.pvc or source.image):
        found.append({"name": MODELS, "mountPath": MODELS_PATH, "readOnly": True})
    if source and source.hub and source.hub.cache:
        cache: Json = {"name": HUB_CACHE, "mountPath": HUB_CACHE_PATH}
        if source.hub.cache.sub_path:
            cache["subPath"] = source.hub.cache.sub_path
        found.append(cache)
    return found


def volumes(spec: DeploymentSpec, pool: Pool, choice: Choice) -> list[Json]:
    """What the mounts need."""
    found: list[Json] = [
        {"name": SHM, "emptyDir": {"medium": "Memory", "sizeLimit": shm_size(pool, choice)}},
        {"name": CACHES, "emptyDir": {}},
    ]
    source = spec.model.source
    if source and source.pvc:
        claim = {"claimName": source.pvc.claim_name, "readOnly": True}
        found.append({"name": MODELS, "persistentVolumeClaim": claim})
    if source and source.image:
        image: Json = {"reference": source.image.reference}
        if source.image.pull_policy:
            image["pullPolicy"] = source.image.pull_policy
        found.append({"name": MODELS, "image": image})
    if source and source.hub and source.hub.cache:
        claim = {"claimName": source.hub.cache.claim_name}
        found.append({"name": HUB_CACHE, "persistentVolumeClaim": claim})
    return found
