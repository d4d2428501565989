"""What a user writes about healing: triggers, budget, storm, drain, ladder, probation, pause, rehearsal."""

from typing import Annotated, Final, Literal, Protocol, runtime_checkable

from pydantic import Field

from kintsugi.api.model import Atomic, Model, UniqueItems

Mode = Literal["Observe", "Recommend", "Act"]
FragmentationSource = Literal["Allocator", "OrphanedBlocks", "BlockWaste"]
Rung = Literal["Compact", "Recreate", "RecreateElsewhere"]
NodeActions = Literal["None", "Cordon", "Taint"]
Trigger = Literal[
    "fragmentation",
    "throughput",
    "cacheHitRate",
    "preemptions",
    "gpuUtilization",
    "stall",
    "memoryGrowth",
    "errors",
    "corruptedOutput",
    "deviceHealth",
    "dead",
    "starvedAdmission",
    "rankDivergence",
]

ADVICE_ONLY: Final[frozenset[str]] = frozenset({"cacheHitRate", "preemptions", "gpuUtilization"})
"""Triggers that a new instance cannot help, or makes worse: they observe unless told to recommend."""

DEFAULT_STALL_FOR_SECONDS: Final = 60
"""No engine step for this long withdraws (detection paper §1, chunked prefill)."""
DEFAULT_STALL_REMOVE_AFTER_SECONDS: Final = 300
"""No engine step for this long removes (detection paper §1, chunked prefill)."""


class FragmentationTrigger(Model):
    """GPU or KV memory that is free but in pieces."""

    mode: Mode | None = None
    """Absent: `healing.mode`."""
    threshold_percent: Annotated[int, Field(ge=6, le=100)] = 25
    """Fragmentation above this counts; it must fall 5 points below to clear. Absent: 25."""
    for_seconds: Annotated[int, Field(ge=60, le=86_400)] = 600
    """How long it must last. Absent: 600."""
    sources: Annotated[tuple[FragmentationSource, ...], Field(min_length=1, max_length=3), UniqueItems] = (
        "Allocator",
        "OrphanedBlocks",
    )
    """What is measured. `BlockWaste` is a property of the traffic, which a restart brings straight back. Absent:
    `Allocator` and `OrphanedBlocks`."""


class ThroughputTrigger(Model):
    """Engine steps that take longer than their content explains."""

    mode: Mode | None = None
    """Absent: `healing.mode`."""
    drop_percent: Annotated[int, Field(ge=10, le=95)] = 40
    """Share of the step rate lost at equal work, against the instance's own past and its siblings. Absent: 40."""
    for_seconds: Annotated[int, Field(ge=60, le=86_400)] = 600
    """How long it must last. Absent: 600."""


class CacheHitRateTrigger(Model):
    """Too few prompt tokens found in the prefix cache. A new instance starts with an empty cache: never `Act`."""

    mode: Mode | None = None
    """`Observe` or `Recommend`. Absent: `Observe`."""
    min_percent: Annotated[int, Field(ge=0, le=100)] = 85
    """Hits below this are reported. Absent: 85."""


class PreemptionsTrigger(Model):
    """Requests pushed out of the KV cache: too much load for the capacity, which no restart cures: never `Act`."""

    mode: Mode | None = None
    """`Observe` or `Recommend`. Absent: `Observe`."""
    max_per_second: Annotated[float, Field(ge=0, le=100_000)] = 10
    """Preemptions per second above this are reported. Absent: 10."""


class GpuUtilizationTrigger(Model):
    """GPU use outside a band. It says nothing about health: `Observe`, always."""

    mode: Mode | None = None
    """Only `Observe`. Absent: `Observe`."""
    min_percent: Annotated[int, Field(ge=0, le=100)] = 70
    """Use below this is reported as spare capacity. Absent: 70."""
    max_percent: Annotated[int, Field(ge=0, le=100)] = 90
    """Use above this is reported as pressure. Absent: 90."""


