"""The series in the API process: gauges on the engine's own `/metrics`, from what the ranks shipped or wrote to files.

Samples come two ways: with the engine's steps (from all nodes), and by the per-rank files (from this container, while
the engine idles or hangs, too). The newer one counts. What is not measured has no series.
"""

import logging
import math
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from kintsugi_engine import clock, contract
from kintsugi_engine.telemetry import rankfile
from kintsugi_engine.telemetry.cgroup import container_memory

_LOG: Final = logging.getLogger("vllm.kintsugi")

PERIOD: Final = 1.0
"""Seconds between two refreshes of ages and looks at the files."""

Labels = Sequence[object]


class Metric(Protocol):
    """What is used of a gauge or counter of prometheus_client, or of what the engine puts in its place."""

    def labels(self, *values: object) -> Any: ...


class MakeMetric(Protocol):
    """A gauge or counter class."""

    def __call__(self, name: str, documentation: str, labelnames: Sequence[str], **more: Any) -> Metric: ...


class Series:
    """One gauge, whose children appear when a value is set and go when there is none."""

    def __init__(
        self, make: MakeMetric, name: str, text: str, labels: Sequence[str], mode: str = "mostrecent"
    ) -> None:
        self._gauge = make(name=name, documentation=text, labelnames=list(labels), multiprocess_mode=mode)
        self._there: set[tuple[object, ...]] = set()

    def put(self, labels: Labels, value: float | None) -> None:
        """Set one series; None takes it off the page (NaN where the page is made of several processes' files)."""
        key = tuple(labels)
        if value is not None:
            self._there.add(key)
            self._gauge.labels(*key).set(value)
        elif key in self._there:
            self._there.discard(key)
            self._gauge.labels(*key).set(math.nan)
            remove = getattr(self._gauge, "remove", None)
            if remove is not None and "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
                remove(*map(str, key))


class Newest(NamedTuple):
    """Of the newest sample of one rank: its place in their order, and when it was taken by this process's own clock
    (monotonic seconds both, of two processes)."""

    order: float
    taken: float


