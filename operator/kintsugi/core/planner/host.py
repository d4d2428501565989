"""What KV offload asks of the pod, beside what the spec gives it."""

from collections.abc import Iterator, Mapping
from typing import Any

from kintsugi.core.catalog.amount import bytes_of
from kintsugi.core.planner.finding import PlanFinding
from kintsugi.core.planner.offload import OffloadNeeds
from kintsugi.core.planner.subject import Subject


def host_finding(subject: Subject, needs: OffloadNeeds) -> PlanFinding:
    """The least memory limit and `/dev/shm`; a warning where the spec writes less."""
    memory, shm = _memory_limit(subject), _shared_memory(subject)
    limit, size = _gibi(needs.memory_limit_bytes), _gibi(needs.shared_memory_bytes)
    short = [
        f"{name} is {_gibi(found)}"
        for name, found, least in (
            ("resources.limits.memory", memory, needs.memory_limit_bytes),
            ("spec.engine.shm.size", shm, needs.shared_memory_bytes),
        )
        if found is not None and found < least
    ]
    return PlanFinding(
        "Warning" if short else "Info",
        "OffloadNeedsHost",
        subject.origins.path("engine", "kv_offload", "host_memory_per_engine"),
        f"KV offload is per engine: {needs.engines} x {_gibi(needs.per_engine)} x {needs.factor:g} in each pod needs at "
        f"least {limit} in resources.limits.memory and {size} in spec.engine.shm.size"
        + (f"; {' and '.join(short)}" if short else ""),
        f"set resources.limits.memory to {limit} and spec.engine.shm.size to {size}, or offload less",
    )


def _memory_limit(subject: Subject) -> int | None:
    """The smallest limit that the spec writes: in typed resources, or in a container of a pod template."""
    resources = subject.pool.engine.resources
    found = [bytes_of((resources.limits or {}).get("memory"))] if resources else []
    for container in _containers(subject):
        found.append(bytes_of(_part(_part(container, "resources"), "limits").get("memory")))
    return min((size for size in found if size), default=None)


def _containers(subject: Subject) -> Iterator[Mapping[str, Any]]:
    for template in subject.pool.pod_templates:
        listed = _part(template, "spec").get("containers")
        yield from (each for each in listed if isinstance(each, dict)) if isinstance(listed, list) else ()


def _shared_memory(subject: Subject) -> int | None:
    shm = subject.pool.engine.shm
    return bytes_of(shm.size) if shm else None


def _part(whole: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = whole.get(key)
    return part if isinstance(part, dict) else {}


def _gibi(size: int) -> str:
    return f"{-(-size // 2**30)}Gi"