class StallTrigger(Model):
    """An engine that has work and does no step."""

    mode: Mode | None = None
    """Absent: `healing.mode`."""
    for_seconds: Annotated[int, Field(ge=30, le=86_400)] | None = None
    """Seconds without a step until the instance is withdrawn from traffic. Absent: 60, or from the longest legal
    prefill where prefill is not chunked."""
    remove_after_seconds: Annotated[int, Field(ge=60, le=86_400)] | None = None
    """Seconds without a step until the instance is removed. Absent: 300, or from the longest legal prefill where
    prefill is not chunked."""


class MemoryGrowthTrigger(Model):
    """Host memory that grows towards the container's limit."""

    mode: Mode | None = None
    """Absent: `healing.mode`."""
    horizon_seconds: Annotated[int, Field(ge=600, le=604_800)] = 7200
    """A forecast to reach the limit within this time counts. Absent: 7200."""


class ErrorsTrigger(Model):
    """Requests that fail inside the engine while siblings answer."""

    mode: Mode | None = None
    """Absent: `healing.mode`."""
    max_percent: Annotated[int, Field(ge=1, le=99)] = 20
    """Share of failed requests above this counts, with 99 % confidence. Absent: 20."""


class DeviceHealthTrigger(Model):
    """A GPU that its device plugin calls unhealthy."""

    mode: Mode | None = None
    """Absent: `healing.mode`."""
    for_seconds: Annotated[int, Field(ge=10, le=86_400)] = 60
    """How long it must last. Absent: 60."""


class PlainTrigger(Model):
    """A trigger without settings of its own."""

    mode: Mode | None = None
    """Absent: `healing.mode`."""


class Triggers(Model):
    """What is watched for."""

    fragmentation: FragmentationTrigger = FragmentationTrigger()
    """Memory that is free but in pieces."""
    throughput: ThroughputTrigger = ThroughputTrigger()
    """Engine steps that became slow."""
    cache_hit_rate: CacheHitRateTrigger = CacheHitRateTrigger()
    """Few prefix cache hits; advice only."""
    preemptions: PreemptionsTrigger = PreemptionsTrigger()
    """Requests pushed out of the KV cache; advice only."""
    gpu_utilization: GpuUtilizationTrigger = GpuUtilizationTrigger()
    """GPU use outside a band; observed only."""
    stall: StallTrigger = StallTrigger()
    """An engine that has work and does no step."""
    memory_growth: MemoryGrowthTrigger = MemoryGrowthTrigger()
    """Host memory that grows towards the limit."""
    errors: ErrorsTrigger = ErrorsTrigger()
    """Requests that fail inside the engine."""
    corrupted_output: PlainTrigger = PlainTrigger()
    """Wrong answers to known one-token probes, where siblings answer right."""
    device_health: DeviceHealthTrigger = DeviceHealthTrigger()
    """A GPU that its device plugin calls unhealthy."""
    dead: PlainTrigger = PlainTrigger()
    """A container that ended, or refuses connections after having been ready."""
    starved_admission: PlainTrigger = PlainTrigger()
    """A queue that stands while KV memory and slots are free."""
    rank_divergence: PlainTrigger = PlainTrigger()
    """One data-parallel rank that leaves its sisters."""


class Budget(Model):
    """How much may be replaced, rollouts and scale-downs included."""

    max_in_flight_per_pool: Annotated[int, Field(ge=1, le=100)] | None = None
    """Replacements of a pool at the same time. Absent: 1; a tenth of the pool where it has more than 8."""
    min_healthy_percent: Annotated[int, Field(ge=0, le=100)] = 50
    """Share of a pool that must serve without the victim; at least one instance always must. Absent: 50."""
    max_per_pool_per_30_minutes: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Replacements of a pool in any 30 minutes. Absent: 2; an eighth of the pool where it has more than 8."""
    max_per_hour: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Replacements of this operator in any hour. Absent: 5 % of its instances, at least 4."""


