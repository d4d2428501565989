"""Loaded by a vLLM: our telemetry, in an engine that leaks blocks of its KV pool once a file asks for it."""

from pathlib import Path
from typing import Any

from kintsugi_engine.connector import KintsugiTelemetry, TelemetryStats

ASK = Path("/tmp/leak-blocks")
"""Its text is the number of blocks to take from the pool and never to give back."""


class LeakingTelemetry(KintsugiTelemetry):
    """What is leaked is real: the blocks have an owner in the pool's books, and none else."""

    _lost: tuple[Any, ...] = ()

    def get_kv_connector_stats(self) -> TelemetryStats | None:
        if not self._worker and not self._lost and ASK.exists():
            self._lost = tuple(self._kv_cache_manager.block_pool.get_new_blocks(int(ASK.read_text())))
        return super().get_kv_connector_stats()
