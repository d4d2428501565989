"""The telemetry as vLLM loads it: a KV connector that moves no KV.

vLLM makes one in the engine core (where it is handed the live block pool), and one in each worker; it ships what
`get_kv_connector_stats` returns to the API process, and asks the class for metrics there. Imported by vLLM alone.
Nothing here may harm serving: a hook that fails says so once, and the telemetry is off from then on.
"""

import abc
import functools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from vllm.distributed.kv_transfer.kv_connector.v1 import base as _base
from vllm.distributed.kv_transfer.kv_connector.v1 import metrics as _metrics

from kintsugi_engine.contract import TELEMETRY_CONNECTOR
from kintsugi_engine.telemetry import allocator
from kintsugi_engine.telemetry.engine_version import engine_version, reason_to_be_off
from kintsugi_engine.telemetry.exporter import Exporter
from kintsugi_engine.telemetry.pool import PoolWatch
from kintsugi_engine.telemetry.rankfile import RankFile, folder

_LOG: Final = logging.getLogger("vllm.kintsugi")

_NEEDED: Final = ("bind_kv_cache_manager", "on_new_request")
"""Hooks of the engine core without which the pool cannot be seen, or its blocks not be explained. Releases from 0.20 on
that lack them still have the allocator measured."""

_Hook = TypeVar("_Hook", bound=Callable[..., Any])


def _hook(neutral: Callable[[], Any]) -> Callable[[_Hook], _Hook]:
    """Time a hook, and keep what goes wrong in it from the engine: `neutral` makes the answer that changes nothing."""

    def wrap(method: _Hook) -> _Hook:
        @functools.wraps(method)
        def guarded(self: "KintsugiTelemetry", *args: Any, **kwargs: Any) -> Any:
            if self.off:
                return neutral()
            began = time.perf_counter()
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # noqa: BLE001  of whatever kind: the engine's internals may have changed
                self.turn_off(f"{method.__name__} failed", error)
                return neutral()
            finally:
                if self.pool.steps:
                    self.pool.hook_seconds += time.perf_counter() - began

        return guarded  # type: ignore[return-value]

    return wrap


def _waited_for(vllm_config: Any) -> bool:
    """Whether decodes elsewhere wait for the steps here: those of other data-parallel ranks, which step together where
    there are experts, and of other batches that pass through the stages of a pipeline."""
    parallel = getattr(vllm_config, "parallel_config", None)
    sizes = ("data_parallel_size", "pipeline_parallel_size")
    return any(int(getattr(parallel, size, 1) or 1) > 1 for size in sizes)


def _nothing() -> None:
    return None


@dataclass
class TelemetryStats(_metrics.KVConnectorStats):  # type: ignore[misc]
    """What is shipped: `pool` or `counts` from the engine core, `workers` by rank. The newest wins; nothing is added up."""

    data: dict[str, Any] = field(default_factory=dict)

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: Any) -> "TelemetryStats":
        workers = {**self.data.get("workers", {}), **other.data.get("workers", {})}
        self.data.update(other.data)
        if workers:
            self.data["workers"] = workers
        return self

    def reduce(self) -> dict[str, int | float]:
        """For vLLM's own log line."""
        blocks = self.data.get("pool", {}).get("blocks", {})
        return {f"kv_blocks_{state}": count for state, count in blocks.items()}

    def is_empty(self) -> bool:
        return not self.data


class TelemetryMetadata(_base.KVConnectorMetadata):  # type: ignore[misc]
    """Nothing for the workers to do."""


class TelemetryMetrics(_metrics.KVConnectorPromMetrics):  # type: ignore[misc]
    """The series, in the API process."""

    def __init__(
        self, config: Any, types: Mapping[Any, Any], names: list[str], engines: dict[int, list[object]]
    ) -> None:
        super().__init__(config, types, names, engines)
        self._complained = False
        version = engine_version()
        reason = reason_to_be_off(version)
        self._exporter = Exporter(
            self._gauge_cls, self._counter_cls, names, engines, str(getattr(config, "instance_id", ""))
        )
        self._exporter.say("off" if reason else "on", reason, version)
        self._exporter.start()

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        samples = [transfer_stats_data[name] for name in ("pool", "counts") if transfer_stats_data.get(name)]
        try:
            for sample in [*samples, *transfer_stats_data.get("workers", {}).values()]:
                self._exporter.take(engine_idx, sample)
        except Exception as error:  # noqa: BLE001  of whatever kind: vLLM reads its own statistics in the same loop
            if not self._complained:
                _LOG.error("Kintsugi telemetry: a sample cannot be shown (%r)", error)
            self._complained = True