class Storm(Model):
    """When many instances fall sick at once the cause lies elsewhere, and removing them makes it worse."""

    min_instances: Annotated[int, Field(ge=2, le=1000)] = 2
    """Newly sick instances from which on it may be a storm. Absent: 2."""
    percent: Annotated[int, Field(ge=1, le=100)] = 30
    """Share of a pool, or of all instances, that must be exceeded too. Absent: 30."""
    window_seconds: Annotated[int, Field(ge=30, le=86_400)] = 300
    """Time within which they fell sick. Absent: 300."""
    cooldown_seconds: Annotated[int, Field(ge=60, le=86_400)] = 600
    """Time without a new one after which a storm ends, if all are well. Absent: 600."""
    trial_after_seconds: Annotated[int, Field(ge=60, le=86_400)] = 1800
    """Time after which one trial removal is made, if some are still sick. Absent: 1800."""
    hold_seconds: Annotated[int, Field(ge=30, le=3600)] = 240
    """Least time between withdrawal and removal, in which a storm may still show. Absent: 240."""


class Drain(Model):
    """How long a withdrawn instance may finish its streams."""

    timeout_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    """Longest wait for running requests. Absent: 300."""


class Rehearsal(Model):
    """A faster clock for drills. Never set it in production: it shortens the evidence that convinces."""

    speed_up: Annotated[float, Field(ge=1, le=120)]
    """Factor by which every duration of the judge is divided, 1 to 120. Shown in status."""


@runtime_checkable
class _HasMode(Protocol):
    @property
    def mode(self) -> Mode | None: ...


class HealingSpec(Model):
    """How sick instances are found and replaced."""

    mode: Mode = "Act"
    """`Observe` only reports, `Recommend` waits for a person's approval, `Act` replaces. A trigger may say
    otherwise for itself. Absent: `Act`."""
    triggers: Triggers = Triggers()
    """What is watched for."""
    budget: Budget = Budget()
    """How much may be replaced."""
    storm: Storm = Storm()
    """When to stop replacing because too many fall sick at once."""
    drain: Drain = Drain()
    """How long a withdrawn instance may finish its streams."""
    ladder: Annotated[tuple[Rung, ...], Atomic, Field(min_length=1, max_length=3)] = (
        "Compact",
        "Recreate",
        "RecreateElsewhere",
    )
    """Remedies in the order in which they are tried. `Compact` only serves allocator fragmentation. Absent: all
    three."""
    node_actions: NodeActions = "None"
    """What is done to a node from which an instance was moved away: `None` tells of it in an event and a label of the
    Remediation, for whoever mends nodes; `Cordon` and `Taint` also keep other pods off it until the strike expires, and
    need the chart's value `nodeActions.enabled`. Absent: `None`."""
    probation_seconds: Annotated[int, Field(ge=60, le=86_400)] = 600
    """How long a replacement is watched, from the end of its warm-up, before it counts as cured. Absent: 600."""
    pause_requests: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=253)], ...], Field(max_length=16), UniqueItems
    ] = ()
    """Named reasons to pause healing; any entry pauses. An annotation `kintsugi.dev/pause.<reason>` does too."""
    rehearsal: Rehearsal | None = None
    """A faster clock for drills. Absent: real time."""

    def mode_of(self, trigger: str) -> Mode:
        """The mode in force for `trigger` (a key under `triggers`; any other name follows `healing.mode`).

        A trigger's own mode wins over `healing.mode`. The triggers in `ADVICE_ONLY` start at `Observe` and never
        act, whatever is written.
        """
        field = _FIELD_OF.get(trigger)
        entry = getattr(self.triggers, field) if field else None
        own = entry.mode if isinstance(entry, _HasMode) else None
        if trigger in ADVICE_ONLY:
            return own if own == "Recommend" and trigger != "gpuUtilization" else "Observe"
        return own or self.mode

    @property
    def speed_up(self) -> float:
        """Factor by which the judge's durations are divided; 1 outside rehearsals."""
        return self.rehearsal.speed_up if self.rehearsal else 1.0


_FIELD_OF: Final = {field.alias: name for name, field in Triggers.model_fields.items()}
