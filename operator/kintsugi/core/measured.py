"""What is asked of a Prometheus server about a deployment's pods, and what its answer means.

One instant query a minute, over what cadvisor (in the kubelet) and NVIDIA's dcgm-exporter measure. A server that scrapes
the exporter without `honorLabels` keeps the pod's name as `exported_pod`, so both spellings are asked for.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kintsugi.core.names import ENGINE_CONTAINER
from kintsugi.core.snapshot import Measured

RSS: Final = "container_memory_rss"
"""Anonymous memory of a container; cadvisor takes it from `anon` of cgroup v2, `total_rss` of v1."""
WORKING_SET: Final = "container_memory_working_set_bytes"
GPU_USE: Final[Mapping[str, float]] = {"DCGM_FI_DEV_GPU_UTIL": 1.0, "DCGM_FI_DEV_GPU_UTIL_RATIO": 100.0}
"""Names and what makes percent of them: dcgm-exporter 4.9 renamed the field and made a ratio of it."""
GPU_TROUBLE: Final = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR", "DCGM_FI_DEV_ROW_REMAP_FAILURE")
"""The last Xid of a GPU, by its old and its new name, and whether rows of its memory could not be remapped."""
MOST_GPUS: Final = 64
"""GPUs of one pod beyond which an answer is not believed."""


def query(namespace: str, deployment: str, prefix: str = "") -> str:
    """The PromQL expression. `prefix`: what relabelling may have put before the names."""
    pods = f"{re.escape(deployment)}-.+"
    memory = _names((RSS, WORKING_SET), prefix)
    gpus = _names((*GPU_USE, *GPU_TROUBLE), prefix)
    return " or ".join(
        (
            f'{{__name__=~"{memory}",namespace="{namespace}",pod=~"{_quoted(pods)}",container="{ENGINE_CONTAINER}"}}',
            f'{{__name__=~"{gpus}",namespace="{namespace}",pod=~"{_quoted(pods)}"}}',
            f'{{__name__=~"{gpus}",exported_namespace="{namespace}",exported_pod=~"{_quoted(pods)}"}}',
        )
    )


@dataclass(slots=True)
class _Pod:
    rss: list[float] = field(default_factory=list)
    working_set: list[float] = field(default_factory=list)
    use: dict[str, float] = field(default_factory=dict)
    trouble: dict[tuple[str, str], float] = field(default_factory=dict)


def measured_of(
    result: Iterable[Mapping[str, Any]], pods: Collection[str], mono: float, prefix: str = ""
) -> dict[str, Measured]:
    """By pod name, what the answer to `query` tells; pods of which it tells nothing are left out. NaN is nothing.

    Two series for one thing (two jobs scrape the same kubelet) are one: the higher counts.
    """
    found: dict[str, _Pod] = {}
    for each in result:
        labels = each.get("metric")
        if not isinstance(labels, Mapping):
            continue
        value = _number(each.get("value"))
        name = str(labels.get("__name__", "")).removeprefix(prefix)
        pod = str(labels.get("exported_pod") or labels.get("pod") or "")
        if value is None or pod not in pods:
            continue
        _take(found.setdefault(pod, _Pod()), name, labels, value)
    return {name: _measured(pod, mono) for name, pod in found.items()}


def _take(pod: _Pod, name: str, labels: Mapping[str, Any], value: float) -> None:
    gpu = str(labels.get("UUID") or labels.get("gpu") or labels.get("device") or "0")[:64]
    if name == RSS:
        pod.rss.append(value)
    elif name == WORKING_SET:
        pod.working_set.append(value)
    elif name in GPU_USE and len(pod.use) < MOST_GPUS:
        pod.use[gpu] = max(pod.use.get(gpu, 0.0), min(100.0, max(0.0, value * GPU_USE[name])))
    elif name in GPU_TROUBLE and value > 0.0 and len(pod.trouble) < MOST_GPUS:
        pod.trouble[gpu, name] = value


def _measured(pod: _Pod, mono: float) -> Measured:
    return Measured(
        mono=mono,
        memory_rss=max(pod.rss, default=None),
        memory_working_set=max(pod.working_set, default=None),
        gpu_use=tuple(pod.use[gpu] for gpu in sorted(pod.use)),
        gpu_trouble=tuple((gpu, name, pod.trouble[gpu, name]) for gpu, name in sorted(pod.trouble)),
    )


def _number(pair: object) -> float | None:
    """The value of one (time, text) pair; None for NaN, the infinities and anything that is no such pair."""
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return None
    try:
        value = float(pair[1])
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0.0 else None


def _names(names: Iterable[str], prefix: str) -> str:
    told = list(names)
    return "|".join([*told, *(prefix + name for name in told if prefix)])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