class Exporter:
    """All series of one API process. `engines`: label values by engine index, as vLLM's own series carry them."""

    def __init__(
        self,
        gauge: MakeMetric,
        counter: MakeMetric,
        names: Sequence[str],
        engines: Mapping[int, Labels],
        instance: str,
    ) -> None:
        self._engines = engines
        self._instance = instance
        self._newest: dict[tuple[int, str], Newest] = {}
        self._lock = threading.Lock()
        ranked = (*names, "rank")
        self._age = Series(
            gauge, contract.SAMPLE_AGE, "Seconds since this sample was taken.", ranked, "livemin"
        )
        self._blocks = Series(
            gauge,
            contract.KV_BLOCKS,
            "KV blocks by state: active (held), cached_free (kept for reuse, free to take), empty_free.",
            (*names, "state"),
        )
        self._waste = Series(
            gauge, contract.KV_BLOCK_WASTE, "Share of held token slots that are not written, 0 to 1.", ranked
        )
        self._group_waste = Series(
            gauge, contract.KV_GROUP_WASTE, "The same, of one KV cache group.", (*ranked, "group", "kind")
        )
        self._orphans = Series(
            gauge, contract.KV_ORPHANED_BLOCKS, "KV blocks that no live request explains.", ranked
        )
        self._orphan_ratio = Series(
            gauge,
            contract.KV_ORPHANED_BLOCKS_RATIO,
            "KV blocks that no live request explains, of all.",
            ranked,
        )
        self._preempted = Series(
            gauge, contract.PREEMPTED_REQUESTS, "Requests preempted and not resumed yet.", names
        )
        self._fragmentation = Series(
            gauge,
            contract.GPU_FRAGMENTATION,
            "Share of the allocator's reusable memory that is split into pieces, 0 to 1.",
            ranked,
        )
        self._bytes = Series(
            gauge, contract.GPU_MEMORY, "Bytes of the CUDA allocator by kind.", (*ranked, "kind")
        )
        self._container = {
            name: Series(gauge, metric, text, ("source",))
            for name, metric, text in (
                (
                    "anonymous",
                    contract.CONTAINER_MEMORY_ANONYMOUS,
                    "Anonymous memory of this container, bytes.",
                ),
                (
                    "shared",
                    contract.CONTAINER_MEMORY_SHARED,
                    "Shared memory charged to this container, bytes.",
                ),
                ("limit", contract.CONTAINER_MEMORY_LIMIT, "Memory limit of this container, bytes."),
            )
        }
        self._info = Series(
            gauge,
            contract.TELEMETRY_INFO,
            "Whether this engine is measured, and why not.",
            ("state", "reason", "engine_version"),
        )
        self._totals = {
            "hookSeconds": counter(
                contract.HOOK_SECONDS, "Seconds in the telemetry's hooks.", labelnames=list(names)
            ),
            "stepSeconds": counter(
                contract.STEP_SECONDS, "Seconds of steps with requests.", labelnames=list(names)
            ),
        }
        self._prefill = Series(
            gauge,
            contract.PREFILL_TOKENS,
            "Prompt tokens computed so far, in steps that also decoded (mixed) and in others (alone).",
            (*names, "step"),
            "max",
        )
        self._counted: dict[tuple[int, str], float] = {}

    def say(self, state: str, reason: str, version: str) -> None:
        """Show whether the engine is measured."""
        self._info.put((state, reason, version), 1)

    def take(self, engine: int, sample: Mapping[str, Any]) -> None:
        """Show one sample of one rank of engine `engine`, unless a newer one is shown already."""
        labels = self._engines.get(engine)
        if labels is None:
            return
        with self._lock:
            if "worker" in sample and self._newer(engine, labels, str(sample["worker"]), sample):
                self._take_worker((*labels, str(sample["worker"])), sample)
            if "blocks" in sample and self._newer(engine, labels, contract.POOL_RANK, sample):
                self._take_pool(engine, labels, sample)
            if "prefill" in sample and self._newer(engine, labels, contract.STEPS_RANK, sample):
                for step, tokens in sample["prefill"].items():
                    self._prefill.put((*labels, step), tokens)

    def _newer(self, engine: int, labels: Labels, rank: str, sample: Mapping[str, Any]) -> bool:
        """Whether this is the newest sample of `rank`, which its age then says.

        Samples of one rank are put in order by the monotonic clock of the process that took them, and age by that of this
        one: a machine's clock that is set back keeps none of them away, and makes none of them young.
        """
        known = self._newest.get((engine, rank))
        if known is not None and sample["mono"] <= known.order:
            return False
        age = max(0.0, clock.wall() - sample["at"])
        self._newest[engine, rank] = Newest(sample["mono"], clock.mono() - age)
        self._age.put((*labels, rank), age)
        return True

    def _take_worker(self, rank: Labels, sample: Mapping[str, Any]) -> None:
        self._fragmentation.put(rank, sample["fragmentation"])
        for kind, value in sample["bytes"].items():
            self._bytes.put((*rank, kind), value)

    def _take_pool(self, engine: int, labels: Labels, sample: Mapping[str, Any]) -> None:
        pool = (*labels, contract.POOL_RANK)
        for state, value in sample["blocks"].items():
            self._blocks.put((*labels, state), value)
        self._waste.put(pool, sample["waste"])
        for name, group in sample["groups"].items():
            self._group_waste.put((*pool, name, group["kind"]), group["waste"])
        self._orphans.put(pool, sample["orphaned"])
        total = sum(sample["blocks"].values())
        self._orphan_ratio.put(pool, sample["orphaned"] / total if total else None)
        self._preempted.put(labels, sample["preempted"])
        for name, counter in self._totals.items():
            grown = sample[name] - self._counted.get((engine, name), 0.0)
            self._counted[engine, name] = sample[name]
            if grown > 0:
                counter.labels(*labels).inc(grown)

    def refresh(self, where: Path) -> None:
        """Take what the files of this container tell, and let the ages and the container's memory be of now."""
        strange: list[Exception] = []
        for sample in rankfile.read(where, self._instance):
            name = str(sample.get("engine", ""))
            try:
                self.take(int(name) if name.isdecimal() else -1, sample)
            except (
                KeyError,
                TypeError,
                ValueError,
            ) as error:  # written by something else: ages go on all the same
                strange.append(error)
        now = clock.mono()
        with self._lock:
            for (engine, rank), newest in self._newest.items():
                self._age.put((*self._engines[engine], rank), max(0.0, now - newest.taken))
        memory = container_memory()
        for name, series in self._container.items():
            series.put(("cgroup",), getattr(memory, name))
        if strange:
            raise strange[0]

    def start(self) -> None:
        """Refresh every `PERIOD` from a thread of its own, until the process ends."""
        where = rankfile.folder()
        rankfile.remove_stale(where, self._instance, clock.wall())
        threading.Thread(target=self._run, args=(where,), name="kintsugi-exporter", daemon=True).start()

    def _run(self, where: Path) -> None:
        waiting = threading.Event()
        complained = False
        while True:
            try:
                self.refresh(where)
            except (OSError, KeyError, TypeError, ValueError) as error:
                if not complained:
                    _LOG.error("Kintsugi telemetry cannot be refreshed: %r", error)
                complained = True
            waiting.wait(PERIOD)
