"""The operator's own `/metrics`: `ports.recorder.Recorder` over prometheus_client.

Gauges come from the latest pass of each deployment, at the moment of the scrape, so the series of a deleted deployment
vanish. Counters and histograms carry no name of a pod and no message. The label `fleet` is `namespace/name`.
"""

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kintsugi import __version__
from kintsugi.core.finding import Verdict
from kintsugi.core.judged import Judged
from kintsugi.core.plan import Plan
from kintsugi.core.snapshot import Key, Page, Snapshot


@dataclass(frozen=True, slots=True)
class Note:
    """The latest pass over one deployment, done at monotonic time `at` (seconds) by the clock `mono`."""

    snapshot: Snapshot
    judged: Judged
    plan: Plan
    at: float
    mono: Callable[[], float]

    def age(self) -> float:
        """Seconds since it was done."""
        return self.mono() - self.at


Sample: TypeAlias = tuple[tuple[str, ...], float]
"""Label values, without `fleet`, and the value."""


@dataclass(frozen=True, slots=True)
class FleetGauge:
    """One gauge that is read off the latest pass. `labels` come after `fleet`."""

    name: str
    about: str
    labels: tuple[str, ...]
    read: Callable[[Note], Iterable[Sample]]


def _instances(note: Note) -> Iterator[Sample]:
    counts: dict[tuple[str, str], int] = {
        (pool.name, verdict.value): 0 for pool in note.plan.status.pools for verdict in Verdict
    }
    for each in note.judged.verdicts.values():
        spot = (each.pool, each.verdict.value)
        counts[spot] = counts.get(spot, 0) + 1
    return iter(counts.items())


def _findings(note: Note) -> Iterator[Sample]:
    counts: dict[tuple[str, str, str], int] = {}
    for verdict in note.judged.verdicts.values():
        for finding in verdict.findings:
            spot = (finding.detector.value, finding.reason, finding.severity.name.capitalize())
            counts[spot] = counts.get(spot, 0) + 1
    return iter(counts.items())


def _signals(note: Note) -> Iterator[Sample]:
    for verdict in note.judged.verdicts.values():
        for signal, value in verdict.signals.items():
            yield (verdict.pool, verdict.name, signal), value


def _readable(note: Note) -> Iterator[Sample]:
    for instance in note.snapshot.instances:
        yield (instance.pool, instance.name), float(isinstance(instance.scrape, Page))


def _conditions(note: Note) -> Iterator[Sample]:
    for condition in note.plan.status.conditions:
        yield (condition.type, condition.reason), {"True": 1.0, "False": 0.0}.get(condition.status, -1.0)


def _withheld(note: Note) -> Iterator[Sample]:
    counts: dict[tuple[str], int] = {}
    for each in note.plan.status.remediations.withheld:
        counts[(each.gate,)] = counts.get((each.gate,), 0) + 1
    return iter(counts.items())


def _pools(read: Callable[[Note], Iterable[tuple[str, float]]]) -> Callable[[Note], Iterator[Sample]]:
    return lambda note: (((pool,), value) for pool, value in read(note))