class KintsugiTelemetry(_base.KVConnectorBase_V1, getattr(_base, "SupportsHMA", object)):  # type: ignore[misc]
    """The connector. `off` is the reason why it does nothing, '' while it measures."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        ahead = int(getattr(vllm_config, "num_lookahead_tokens", 0) or 0)
        self.pool = PoolWatch(ahead, self._write, alone=not _waited_for(vllm_config))
        self._worker = role == _base.KVConnectorRole.WORKER
        self._warm = False
        self._shipped = 0.0
        self.off = ""
        try:
            self._set_up(vllm_config)
        except Exception as error:  # noqa: BLE001  of whatever kind: the engine's settings may have changed
            self.turn_off("the engine's settings are not as expected", error)

    def _set_up(self, vllm_config: Any) -> None:
        parallel = vllm_config.parallel_config
        self._engine = str(getattr(parallel, "data_parallel_index", 0))
        instance = str(getattr(vllm_config, "instance_id", ""))
        self._file = RankFile(folder(), instance, "pool", self._engine)
        missing = [name for name in _NEEDED if not hasattr(_base.KVConnectorBase_V1, name)]
        reason = reason_to_be_off(engine_version())
        if reason:
            self.turn_off(reason)
        elif missing and not self._worker:
            self.turn_off(f"this release of vLLM gives connectors no {' and no '.join(missing)}")
        elif self._worker:
            sleeps = bool(getattr(vllm_config.model_config, "enable_sleep_mode", False))
            allocator.watch().belongs_to(instance, self._engine, str(parallel.rank), trusted=not sleeps)
            allocator.watch().start()

    def _write(self, sample: Mapping[str, Any]) -> None:
        self._file.write({**sample, "engine": self._engine})

    def turn_off(self, reason: str, error: Exception | None = None) -> None:
        """Do nothing from now on, and say so. What was told last grows old."""
        self.off = reason
        self.pool.give_up()
        _LOG.error("Kintsugi telemetry is off: %s. Serving goes on without it.", reason, exc_info=error)

    @property
    def requires_kv_delivery(self) -> bool:
        return False

    # The engine core's side.

    @_hook(_nothing)
    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self.pool.bind(kv_cache_manager)  # before any step: what it takes is no part of `hook_seconds`

    @_hook(_nothing)
    def on_new_request(self, request: Any) -> None:
        self.pool.began(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        return None

    @_hook(TelemetryMetadata)
    def build_connector_meta(self, scheduler_output: Any) -> TelemetryMetadata:
        drafts = scheduler_output.scheduled_spec_decode_tokens
        self.pool.scheduled(scheduler_output.num_scheduled_tokens, drafts)
        return TelemetryMetadata()

    @_hook(lambda: (False, None))
    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        self.pool.ended(request)
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return self.request_finished(request, block_ids)

    @_hook(_nothing)
    def get_kv_connector_stats(self) -> TelemetryStats | None:
        if self._worker:
            sample = allocator.watch().newest()
            if sample is None or sample["at"] == self._shipped:
                return None
            self._shipped = sample["at"]
            rank = allocator.watch().rank
            return TelemetryStats({"workers": {rank: {**sample, "worker": rank}}})
        seen = self.pool.step()
        return None if seen is None else TelemetryStats({"pool" if "blocks" in seen else "counts": seen})

    def shutdown(self) -> None:
        self.pool.stop()

    # A worker's side: nothing is moved.

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        if self._worker and not self._warm:
            self._warm = True
            if not self.off:
                self._mark_warm()

    @_hook(_nothing)
    def _mark_warm(self) -> None:
        allocator.watch().warmed_up()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        return None

    def wait_for_layer_load(self, layer_name: str) -> None:
        return None

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        return None

    def wait_for_save(self) -> None:
        return None

    # The API process.

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> TelemetryStats:
        return TelemetryStats(data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Mapping[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: Any,
    ) -> TelemetryMetrics | None:
        try:
            return TelemetryMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        except Exception:  # noqa: BLE001  of whatever kind: the engine serves without the series
            _LOG.exception("Kintsugi telemetry has no series on /metrics. Serving goes on without them.")
            return None


assert KintsugiTelemetry.__name__ == TELEMETRY_CONNECTOR

for _name in tuple(KintsugiTelemetry.__abstractmethods__):
    # A newer vLLM asks for more: what it does not get must not keep it from serving.
    setattr(KintsugiTelemetry, _name, lambda self, *args, **kwargs: None)
abc.update_abstractmethods(KintsugiTelemetry)
