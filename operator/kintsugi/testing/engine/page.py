"""Renders the `/metrics` page of a simulated engine: vLLM's names, labels and bucket edges, quickly.

All text that never changes is built once into one format string; a page then costs one `%` operation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from kintsugi.testing.engine.counters import RankCounters
from kintsugi.testing.engine.families import (
    CONNECTOR,
    HISTOGRAMS,
    KV_BLOCK_HISTOGRAMS,
    SCALARS,
    HistogramFamily,
)
from kintsugi.testing.engine.front import HttpCounters, ProcessFigures, RankTelemetry
from kintsugi.testing.engine.httppage import http_section
from kintsugi_engine import contract


@dataclass(frozen=True, slots=True)
class PageSettings:
    """What decides which series a page has and how they are labelled."""

    model_name: str
    ranks: int = 1
    log_stats: bool = True
    """False = `--disable-log-stats`: no `vllm:` family at all."""
    kv_cache_metrics: bool = False
    telemetry: bool = True
    """The `kintsugi_` series, which the engine-side telemetry exports."""
    workers: int = 1
    """Worker ranks (tensor parallel) of each engine rank; each has its own fragmentation."""
    cache_config: tuple[tuple[str, str], ...] = ()
    """Labels of `vllm:cache_config_info`."""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%")


def _edge(value: float) -> str:
    return repr(value)


class MetricsPage:
    """The page of one engine process. `render` is cheap: a fraction of a millisecond per rank."""

    def __init__(self, settings: PageSettings, counters: Sequence[RankCounters], created: float) -> None:
        if len(counters) != settings.ranks:
            raise ValueError(f"{settings.ranks} ranks need as many counters, not {len(counters)}")
        self._settings = settings
        self._counters = counters
        self._created = repr(created)
        self._model = _escape(settings.model_name)
        self._scalars = SCALARS + CONNECTOR if settings.telemetry else SCALARS
        self._histograms: tuple[HistogramFamily, ...] = HISTOGRAMS
        if settings.kv_cache_metrics:
            self._histograms += KV_BLOCK_HISTOGRAMS
        parts: list[str] = [_process_template()]
        if settings.telemetry:
            parts.append(self._telemetry_template())
        if settings.log_stats:
            parts.append(self._engine_template())
        self._template = "".join(parts)

    def render(self, process: ProcessFigures, http: HttpCounters, telemetry: Sequence[RankTelemetry]) -> str:
        """The page as text, in the exposition format 0.0.4."""
        values = _process_values(process)
        if self._settings.telemetry:
            values += self._telemetry_values(telemetry)
            values += [process.container_anonymous, process.container_shared, process.container_limit]
        if self._settings.log_stats:
            values += self._engine_values()
        return self._template % tuple(values) + http_section(http, self._created)

    # -- engine families -------------------------------------------------------------------------------------

    def _labels(self, rank: int, extra: str = "") -> str:
        """Labels in alphabetical order, as vLLM writes them; `extra` is one `name="value"` pair or empty."""
        pairs = [f'engine="{rank}"', f'model_name="{self._model}"']
        if extra:
            pairs.append(extra)
        return "{" + ",".join(sorted(pairs)) + "}"

    def _head(self, name: str, text: str, kind: str) -> str:
        return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"

    def _created_block(self, name: str, text: str, labels: Sequence[str]) -> str:
        lines = "".join(f"{name}{one} {self._created}\n" for one in labels)
        return self._head(name, text, "gauge") + lines

    def _engine_template(self) -> str:
        ranks = range(self._settings.ranks)
        parts: list[str] = []
        for family in self._scalars:
            parts.append(self._head(family.name, family.help, family.kind))
            labels: list[str] = []
            for rank in ranks if family.per_engine else (0,):
                for child in family.children:
                    extra = f'{family.label}="{child}"' if child else ""
                    one = self._labels(rank, extra)
                    labels.append(one if family.per_engine else one.replace('engine="0",', ""))
            parts += [f"{family.name}{one} %s\n" for one in labels]
            if family.kind == "counter":
                name = family.name.removesuffix("_total") + "_created"
                parts.append(self._created_block(name, family.help, labels))
        for histogram in self._histograms:
            parts.append(self._head(histogram.name, histogram.help, "histogram"))
            for rank in ranks:
                edges = [_edge(e) for e in histogram.histogram(self._counters[rank]).edges]
                for edge in (*edges, "+Inf"):
                    bucket = f'le="{edge}"'
                    parts.append(f"{histogram.name}_bucket{self._labels(rank, bucket)} %d.0\n")
                parts.append(f"{histogram.name}_count{self._labels(rank)} %d.0\n")
                parts.append(f"{histogram.name}_sum{self._labels(rank)} %s\n")
            name = f"{histogram.name}_created"
            parts.append(self._created_block(name, histogram.help, [self._labels(rank) for rank in ranks]))
        name = "vllm:cache_config_info"
        parts.append(self._head(name, "Settings of the KV cache.", "gauge"))
        for rank in ranks:
            config = [f'{key}="{_escape(value)}"' for key, value in self._settings.cache_config]
            parts.append(name + "{" + ",".join(sorted([*config, f'engine="{rank}"'])) + "} 1.0\n")
        return "".join(parts)

    def _engine_values(self) -> list[object]:
        values: list[object] = []
        for family in self._scalars:
            if family.per_engine:
                for counters in self._counters:
                    values += map(float, family.values(counters))
            else:
                columns = zip(*(family.values(c) for c in self._counters), strict=True)
                values += [float(sum(column)) for column in columns]
        for histogram in self._histograms:
            for counters in self._counters:
                one = histogram.histogram(counters)
                values += accumulate(one.buckets)
                values.append(one.count)
                values.append(float(one.total))
        return values

    # -- telemetry -------------------------------------------------------------------------------------------

    def _telemetry_template(self) -> str:
        ranks = range(self._settings.ranks)
        workers = self._settings.workers
        name = contract.GPU_FRAGMENTATION
        parts = [self._head(name, "Share of reusable GPU memory that lies in pieces, 0 to 1.", "gauge")]
        for rank in ranks:
            for worker in range(rank * workers, (rank + 1) * workers):
                label = f'rank="{worker}"'
                parts.append(f"{name}{self._labels(rank, label)} %s\n")
        for name, text in (
            (contract.KV_BLOCK_WASTE, "Share of held token slots that are not written, 0 to 1."),
            (contract.KV_ORPHANED_BLOCKS, "KV blocks that no live request explains."),
            (contract.KV_ORPHANED_BLOCKS_RATIO, "KV blocks that no live request explains, of all blocks."),
            (contract.SAMPLE_AGE, "Seconds since this sample was taken."),
        ):
            parts.append(self._head(name, text, "gauge"))
            parts += [f"{name}{self._labels(rank)} %s\n" for rank in ranks]
        for name, text in (
            (contract.CONTAINER_MEMORY_ANONYMOUS, "Anonymous memory of this container, bytes."),
            (contract.CONTAINER_MEMORY_SHARED, "Shared memory charged to this container, bytes."),
            (contract.CONTAINER_MEMORY_LIMIT, "Memory limit of this container, bytes."),
        ):
            parts.append(self._head(name, text, "gauge") + f'{name}{{source="cgroup"}} %s\n')
        return "".join(parts)

    def _telemetry_values(self, telemetry: Sequence[RankTelemetry]) -> list[object]:
        values: list[object] = []
        for one in telemetry:
            values += [float(one.fragmentation[worker]) for worker in sorted(one.fragmentation)]
        values += [float(one.block_waste) for one in telemetry]
        values += [float(one.orphaned_blocks) for one in telemetry]
        values += [float(one.orphaned_ratio) for one in telemetry]
        values += [float(one.age) for one in telemetry]
        return values


def _process_template() -> str:
    def block(name: str, kind: str, text: str, samples: Sequence[str]) -> str:
        return f"# HELP {name} {text}\n# TYPE {name} {kind}\n" + "".join(f"{name}{s}\n" for s in samples)

    by_generation = [f'{{generation="{g}"}} %d.0' for g in range(3)]
    version = '{implementation="CPython",major="3",minor="11",patchlevel="7",version="3.11.7"} 1.0'
    return (
        block("python_gc_objects_collected_total", "counter", "Objects collected.", by_generation)
        + block("python_gc_objects_uncollectable_total", "counter", "Objects not collected.", by_generation)
        + block("python_gc_collections_total", "counter", "Collections.", by_generation)
        + block("python_info", "gauge", "Python version.", [version])
        + block("process_virtual_memory_bytes", "gauge", "Virtual memory.", [" %s"])
        + block("process_resident_memory_bytes", "gauge", "Resident memory.", [" %s"])
        + block("process_start_time_seconds", "gauge", "Start time since the epoch.", [" %s"])
        + block("process_cpu_seconds_total", "counter", "CPU time.", [" %s"])
        + block("process_open_fds", "gauge", "Open files.", [" %d.0"])
        + block("process_max_fds", "gauge", "Most open files.", [" 20000.0"])
    )


def _process_values(process: ProcessFigures) -> list[object]:
    first, second, third = process.gc
    return [
        *(first * 10, second * 16, third * 56, 0, 0, 0, first, second, third),
        *(float(process.virtual_bytes), float(process.resident_bytes), float(process.started_at)),
        *(float(process.cpu_seconds), process.open_fds),
    ]
