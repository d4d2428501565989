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
"""Gauge, seconds: age of the telemetry sample behind the other `kintsugi_` series with the same `engine` and `rank`."""

POOL_RANK: Final = "pool"
"""The `rank` label of what is measured once for each engine, at its block pool, and not in each worker."""

PREFILL_TOKENS: Final = "kintsugi_prefill_tokens"
"""Gauge that only rises within a process (counters of several API servers would be added up), tokens, label `step`: prompt
tokens, and those computed again after a preemption, that the engine's steps computed: `mixed` in steps in which some request
decoded, `alone` in the others. vLLM's own counter of prompt tokens moves only when a whole prefill has ended. No series where
decodes elsewhere wait for a step, too: with several data-parallel ranks or pipeline stages."""

STEPS_RANK: Final = "steps"
"""The `rank` label of `SAMPLE_AGE` for what is counted step by step, at the scheduler."""

KV_BLOCKS: Final = "kintsugi_kv_blocks"
"""Gauge, blocks, label `state`: `active` (held), `cached_free` (kept for reuse, free to take), `empty_free`."""

KV_GROUP_WASTE: Final = "kintsugi_kv_group_waste_ratio"
"""Gauge, 0..1, labels `group`, `kind`: what `KV_BLOCK_WASTE` says, of one KV cache group alone."""

PREEMPTED_REQUESTS: Final = "kintsugi_preempted_requests"
"""Gauge, requests: preempted and not resumed yet. vLLM's own counter moves only when they resume."""

GPU_MEMORY: Final = "kintsugi_gpu_memory_bytes"
"""Gauge, bytes, labels `rank`, `kind`: the CUDA allocator's `allocated`, `reserved`, `inactive_split`, `baseline`."""

TELEMETRY_INFO: Final = "kintsugi_telemetry_info"
"""Gauge, 1, labels `state` (`on` or `off`), `reason`, `engine_version`: whether the engine is measured, else why not."""

HOOK_SECONDS: Final = "kintsugi_telemetry_hook_seconds"
"""Counter (`_total` on the page), seconds: time that the engine core spent in the telemetry's hooks."""

STEP_SECONDS: Final = "kintsugi_telemetry_step_seconds"
"""Counter (`_total` on the page), seconds: time of the engine's steps while it had requests."""

TELEMETRY_CONNECTOR: Final = "KintsugiTelemetry"
"""The `kv_connector` that measures the block pool: a connector that moves no KV."""

TELEMETRY_MODULE: Final = "kintsugi_engine.connector"
"""The `kv_connector_module_path` in which it is."""

TELEMETRY_ROLE: Final = "kv_producer"
"""Its `kv_role`. As a consumer, vLLM would free blocks a step later and take requests without their images."""

TELEMETRY_VARIABLE: Final = "KINTSUGI_TELEMETRY"
"""Environment of the engine: `Off` measures nothing, `Force` measures releases of vLLM that are not known, too."""

TELEMETRY_OLDEST: Final = (0, 20)
"""The first release of vLLM (major, minor) that is measured: before it, connectors are handed no block pool, and those of
several KV groups switch the hybrid manager off."""

TELEMETRY_NEWEST: Final = (0, 33)
"""The newest release known. A newer one may mean other things by the same names: no figure is better than a wrong one."""

TELEMETRY_DIR_VARIABLE: Final = "KINTSUGI_TELEMETRY_DIR"
"""Environment of the engine: the folder of the per-rank files; a folder of its own under the temporary one if unset."""

CONTAINER_MEMORY_ANONYMOUS: Final = "kintsugi_container_memory_anonymous_bytes"
"""Gauge, bytes: anonymous memory of the engine's own container (`anon` in the cgroup's `memory.stat`). One series a page."""

CONTAINER_MEMORY_SHARED: Final = "kintsugi_container_memory_shared_bytes"
"""Gauge, bytes: shared memory charged to the same container (`shmem` there), /dev/shm included."""

CONTAINER_MEMORY_LIMIT: Final = "kintsugi_container_memory_limit_bytes"
"""Gauge, bytes: the container's memory limit (`memory.max`). No series where there is none (`max`)."""

COMPACT_PATH: Final = "/kintsugi/compact"
"""POST: give the GPU allocators' cached memory back; no request is cut. 200 `{"ranks": [{"rank", "reservedBefore",
"reservedAfter"}]}` in bytes, with no ranks where there is no GPU; 503 where the engine is dead, 504 where it gave no
answer in time. An engine without it answers 404, also to GET; one with it answers GET with 405."""

RECORD_PATH: Final = "/kintsugi/record"
"""GET: what each rank measured last, from its own file, also of an engine that hangs. 200 `{"ranks": [{"kind", "engine",
"rank", "age", …}]}`, `age` in seconds, the rest as the rank wrote it; no ranks where none wrote. An engine without it
answers 404."""

COMPACT_MIDDLEWARE: Final = "kintsugi_engine.compaction.Endpoint"
"""What `--middleware` of vLLM names to have these two paths."""

NATIVE_SLOTS: Final = "kintsugi_native_slots"
"""Gauge, slots: places for requests in the native runtime's KV cache, taken at the start."""

NATIVE_SLOT_BYTES: Final = "kintsugi_native_slot_bytes"
"""Gauge, bytes: memory of one slot."""

NATIVE_MODEL_BYTES: Final = "kintsugi_native_model_bytes"
"""Gauge, bytes: memory of the native runtime's weights."""

CANARY_REQUEST_ID_PREFIX: Final = "kintsugi-canary-"
"""Request ids (`X-Request-Id`) of the operator's own canaries begin with this."""

ENGINE_PORT: Final = 8000
"""TCP port of the OpenAI-compatible server and of `/metrics` in an instance."""
