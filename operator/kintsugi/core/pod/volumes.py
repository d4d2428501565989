"""The pod's volumes and the engine's mounts, as far as the operator makes them."""

from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.api.spec import DeploymentSpec
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


def shm_size(pool: Pool) -> str:
    """Size of the pod's `/dev/shm` where the operator makes it."""
    return pool.engine.shm.size if pool.engine.shm else DEFAULT_SHM


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


def volumes(spec: DeploymentSpec, pool: Pool) -> list[Json]:
    """What the mounts need."""
    found: list[Json] = [
        {"name": SHM, "emptyDir": {"medium": "Memory", "sizeLimit": shm_size(pool)}},
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
