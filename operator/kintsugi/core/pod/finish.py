"""What can only be decided once the user's `podTemplate`s lie over the pod: defaults that depend on them."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kintsugi.api.effective import Pool
from kintsugi.core.catalog.amount import bytes_of
from kintsugi.core.command.choice import Choice
from kintsugi.core.command.offload import GIB
from kintsugi.core.names import ENGINE_CONTAINER
from kintsugi.core.pod.environment import CACHE_PATH
from kintsugi.core.pod.known import holds_model
from kintsugi.core.pod.seconds import downloads
from kintsugi.core.pod.volumes import CACHES, HUB_CACHE, MODELS, SHM, SHM_PATH, offload_of

Json = dict[str, Any]

WEIGHTS_MARGIN: Final = 1.2
"""Disk asked for, as a multiple of the weights: partial files of the download, compiled kernels, logs."""
_TMP: Final = "tmp"
_TMP_PATH: Final = "/tmp"


def finished(template: Json, pool: Pool, choice: Choice) -> Json:
    """`template` with what the user's own fields make necessary or superfluous; what the user wrote stays."""
    pod = dict(template["spec"])
    pod["containers"] = [dict(container) for container in pod["containers"]]
    engine = next(c for c in pod["containers"] if c["name"] == ENGINE_CONTAINER)
    if pod.get("hostIPC"):
        _unmount(engine, SHM, SHM_PATH)
    if _read_only(engine) and _TMP_PATH not in _paths(engine):
        _add_volume(pod, engine)
    _drop_unmounted(pod)
    _requests(pod, engine, pool, choice)
    return template | {"spec": pod}


def _read_only(engine: Mapping[str, Any]) -> bool:
    return bool((engine.get("securityContext") or {}).get("readOnlyRootFilesystem"))


def _paths(engine: Mapping[str, Any]) -> set[str]:
    return {str(mount.get("mountPath", "")).rstrip("/") for mount in engine.get("volumeMounts") or ()}


def _unmount(engine: Json, name: str, path: str) -> None:
    """The host's own is there already: a mount of ours would hide it (S49)."""
    kept = [
        m for m in engine.get("volumeMounts") or () if (m.get("name"), m.get("mountPath")) != (name, path)
    ]
    engine["volumeMounts"] = kept


def _add_volume(pod: Json, engine: Json) -> None:
    """The engine keeps sockets and spilled files in `/tmp`, which a read-only root does not let it write."""
    taken = {volume["name"] for volume in pod.get("volumes") or ()}
    name = _TMP if _TMP not in taken else f"kintsugi-{_TMP}"
    pod["volumes"] = [*(pod.get("volumes") or ()), {"name": name, "emptyDir": {}}]
    engine["volumeMounts"] = [*(engine.get("volumeMounts") or ()), {"name": name, "mountPath": _TMP_PATH}]


def _drop_unmounted(pod: Json) -> None:
    """Volumes of ours that nothing mounts, since the user's mount took the place: they would be made for nobody."""
    mounted = {
        mount.get("name") for container in _containers(pod) for mount in container.get("volumeMounts") or ()
    }
    ours = {SHM, CACHES, MODELS, HUB_CACHE} - mounted
    if "volumes" in pod:
        pod["volumes"] = [volume for volume in pod["volumes"] if volume.get("name") not in ours]


def _containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from pod["containers"]
    yield from pod.get("initContainers") or ()


def _requests(pod: Mapping[str, Any], engine: Json, pool: Pool, choice: Choice) -> None:
    """Memory and disk for what the operator itself puts there, where the user asked for neither."""
    wanted: dict[str, int] = {}
    if holds_model(pool, choice):
        wanted["memory"] = _memory(pod, engine, pool, choice)
        wanted["ephemeral-storage"] = _disk(pod, engine, pool, choice)
    resources = dict(engine.get("resources") or {})
    said = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    added = {name: f"{math.ceil(size / GIB)}Gi" for name, size in wanted.items() if size and name not in said}
    if added:
        engine["resources"] = resources | {"requests": {**(resources.get("requests") or {}), **added}}


def _memory(pod: Mapping[str, Any], engine: Mapping[str, Any], pool: Pool, choice: Choice) -> int:
    """Shared memory counts as the container's own, and so does KV cache that is moved to the host (S47, S49)."""
    mounted = {mount.get("name") for mount in engine.get("volumeMounts") or ()}
    in_memory = [
        (volume.get("emptyDir") or {}).get("sizeLimit")
        for volume in pod.get("volumes") or ()
        if volume.get("name") in mounted and (volume.get("emptyDir") or {}).get("medium") == "Memory"
    ]
    needs = offload_of(pool, choice)
    return max(sum(bytes_of(size) or 0 for size in in_memory), needs.memory_limit_bytes if needs else 0)


def _disk(pod: Mapping[str, Any], engine: Mapping[str, Any], pool: Pool, choice: Choice) -> int:
    """Room for the weights on the node's disk, where they are downloaded into a volume that ends with the pod."""
    if choice.model is None or not downloads(pool.model):
        return 0
    variables = {entry.get("name"): entry.get("value") for entry in engine.get("env") or ()}
    if any(name in variables for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")):
        return 0  # the user says where they go
    home = str(variables.get("HF_HOME") or "")
    if not home.startswith(f"{CACHE_PATH}/"):
        return 0
    ours: Json = next((v for v in pod.get("volumes") or () if v.get("name") == CACHES), {})
    if "emptyDir" not in ours or (ours["emptyDir"] or {}).get("medium"):
        return 0
    return math.ceil(choice.model.disk_bytes * WEIGHTS_MARGIN)
