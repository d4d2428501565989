"""Names that the operator and the engine side share. Standard library only."""

from typing import Final

GPU_FRAGMENTATION: Final = "kintsugi_gpu_memory_fragmentation_ratio"
"""Gauge, 0..1, label `rank`: share of the allocator's reusable memory that is split into pieces."""

KV_BLOCK_WASTE: Final = "kintsugi_kv_block_waste_ratio"
"""Gauge, 0..1: token slots held by live requests and not written, of the slots they hold."""

KV_ORPHANED_BLOCKS: Final = "kintsugi_kv_orphaned_blocks"
"""Gauge, blocks: blocks with a reference count that no live request explains."""

KV_ORPHANED_BLOCKS_RATIO: Final = "kintsugi_kv_orphaned_blocks_ratio"
"""Gauge, 0..1: orphaned blocks of all blocks."""

SAMPLE_AGE: Final = "kintsugi_sample_age_seconds"
"""Gauge, seconds: age of the telemetry sample behind the other `kintsugi_` series of this page."""

CONTAINER_MEMORY_ANONYMOUS: Final = "kintsugi_container_memory_anonymous_bytes"
"""Gauge, bytes: anonymous memory of the engine's own container (`anon` in the cgroup's `memory.stat`). One series a page."""

CONTAINER_MEMORY_SHARED: Final = "kintsugi_container_memory_shared_bytes"
"""Gauge, bytes: shared memory charged to the same container (`shmem` there), /dev/shm included."""

CONTAINER_MEMORY_LIMIT: Final = "kintsugi_container_memory_limit_bytes"
"""Gauge, bytes: the container's memory limit (`memory.max`). No series where there is none (`max`)."""

CANARY_REQUEST_ID_PREFIX: Final = "kintsugi-canary-"
"""Request ids (`X-Request-Id`) of the operator's own canaries begin with this."""

ENGINE_PORT: Final = 8000
"""TCP port of the OpenAI-compatible server and of `/metrics` in an instance."""
