"""Host memory and shared memory that KV offload needs, and what it holds."""

import math
from dataclasses import dataclass
from typing import Final

from kintsugi.core.catalog.version import EngineVersion

SAFETY: Final = 1.1
"""Beside the blocks: pinned staging buffers and the allocator's rounding. Assumed."""
GREEDY: Final = 1.92
"""One release took this many times the asked size as unreclaimable shared memory (vllm-project/vllm#53042)."""
GREEDY_FROM: Final = EngineVersion(0, 27)
GREEDY_UNTIL: Final = EngineVersion(0, 29)
"""Releases around the report of August 2026, first without it assumed."""
ENGINE_SHM: Final = 16 * 2**30
"""What NCCL and the engine's own message queues need beside it (published V4 manifests use 16 Gi)."""
ENGINE_HOST: Final = 16 * 2**30
"""Host memory of a server process per engine beside the offloaded blocks. Assumed."""


@dataclass(frozen=True, slots=True)
class OffloadNeeds:
    """The least that a pod needs, in bytes."""

    per_engine: int
    engines: int
    """Engines (DP ranks) in one pod: each keeps its own blocks."""
    factor: float
    """Host bytes taken per byte asked for, with this version."""
    blocks_bytes: int
    """Offloaded blocks of all engines, the factor in it."""
    shared_memory_bytes: int
    """For `spec.engine.shm.size`."""
    memory_limit_bytes: int
    """For `resources.limits.memory`, in which shared memory counts."""


def offload_factor(version: EngineVersion | None) -> float:
    """Bytes of host memory that one byte of offload costs; the usual factor where the version is not known."""
    greedy = version is not None and GREEDY_FROM <= version < GREEDY_UNTIL
    return GREEDY if greedy else SAFETY


def offload_needs(
    per_engine: int, engines: int, version: EngineVersion | None = None, factor: float | None = None
) -> OffloadNeeds:
    """What `per_engine` bytes of offload for each of `engines` engines in one pod ask of the pod.

    `factor` overrides the version's own. Numbers below 0 count as 0, fewer engines than 1 as 1.
    """
    chosen = offload_factor(version) if factor is None else max(1.0, factor)
    asked, many = max(0, per_engine), max(1, engines)
    blocks = math.ceil(asked * many * chosen)
    shm = blocks + ENGINE_SHM if asked else ENGINE_SHM
    return OffloadNeeds(asked, many, chosen, blocks, shm, shm + ENGINE_HOST * many)
