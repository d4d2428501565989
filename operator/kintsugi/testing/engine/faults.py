"""Faults as values: what can go wrong with a simulated engine, each with its parameters.

On the wire (admin port, flags, environment) names and fields are camelCase; every fault also takes `afterSeconds`
(begins so long after it was injected) and `forSeconds` (ends by itself after that; absent = stays).
"""

import json
from dataclasses import dataclass
from typing import ClassVar

from kintsugi.testing.engine.faultfields import (
    Fault,
    FaultError,
    flag,
    integer,
    number,
    optional_integer,
    percent,
    read_mapping,
    read_text,
    text,
    texts,
)

__all__ = ["FAULTS", "Fault", "FaultError", "parse_fault", "parse_fault_argument"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation(Fault):
    """The allocator's fragmentation ramps in a straight line from where it is to `percent`."""

    name: ClassVar[str] = "fragmentation"
    primary: ClassVar[str] = "percent"
    percent: float = percent(60.0)
    over_seconds: float = number(0.0, least=0.0)
    rank: int | None = optional_integer(least=0)
    """Worker rank; None = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedBlocks(Fault):
    """KV blocks leak until `percent` of the pool belongs to no request."""

    name: ClassVar[str] = "orphanedBlocks"
    primary: ClassVar[str] = "percent"
    percent: float = percent(30.0)
    over_seconds: float = number(0.0, least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputDrop(Fault):
    """`percent` of the step rate is lost at equal work: a step takes 1 / (1 - percent/100) times as long."""

    name: ClassVar[str] = "throughputDrop"
    primary: ClassVar[str] = "percent"
    percent: float = percent(60.0, most=99.0)
    over_seconds: float = number(0.0, least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang(Fault):
    """No step any more. Requests are accepted and swallowed, gauges and counters freeze, `/health` stays 200."""

    name: ClassVar[str] = "hang"
    rank: int | None = optional_integer(least=0)
    """Engine rank (data parallel); None = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StarvedAdmission(Fault):
    """The scheduler admits nobody while `max_running` run, though slots and KV blocks are free."""

    name: ClassVar[str] = "starvedAdmission"
    primary: ClassVar[str] = "max_running"
    max_running: int = integer(0, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPressure(Fault):
    """`percent` of the KV pool is taken by nobody in particular: queues and preemptions follow."""

    name: ClassVar[str] = "kvPressure"
    primary: ClassVar[str] = "percent"
    percent: float = percent(90.0, most=99.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMiss(Fault):
    """No prompt is found in the prefix cache."""

    name: ClassVar[str] = "cacheMiss"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenAdapters(Fault):
    """LoRA adapters are no longer listed by `/v1/models`, as those loaded at run time after a restart."""

    name: ClassVar[str] = "forgottenAdapters"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleGauges(Fault):
    """running, waiting and KV usage stay at busy values although the engine is idle and answers.

    They freeze at the last busy values seen, or at these where there were none. With `cleared_by_canary` the first
    step after the freeze brings them back for good.
    """

    name: ClassVar[str] = "staleGauges"
    cleared_by_canary: bool = flag(True)
    running: int = integer(106, least=0)
    waiting: int = integer(15, least=0)
    kv_usage_percent: float = percent(90.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrowth(Fault):
    """Memory of the process, and so of its container, grows by `bytes_per_second`.

    The page shows it against a limit of 64 GiB, from 28 GiB on; at the limit it stays, and no kernel kills. With `allocate`
    the process really takes it (up to `most_bytes`).
    """

    name: ClassVar[str] = "memoryGrowth"
    primary: ClassVar[str] = "bytes_per_second"
    bytes_per_second: float = number(2.4e6, least=0.0)
    allocate: bool = flag(False)
    most_bytes: float = number(2**30, least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpErrors(Fault):
    """`percent` of the requests are answered with `status` and run nothing."""

    name: ClassVar[str] = "httpErrors"
    primary: ClassVar[str] = "percent"
    percent: float = percent(100.0)
    status: int = integer(500, least=500, most=599)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFrames(Fault):
    """`percent` of the requests fail after `after_tokens` tokens: HTTP 200 with an error frame in a stream, else 500."""

    name: ClassVar[str] = "errorFrames"
    primary: ClassVar[str] = "percent"
    percent: float = percent(100.0)
    after_tokens: int = integer(1, least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorruptedOutput(Fault):
    """`percent` of the requests are answered with other text than the same request gets from a well engine."""

    name: ClassVar[str] = "corruptedOutput"
    primary: ClassVar[str] = "percent"
    percent: float = percent(100.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NanMetrics(Fault):
    """Every sample whose name begins with one of `series` reads NaN; without any, every gauge of `vllm:` does."""

    name: ClassVar[str] = "nanMetrics"
    primary: ClassVar[str] = "series"
    series: tuple[str, ...] = texts()


@dataclass(frozen=True, slots=True, kw_only=True)
class VanishedSeries(Fault):
    """The families whose names begin with one of `series` are gone from the page."""

    name: ClassVar[str] = "vanishedSeries"
    primary: ClassVar[str] = "series"
    series: tuple[str, ...] = texts("kintsugi_")


@dataclass(frozen=True, slots=True, kw_only=True)
class OldNames(Fault):
    """The page of an older vLLM: `gpu_cache_usage_perc`, `time_per_output_token_seconds`, no engine label ..."""

    name: ClassVar[str] = "oldNames"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignPrefix(Fault):
    """Well-formed text in which every `vllm:` reads `prefix`."""

    name: ClassVar[str] = "foreignPrefix"
    primary: ClassVar[str] = "prefix"
    prefix: str = text("other:")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsError(Fault):
    """`/metrics` answers `status` while inference works."""

    name: ClassVar[str] = "metricsError"
    primary: ClassVar[str] = "status"
    status: int = integer(500, least=400, most=599)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsTimeout(Fault):
    """`/metrics` accepts and never answers while inference works."""

    name: ClassVar[str] = "metricsTimeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterReset(Fault):
    """Once: all counters start from zero, with a new process start time unless `same_start`."""

    name: ClassVar[str] = "counterReset"
    same_start: bool = flag(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStart(Fault):
    """For `seconds` from the start the port refuses connections; with `port_open` everything answers 503.

    An engine that already listens cannot take its port back: injected later it answers 503, too.
    """

    name: ClassVar[str] = "slowStart"
    primary: ClassVar[str] = "seconds"
    seconds: float = number(30.0, least=0.0)
    port_open: bool = flag(False)

    @property
    def lasts(self) -> float | None:
        return self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash(Fault):
    """The process ends at once with `exit_code`; every stream is cut (`afterSeconds` delays it)."""

    name: ClassVar[str] = "crash"
    primary: ClassVar[str] = "exit_code"
    exit_code: int = integer(0, least=0, most=255)


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentServer(Fault):
    """The API server hangs: TCP connects, HTTP never answers, on every path. The engine goes on stepping."""

    name: ClassVar[str] = "silentServer"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDead(Fault):
    """The engine process is gone and the API server stays: `/health` 503, `/metrics` 200, requests 500."""

    name: ClassVar[str] = "engineDead"


@dataclass(frozen=True, slots=True, kw_only=True)
class HangOnSigterm(Fault):
    """On SIGTERM with requests in flight nothing ends any more: streams stay silent, the process stays."""

    name: ClassVar[str] = "hangOnSigterm"


FAULTS: dict[str, type[Fault]] = {
    kind.name: kind
    for kind in (
        *(Fragmentation, OrphanedBlocks, ThroughputDrop, Hang, StarvedAdmission, KvPressure, CacheMiss),
        ForgottenAdapters,
        *(StaleGauges, MemoryGrowth, HttpErrors, ErrorFrames, CorruptedOutput, NanMetrics, VanishedSeries),
        *(OldNames, ForeignPrefix, MetricsError, MetricsTimeout, CounterReset, SlowStart, Crash),
        *(SilentServer, EngineDead, HangOnSigterm),
    )
}
"""Every fault by its name on the wire."""


def _kind(name: object) -> type[Fault]:
    kind = FAULTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise FaultError(f"field 'fault' must be one of {', '.join(sorted(FAULTS))}, not {name!r}")
    return kind


def parse_fault(document: object) -> Fault:
    """The fault that a JSON object such as `{"fault": "fragmentation", "percent": 60}` describes.

    Raises FaultError, which names the field at fault.
    """
    if not isinstance(document, dict):
        raise FaultError(f"a fault is a JSON object with the field 'fault', not {document!r}")
    fields = {key: value for key, value in document.items() if key != "fault"}
    return read_mapping(_kind(document.get("fault")), fields)


def parse_fault_argument(argument: str) -> Fault:
    """The fault that `hang`, `slowStart=30`, `fragmentation:percent=60,overSeconds=20` or a JSON object means.

    Raises FaultError, which names the field at fault.
    """
    if argument.lstrip().startswith("{"):
        try:
            document = json.loads(argument)
        except json.JSONDecodeError as error:
            raise FaultError(f"{argument!r} is not JSON: {error}") from error
        return parse_fault(document)
    return read_text(argument, _kind)
