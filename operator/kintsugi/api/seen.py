"""What the operator sees of pools and instances, as it stands in the status of a `DeepSeekV4Deployment`."""

from typing import Annotated, Literal

from pydantic import Field

from kintsugi.api.model import Atomic, Clipped, Model, Timestamp
from kintsugi.api.remediation import Name, Remedy, Uid, Word

VerdictName = Literal["Healthy", "Suspect", "Sick", "Saturated", "Idle", "Starting", "Unknown"]
Strategy = Literal["Surge", "DeleteFirst"]

Count = Annotated[int, Field(ge=0)]


class VerdictCounts(Model):
    """Instances by verdict."""

    healthy: Count = 0
    """Serving well."""
    suspect: Count = 0
    """A finding that has not lasted long enough."""
    sick: Count = 0
    """A finding that has."""
    saturated: Count = 0
    """Busy to the brim, and well."""
    idle: Count = 0
    """Without work, and well."""
    starting: Count = 0
    """Not yet warmed up."""
    unknown: Count = 0
    """Without readable data."""


class PoolStatus(Model):
    """One pool."""

    name: Word
    """Name of the pool."""
    replicas: Count = 0
    """Instances that exist."""
    ready: Count = 0
    """Instances that serve."""
    updated: Count = 0
    """Instances of the wanted revision."""
    selector: Annotated[str, Field(max_length=1024)] = ""
    """Label selector of the pool's instances in rotation."""
    revision: Word = ""
    """The wanted revision."""
    strategy: Strategy | None = None
    """How the next instance is replaced: `Surge` where a node can take one more."""
    headroom: int | None = None
    """Instances that the cluster's free GPUs could still take."""
    verdicts: VerdictCounts = VerdictCounts()
    """Instances by verdict."""


class FindingStatus(Model):
    """What one detector says."""

    detector: Word
    """Name of the detector."""
    reason: Word
    """One CamelCase word."""
    severity: Word
    """How grave."""
    message: Annotated[str, Clipped(512)] = ""
    """A sentence with the figures."""
    since: Timestamp | None = None
    """When it began."""


class SignalValues(Model):
    """Values at the last change of the verdict. Live values are in the operator's own metrics."""

    fragmentation_percent: float | None = None
    """Worst fragmentation of the trigger's sources over the ranks."""
    fragmentation_source: Word | None = None
    """Which source that was."""
    kv_cache_usage_percent: float | None = None
    """KV cache in use."""
    running: float | None = None
    """Requests running."""
    waiting: float | None = None
    """Requests waiting."""
    lost_percent: float | None = None
    """Share of the step rate lost at equal work."""
    flat_seconds: float | None = None
    """Time without an engine step while there was work."""
    cache_hit_percent: float | None = None
    """Prompt tokens found in the prefix cache."""
    preemptions_per_second: float | None = None
    """Requests pushed out of the KV cache, per second."""
    gpu_utilization_percent: float | None = None
    """GPU use."""
    error_percent: float | None = None
    """Requests that failed inside the engine."""
    memory_percent: float | None = None
    """Host memory of the container's limit."""
    memory_forecast_seconds: float | None = None
    """Seconds until host memory reaches the container's limit, if it goes on rising as it does."""


class InstanceStatus(Model):
    """One instance."""

    name: Name
    """Name of the pod."""
    uid: Uid = ""
    """UID of the pod."""
    pool: Word = ""
    """Its pool."""
    revision: Word = ""
    """Its revision."""
    node: Name = ""
    """Its node."""
    verdict: VerdictName = "Unknown"
    """What the judge says."""
    reason: Word = ""
    """One CamelCase word for the verdict."""
    since: Timestamp | None = None
    """When the verdict last changed."""
    findings: Annotated[tuple[FindingStatus, ...], Atomic, Field(max_length=16)] = ()
    """What the detectors say; only of instances that are not healthy."""
    signals: SignalValues | None = None
    """Values behind the verdict; only of instances that are not healthy."""
    remedy: Remedy | None = None
    """What is being done about it."""
    attempt: Annotated[int, Field(ge=0)] | None = None
    """Which attempt in its lineage."""