FLEET_GAUGES: Final = (
    FleetGauge("kintsugi_instances", "Instances by verdict.", ("pool", "verdict"), _instances),
    FleetGauge(
        "kintsugi_pool_replicas",
        "Instances wanted.",
        ("pool",),
        _pools(lambda note: ((p.name, p.replicas) for p in note.plan.status.pools)),
    ),
    FleetGauge(
        "kintsugi_pool_ready",
        "Instances that are Ready and in rotation.",
        ("pool",),
        _pools(lambda note: ((p.name, p.ready) for p in note.plan.status.pools)),
    ),
    FleetGauge("kintsugi_findings", "Findings that stand.", ("rule", "reason", "severity"), _findings),
    FleetGauge(
        "kintsugi_instance_signal",
        "One signal of one instance; a signal that is not known has no series.",
        ("pool", "instance", "signal"),
        _signals,
    ),
    FleetGauge(
        "kintsugi_instance_readable",
        "Whether the last reading of an instance's /metrics gave a page.",
        ("pool", "instance"),
        _readable,
    ),
    FleetGauge(
        "kintsugi_condition",
        "A condition of the deployment: 1 True, 0 False, -1 Unknown.",
        ("type", "reason"),
        _conditions,
    ),
    FleetGauge(
        "kintsugi_remediations_in_flight",
        "Remediations under way.",
        (),
        lambda note: [((), float(note.plan.status.remediations.in_flight))],
    ),
    FleetGauge("kintsugi_actions_withheld", "Actions that a gate holds back now.", ("gate",), _withheld),
    FleetGauge(
        "kintsugi_pass_late_seconds",
        "By how much the last pass began later than it was due.",
        (),
        lambda note: [((), note.snapshot.late_by)],
    ),
    FleetGauge(
        "kintsugi_observation_age_seconds",
        "Time since the last pass that was carried out whole.",
        (),
        lambda note: [((), note.age())],
    ),
    FleetGauge(
        "kintsugi_last_success_timestamp_seconds",
        "When the last pass was carried out whole, in epoch seconds.",
        (),
        lambda note: [((), note.snapshot.now)],
    ),
)


@dataclass(frozen=True, slots=True)
class Counted:
    """One counter (its series end in `_total`), or one histogram where it has `buckets` in seconds."""

    name: str
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


PASSES: Final = Counted("kintsugi_passes", "Passes by result: ok, conflict or error.", ("result",))
PASS_SECONDS: Final = Counted(
    "kintsugi_pass_duration_seconds",
    "Duration of passes.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
ACTIONS: Final = Counted("kintsugi_actions", "Actions that passes carried out.", ("action",))
EVENTS: Final = Counted("kintsugi_events", "Transitions told as Events.", ("reason",))
REMEDIATIONS: Final = Counted(
    "kintsugi_remediations",
    "Remediations that ended, by trigger, remedy and outcome.",
    ("trigger", "remedy", "outcome"),
)
SHADOWS: Final = Counted(
    "kintsugi_shadow_actions",
    "Faults that mode Act would have acted upon (would have recreated, say), and mode Observe only counts.",
    ("trigger", "remedy"),
)
CALLS: Final = Counted(
    "kintsugi_kube_requests", "Requests to the API server.", ("verb", "resource", "outcome")
)
CALL_SECONDS: Final = Counted(
    "kintsugi_kube_request_duration_seconds",
    "Duration of requests to the API server, their wait for a thread included.",
    ("verb",),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30),
)
REVIEWS: Final = Counted(
    "kintsugi_admission_reviews",
    "Requests to the webhook by verdict: Allowed, Skipped, Warned, Tolerated, Denied or Unchecked.",
    ("operation", "verdict"),
)
COUNTED: Final = (PASSES, PASS_SECONDS, ACTIONS, EVENTS, REMEDIATIONS, SHADOWS, CALLS, CALL_SECONDS, REVIEWS)

CERTIFICATE_END: Final = (
    "kintsugi_webhook_certificate_expiry_timestamp_seconds",
    "When the webhook's certificate in use ends, in epoch seconds.",
    ("secret",),
)


def table() -> list[tuple[str, str, tuple[str, ...], str]]:
    """(name as scraped, type, labels, meaning) of every metric, for the documentation."""
    counted = [
        (
            each.name if each.buckets else f"{each.name}_total",
            "histogram" if each.buckets else "counter",
            each,
        )
        for each in COUNTED
    ]
    return [
        *((gauge.name, "gauge", ("fleet", *gauge.labels), gauge.about) for gauge in FLEET_GAUGES),
        *((name, kind, each.labels, each.about) for name, kind, each in counted),
        (CERTIFICATE_END[0], "gauge", CERTIFICATE_END[2], CERTIFICATE_END[1]),
        ("kintsugi_build_info", "gauge", ("version", "python"), "Always 1."),
    ]


