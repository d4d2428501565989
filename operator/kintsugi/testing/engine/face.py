"""What a simulated engine shows of itself: telemetry samples, gauges that lie, memory, the page."""

from collections.abc import Sequence as Ordered
from typing import Final

from kintsugi.testing.engine.disguise import disguise
from kintsugi.testing.engine.faults import Fragmentation, MemoryGrowth, StaleGauges
from kintsugi.testing.engine.faultset import FaultSet
from kintsugi.testing.engine.front import HttpCounters, ProcessFigures, RankTelemetry
from kintsugi.testing.engine.model import EngineModel
from kintsugi.testing.engine.page import MetricsPage, PageSettings

_TELEMETRY_SECONDS: Final = 0.25
"""The in-engine telemetry samples at a step, at most this often."""
_RESIDENT: Final = 6.5e8
"""Resident bytes of a real API process just after its start (measured on vLLM 0.32)."""
_GIB: Final = 2.0**30
CONTAINER_LIMIT: Final = 64 * _GIB
"""Memory limit of the container that the engine plays, bytes. Assumed, as are the next two: a server of a large model."""
CONTAINER_ANONYMOUS: Final = 24 * _GIB
"""Anonymous memory of an engine that is well, bytes."""
CONTAINER_SHARED: Final = 4 * _GIB
"""Shared memory charged to its container, bytes."""
_CPU_SHARE: Final = 0.02
"""Assumed CPU seconds per second of the API process."""


