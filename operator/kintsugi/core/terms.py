"""What one pass holds every instance against: its moment, the times in force, the user's limits as plain numbers.

They are read from a deployment once: a field of a model costs several times what a plain one does, and most passes
find the deployment as the last one did.
"""

from dataclasses import dataclass, field

from kintsugi.api.objects import DeepSeekV4Deployment
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.detect.fragmented import Line
from kintsugi.core.detect.stalled import SLOWEST_PREFILL, Limits, limits
from kintsugi.core.metric_contract import Written, written_of
from kintsugi.core.snapshot import Snapshot
from kintsugi.core.times import Times


@dataclass(slots=True)
class Terms:
    """`mono` and `now` are the pass's own times; nothing else is changed once made."""

    mono: float
    """Monotonic seconds."""
    now: float
    """Epoch seconds, for people."""
    times: Times
    deployment: DeepSeekV4Deployment
    spec: DeploymentSpec
    metric_prefix: str
    line: Line
    sources: tuple[str, ...]
    """Of fragmentation."""
    written: Written
    speed_up: float
    max_error_percent: float
    max_drop_percent: float
    """Of the step rate."""
    min_hit_percent: float
    max_preemptions: float
    """Per second."""
    gpu_band: tuple[float, float]
    """GPU use between which nothing is said, percent."""
    _limits: dict[tuple[bool, int], Limits] = field(default_factory=dict)

    def limits(self, chunked: bool, longest_prompt: int) -> Limits:
        """As `stalled.limits`, by tokens of the longest prompt: most instances of a deployment have the same."""
        found = self._limits.get((chunked, longest_prompt))
        if found is None:
            seconds = longest_prompt / SLOWEST_PREFILL / self.speed_up
            found = self._limits[chunked, longest_prompt] = limits(self.times, chunked, seconds)
        return found


def terms_of(snapshot: Snapshot, times: Times, last: Terms | None = None) -> Terms:
    """The terms of the pass that made `snapshot`: those of the `last` one, moved on, where its deployment still stands."""
    if last is not None and last.deployment is snapshot.deployment and last.times is times:
        last.mono, last.now = snapshot.mono, snapshot.now
        return last
    spec = snapshot.deployment.spec
    healing = spec.healing
    triggers = healing.triggers
    band, written = triggers.gpu_utilization, written_of(spec)
    return Terms(
        mono=snapshot.mono,
        now=snapshot.now,
        times=times,
        deployment=snapshot.deployment,
        spec=spec,
        metric_prefix=spec.monitoring.prometheus.metric_prefix,
        line=Line(float(triggers.fragmentation.threshold_percent), times),
        sources=written.sources,
        written=written,
        speed_up=healing.speed_up,
        max_error_percent=float(triggers.errors.max_percent),
        max_drop_percent=float(triggers.throughput.drop_percent),
        min_hit_percent=float(triggers.cache_hit_rate.min_percent),
        max_preemptions=triggers.preemptions.max_per_second,
        gpu_band=(float(band.min_percent), float(band.max_percent)),
    )