class Telemetry:
    """Takes notes of passes and calls, and renders them. One per process, with a registry of its own."""

    def __init__(self, mono: Callable[[], float] = monotonic) -> None:
        self._mono = mono
        self.registry = CollectorRegistry()
        self._notes: dict[Key, Note] = {}
        self._shadows: dict[Key, set[tuple[str, str]]] = {}
        self._counters = {
            each.name: Counter(each.name, each.about, each.labels, registry=self.registry)
            for each in COUNTED
            if not each.buckets
        }
        self._histograms = {
            each.name: Histogram(
                each.name, each.about, each.labels, buckets=each.buckets, registry=self.registry
            )
            for each in COUNTED
            if each.buckets
        }
        info = Gauge("kintsugi_build_info", "Always 1.", ("version", "python"), registry=self.registry)
        info.labels(__version__, platform.python_version()).set(1)
        self._certificate_end = Gauge(*CERTIFICATE_END, registry=self.registry)
        self.registry.register(_Latest(self._notes))

    def note(self, snapshot: Snapshot, judged: Judged, plan: Plan) -> None:
        """Remember the latest pass over one deployment, and count what it did."""
        self._notes[snapshot.key] = Note(snapshot, judged, plan, self._mono(), self._mono)
        for action in plan.actions:
            self._count(ACTIONS, type(action).__name__)
        for happening in plan.happenings:
            self._count(EVENTS, happening.reason)
        ended = {each.id for each in snapshot.deployment.status.remediations.recent if each.outcome}
        for each in plan.status.remediations.recent:
            if each.outcome and each.id not in ended:
                self._count(REMEDIATIONS, each.trigger, each.remedy or "", each.outcome)
        self._count_shadows(plan, snapshot.key)

    def _count_shadows(self, plan: Plan, key: Key) -> None:
        """Each fault once: it is forgotten when its instance is gone or not sick any more."""
        sick = {i.uid for i in plan.status.instances if i.verdict == "Sick"}
        known = {(uid, trigger) for uid, trigger in self._shadows.get(key, ()) if uid in sick}
        for shadow in plan.shadows:
            if (shadow.uid, shadow.trigger) not in known:
                self._count(SHADOWS, shadow.trigger, shadow.remedy)
        self._shadows[key] = known | {(shadow.uid, shadow.trigger) for shadow in plan.shadows}

    def forget(self, key: Key) -> None:
        """Drop a deployment's series."""
        self._notes.pop(key, None)
        self._shadows.pop(key, None)

    def passed(self, key: Key, result: str, seconds: float) -> None:
        """Count one pass: `result` is ok, conflict or error; `seconds` its duration."""
        self._count(PASSES, result)
        self._histograms[PASS_SECONDS.name].observe(seconds)

    def called(self, verb: str, resource: str, outcome: str, seconds: float) -> None:
        """Count one request to the API server; fits `KubeClient(observer=…)`."""
        self._count(CALLS, verb, resource, outcome)
        self._histograms[CALL_SECONDS.name].labels(verb).observe(seconds)

    def reviewed(self, operation: str, verdict: str) -> None:
        """Count one request to the webhook."""
        self._count(REVIEWS, operation, verdict)

    def certified(self, secret: str, until: float) -> None:
        """Tell when the webhook's certificate in use ends, epoch seconds."""
        self._certificate_end.labels(secret).set(until)

    def page(self) -> bytes:
        """The page, in Prometheus' text format 0.0.4."""
        return generate_latest(self.registry)

    def _count(self, what: Counted, *labels: str) -> None:
        self._counters[what.name].labels(*labels).inc()


class _Latest(Collector):
    """The gauges of every deployment that has a note."""

    def __init__(self, notes: dict[Key, Note]) -> None:
        self._notes = notes

    def collect(self) -> Iterator[Metric]:
        notes = sorted(self._notes.items(), key=lambda item: str(item[0]))
        for gauge in FLEET_GAUGES:
            family = GaugeMetricFamily(gauge.name, gauge.about, labels=("fleet", *gauge.labels))
            for key, note in notes:
                for labels, value in gauge.read(note):
                    family.add_metric((str(key), *labels), value)
            yield family
