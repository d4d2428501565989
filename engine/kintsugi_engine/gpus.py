"""Which GPUs this container sees, without a framework: by NVIDIA's management library, else by the kernel's files."""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NAME_BYTES: Final = 96
"""`NVML_DEVICE_NAME_V2_BUFFER_SIZE`."""
AMD_NODES: Final = Path("/sys/class/kfd/kfd/topology/nodes")


@dataclass(frozen=True, slots=True)
class Found:
    """Names of the GPUs, and where there are none, what was tried."""

    names: tuple[str, ...]
    why: str = ""


def visible(root: Path = Path("/")) -> Found:
    """NVIDIA's, else AMD's."""
    nvidia = _nvidia()
    if nvidia.names:
        return nvidia
    kernel = _kernel(root)
    if kernel:
        return Found(kernel)
    amd = _amd(root)
    return Found(amd) if amd else Found((), nvidia.why)


def _nvidia() -> Found:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return Found(
            (), "libnvidia-ml.so.1 is not there, so the container runtime gave this container no GPU"
        )
    if code := library.nvmlInit_v2():
        return Found((), f"nvmlInit_v2 says {code}: the driver can't be reached")
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    names = []
    for index in range(count.value):
        device, name = ctypes.c_void_p(), ctypes.create_string_buffer(_NAME_BYTES)
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0:
            library.nvmlDeviceGetName(device, name, _NAME_BYTES)
            names.append(name.value.decode("utf-8", "replace"))
    library.nvmlShutdown()
    return Found(tuple(names), "" if names else "the driver counts no GPU")


def _kernel(root: Path) -> tuple[str, ...]:
    """From the driver's own files, where the library is missing. They list the node's GPUs, not the container's, so a
    GPU counts only where its device file is here."""
    found = []
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        facts = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        minor = facts.get("Device Minor", "").strip()
        if (root / f"dev/nvidia{minor}").exists():
            found.append(facts.get("Model", "NVIDIA").strip())
    return tuple(found)


def _amd(root: Path) -> tuple[str, ...]:
    """A node of the kernel's topology with compute units is a GPU."""
    if not (root / "dev/kfd").exists():
        return ()
    found = []
    for path in sorted((root / str(AMD_NODES).lstrip("/")).glob("*/properties")):
        facts = dict(line.split(" ", 1) for line in path.read_text().splitlines() if " " in line)
        if int(facts.get("simd_count", "0")) > 0:
            found.append((path.parent / "name").read_text().strip() or "AMD")
    return tuple(found)