class Face:
    """The outside of one engine process, read by `page`."""

    def __init__(
        self,
        settings: PageSettings,
        models: Ordered[EngineModel],
        faults: FaultSet,
        *,
        fragmentation: float,
        now: float,
        epoch: float,
    ) -> None:
        self.http = HttpCounters()
        self.process = ProcessFigures(started_at=epoch)
        self._settings = settings
        self._models = models
        self._faults = faults
        self._epoch = epoch
        self._zero = now
        self._calm = fragmentation
        self._started = now
        workers = settings.workers
        self.telemetry = [
            RankTelemetry({w: fragmentation for w in range(i * workers, (i + 1) * workers)}, sampled_at=now)
            for i in range(settings.ranks)
        ]
        self._ramp_from = self._levels()
        self._stale: dict[int, tuple[tuple[int, int, float], int] | None] = {}
        self._page = MetricsPage(settings, [m.counters for m in models], epoch)

    def restart_counters(self, now: float, *, same_start: bool) -> None:
        """Everything counted starts from zero, as after a restart of the process."""
        for model in self._models:
            model.counters.reset()
        self.http = HttpCounters()
        if not same_start:
            self._started = now
            self.process.started_at = self._epoch + now - self._zero
            counters = [m.counters for m in self._models]
            self._page = MetricsPage(self._settings, counters, self.process.started_at)

    def mark_ramp(self) -> None:
        """A new fragmentation ramp begins at the level of the last sample."""
        self._ramp_from = self._levels()

    def compact(self) -> None:
        """The allocator's cache was emptied: fragmentation is back at its calm level."""
        for one in self.telemetry:
            one.fragmentation = dict.fromkeys(one.fragmentation, self._calm)
        self.mark_ramp()

    def page(self, now: float, orphaned_blocks: int) -> str:
        """The `/metrics` text at `now`."""
        self._sample_all(now, orphaned_blocks)
        self._measure_process(now)
        lies = [(m.counters, lie) for i, m in enumerate(self._models) if (lie := self._lie(i, m, now))]
        true = [(c, (c.running, c.waiting, c.kv_usage)) for c, _ in lies]
        try:
            for counters, gauges in lies:
                counters.running, counters.waiting, counters.kv_usage = gauges
            text = self._page.render(self.process, self.http, self.telemetry)
        finally:
            for counters, gauges in true:
                counters.running, counters.waiting, counters.kv_usage = gauges
        return disguise(text, self._faults, now)

    # -- telemetry -------------------------------------------------------------------------------------------

    def record(self, now: float, epoch: float, orphaned_blocks: int) -> list[dict[str, object]]:
        """What each rank measured last: the allocators of its workers, then the pool; `epoch`: seconds since 1970 at `now`."""
        self._sample_all(now, orphaned_blocks)
        return [
            head | {"engine": str(index), "at": epoch - one.age, "age": round(one.age, 3)}
            for index, one in enumerate(self.telemetry)
            for head in (
                *(
                    {"kind": "allocator", "rank": f"{index}-{w}", "worker": str(w), "fragmentation": level}
                    for w, level in sorted(one.fragmentation.items())
                ),
                {
                    "kind": "pool",
                    "rank": str(index),
                    "waste": one.block_waste,
                    "orphaned": one.orphaned_blocks,
                    "steps": one.steps,
                    "requests": one.requests,
                },
            )
        ]

    def _sample_all(self, now: float, orphaned_blocks: int) -> None:
        for index, model in enumerate(self._models):
            self._sample(self.telemetry[index], model, now, orphaned_blocks)

    def _levels(self) -> dict[int, float]:
        return {worker: level for one in self.telemetry for worker, level in one.fragmentation.items()}

    def _sample(self, telemetry: RankTelemetry, model: EngineModel, now: float, orphaned_blocks: int) -> None:
        step = model.last_step_at
        if step - telemetry.sampled_at >= _TELEMETRY_SECONDS:
            telemetry.sampled_at = step
            telemetry.fragmentation = {w: self._level(w, now) for w in telemetry.fragmentation}
            telemetry.block_waste = model.block_waste
            telemetry.steps, telemetry.requests = model.counters.steps, model.in_flight
            telemetry.orphaned_blocks = orphaned_blocks
            telemetry.orphaned_ratio = orphaned_blocks / model.shape.num_gpu_blocks
        telemetry.age = max(0.0, now - telemetry.sampled_at)

    def _level(self, worker: int, now: float) -> float:
        injected = self._faults.injected(Fragmentation, now)
        if injected is None or not isinstance(injected.fault, Fragmentation):
            return self._calm
        fault = injected.fault
        if fault.rank not in (None, worker):
            return self._calm
        begin = self._ramp_from[worker]
        return begin + (fault.percent / 100.0 - begin) * injected.share(now, fault.over_seconds)

    # -- gauges that lie -------------------------------------------------------------------------------------

    def _lie(self, index: int, model: EngineModel, now: float) -> tuple[int, int, float] | None:
        """The stale gauges that this rank shows in place of its true ones; None = it tells the truth."""
        fault = self._faults.get(StaleGauges, now)
        if fault is None:
            self._stale.pop(index, None)
            return None
        steps = model.counters.busy_steps
        if index not in self._stale:
            if model.in_flight:
                return None  # busy: the truth is shown; it freezes when the rank has become idle
            gauges = model.last_busy or (fault.running, fault.waiting, fault.kv_usage_percent / 100.0)
            self._stale[index] = (gauges, steps)
        frozen = self._stale[index]
        if frozen and fault.cleared_by_canary and steps > frozen[1]:
            frozen = self._stale[index] = None
        return frozen[0] if frozen else None

    # -- process ---------------------------------------------------------------------------------------------

    def _measure_process(self, now: float) -> None:
        growth = self._faults.injected(MemoryGrowth, now)
        grown = 0.0
        if growth and isinstance(growth.fault, MemoryGrowth):
            grown = growth.fault.bytes_per_second * (now - growth.begins)
        self.process.resident_bytes = _RESIDENT + grown
        self.process.virtual_bytes = 2.2e9 + grown
        room = CONTAINER_LIMIT - CONTAINER_SHARED
        self.process.container_anonymous = min(room, CONTAINER_ANONYMOUS + grown)
        self.process.container_shared, self.process.container_limit = CONTAINER_SHARED, CONTAINER_LIMIT
        self.process.cpu_seconds = round(14.0 + _CPU_SHARE * (now - self._started), 2)
