"""Memory of the machine and of the GPU's allocator, in bytes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

GIB: Final = 1 << 30
FLOOR_BYTES: Final = 256 << 20
"""Below this much reusable memory the share that is split says nothing."""
_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_USED: Final = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")


def free_bytes(device: torch.device) -> int:
    """What can still be taken: of the GPU, or of the machine within the container's limit."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    machine = _machine_free(Path("/proc/meminfo").read_text())
    limit, used = _first(_LIMITS), _first(_USED)
    return machine if limit is None or used is None else max(0, min(machine, limit - used))


def _machine_free(text: str) -> int:
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ValueError("/proc/meminfo has no MemAvailable")


def _first(paths: tuple[str, ...]) -> int | None:
    for path in paths:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < 1 << 60:  # v1 says a huge number for no limit, v2 says max
            return int(text)
    return None


@dataclass(frozen=True, slots=True)
class Allocator:
    """What PyTorch's allocator of the GPU holds."""

    allocated: int
    reserved: int
    split_inactive: int
    """Bytes of free pieces that lie between pieces in use, so that they can't be given back."""


def allocator(device: torch.device) -> Allocator | None:
    """None where there is no GPU."""
    if device.type != "cuda":
        return None
    figures: dict[str, Any] = torch.cuda.memory_stats(device)
    return Allocator(
        figures.get("allocated_bytes.all.current", 0),
        figures.get("reserved_bytes.all.current", 0),
        figures.get("inactive_split_bytes.all.current", 0),
    )


def fragmentation(now: Allocator | None, baseline: int) -> float | None:
    """Share of the reusable memory that is split; None where that can't be said. `baseline`: allocated at the start."""
    if now is None or now.reserved - baseline < FLOOR_BYTES:
        return None
    return min(1.0, now.split_inactive / (now.reserved - baseline))


def release(device: torch.device) -> tuple[int, int] | None:
    """Give cached memory back to the driver; bytes reserved before and after, None where there is no GPU."""
    before = allocator(device)
    if before is None:
        return None
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    after = allocator(device)
    return before.reserved, after.reserved if after else 0
