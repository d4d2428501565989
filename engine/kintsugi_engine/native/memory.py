"""Memory of the machine and of the GPU's allocator, in bytes."""

from pathlib import Path
from typing import Final

import torch

from kintsugi_engine.telemetry.allocator import Reading, read_device

GIB: Final = 1 << 30
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


def allocator(device: torch.device) -> Reading | None:
    """What PyTorch's allocator of the GPU holds; None where there is no GPU."""
    return read_device(torch) if device.type == "cuda" else None


def release(device: torch.device) -> tuple[int, int] | None:
    """Give cached memory back to the driver; bytes reserved before and after, None where there is no GPU."""
    before = allocator(device)
    if before is None:
        return None
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    after = allocator(device)
    return before.reserved, after.reserved if after else 0
