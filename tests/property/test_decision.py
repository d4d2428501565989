"""Random trouble for a random fleet: the promises of the decision hold at every action, and every story ends."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from kintsugi.core.finding import Detector
from kintsugi.core.plan import Evict, Plan, Release, Restore, Withdraw
from tests.unit.core.decision.audit import AuditedWorld
from tests.unit.core.decision.made import pools, spec
from tests.unit.core.decision.world import Pod

DETECTORS = [Detector.STALLED, Detector.FRAGMENTED, Detector.SLOW, Detector.DEAD]
CRASHES = ["commit", "record", "act", "half"]
Event = tuple[Any, ...]

pod_index = st.integers(0, 7)
events = st.one_of(
    st.tuples(st.just("falls"), pod_index, st.sampled_from(DETECTORS)),
    st.tuples(st.just("falls"), pod_index, st.sampled_from(DETECTORS)),
    st.tuples(st.just("mends"), pod_index),
    st.tuples(st.just("blind"), pod_index),
    st.tuples(st.just("seen"), pod_index),
    st.tuples(st.just("busy"), pod_index, st.sampled_from([None, 0.0, 5.0])),
    st.tuples(st.just("goes"), pod_index),
    st.tuples(st.just("unready"), pod_index),
    st.tuples(st.just("restarts"), pod_index),
    st.tuples(st.just("ends"), pod_index),
    st.tuples(st.just("gpus"), st.integers(0, 12)),
    st.tuples(st.just("replicas"), st.integers(0, 6)),
    st.tuples(st.just("second pool"), st.integers(0, 3)),
    st.tuples(st.just("image"), st.sampled_from(["a", "b", "c"])),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("mode"), st.sampled_from(["Act", "Observe", "Recommend"])),
    st.tuples(st.just("starts"), st.sampled_from(["", "CrashLoopBackOff"])),
    st.tuples(st.just("refused"), st.sampled_from([None, Evict, Release, Restore, Withdraw])),
    st.tuples(st.just("controllers"), st.booleans()),
    st.tuples(st.just("reset")),
    st.tuples(st.just("crash"), st.sampled_from(CRASHES)),
    st.tuples(st.just("rival")),
)
pauses = st.sampled_from([(0, 5.0), (1, 5.0), (6, 5.0), (14, 5.0), (10, 30.0), (10, 60.0), (15, 120.0)])
"""Passes after an event, and the seconds between them."""
stories = st.lists(st.tuples(events, pauses), min_size=3, max_size=20)


class Story:
    """Applies events to a world."""

    def __init__(self, replicas: int, second: int, gpus: int) -> None:
        self.sizes = {"main": replicas, "more": second}
        self.world = AuditedWorld(spec(), gpus=20, starts_in=0.0)
        self._resize()
        for _ in range(4):
            self.world.pass_()
        self.world.now += 3600
        self.world.pass_()
        self.world.gpus, self.world.starts_in = gpus, 60.0
        self.kubernetes = self.world.kubernetes

    def _resize(self) -> None:
        """The second pool is named only where it has instances."""
        sizes = {name: size for name, size in self.sizes.items() if size or name == "main"}
        self.world.spec["pools"] = pools(**sizes)
        self.world.generation += 1

    def pod(self, index: int) -> Pod | None:
        alive = sorted(self.world.alive_everywhere(), key=lambda p: p.uid)
        return alive[index % len(alive)] if alive else None

    def happen(self, event: Event) -> None:
        world, kind = self.world, event[0]
        pod = self.pod(event[1]) if len(event) > 1 and kind in POD_EVENTS else None
        if kind in POD_EVENTS:
            if pod is not None:
                POD_EVENTS[kind](world, pod, *event[2:])
        elif kind == "crash":
            world.pass_(crash=event[1])
        elif kind == "rival":
            world.pass_(rival=True)
        else:
            self._change(kind, *event[1:])

    def _change(self, kind: str, value: Any = None) -> None:
        world = self.world
        match kind:
            case "gpus":
                world.gpus = value
            case "replicas" | "second pool":
                self.sizes["main" if kind == "replicas" else "more"] = value
                self._resize()
            case "image":
                world.spec["engine"] = {"image": value}
                world.generation += 1
            case "pause":
                world.spec.setdefault("healing", {})["pauseRequests"] = ["audit"] if value else []
            case "mode":
                world.spec.setdefault("healing", {})["mode"] = value
            case "starts":
                world.on_start = lambda pod: setattr(pod, "never_starts", value)
            case "refused":
                world.allows = lambda action: value is None or not isinstance(action, value)
            case "controllers":
                world.kubernetes = self.kubernetes if value else (lambda: None)  # type: ignore[method-assign]
            case "reset":
                stamp = world.snapshot().now
                world.annotations["kintsugi.dev/reset-breakers"] = _rfc3339(stamp)

    def calm_down(self) -> None:
        """All trouble is over, and people have done what was asked of them."""
        world = self.world
        self._change("controllers", True)
        self._change("refused", None)
        self._change("starts", "")
        self._change("pause", False)
        self._change("mode", "Act")
        self._change("gpus", 20)
        for pod in list(world.pods.values()):
            pod.faults.clear()
            pod.blind, pod.running, pod.never_starts, pod.phase = False, 0.0, "", ""
            pod.ready = True
            if pod.node and pod.started_at is None:
                pod.started_at = world.now


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _falls(world: AuditedWorld, pod: Pod, detector: Detector) -> None:
    pod.faults.setdefault(detector, world.now)
    if detector is Detector.DEAD:
        pod.ready, pod.started_at = False, None


def _mends(world: AuditedWorld, pod: Pod) -> None:
    if Detector.DEAD in pod.faults and pod.node:
        pod.started_at, pod.ready = world.now, True
    pod.faults.clear()


def _restarts(world: AuditedWorld, pod: Pod) -> None:
    if pod.started_at is not None:
        pod.started_at, pod.restarts = world.now, pod.restarts + 1
        pod.faults.clear()


def _ends(world: AuditedWorld, pod: Pod) -> None:
    pod.phase, pod.started_at = "Failed", None
    pod.faults[Detector.DEAD] = world.now


POD_EVENTS: dict[str, Any] = {
    "falls": _falls,
    "mends": _mends,
    "blind": lambda world, pod: setattr(pod, "blind", True),
    "seen": lambda world, pod: setattr(pod, "blind", False),
    "busy": lambda world, pod, running: setattr(pod, "running", running),
    "goes": lambda world, pod: world.end(pod),
    "unready": lambda world, pod: setattr(pod, "ready", not pod.ready),
    "restarts": _restarts,
    "ends": _ends,
}


def calmed(world: AuditedWorld, seconds: float = 9_000.0) -> Plan:
    """The last plan of so long a time: a pass a minute until a quarter of an hour passed without a word, then fewer."""
    until, quiet = world.now + seconds, 0
    while world.now < until:
        writes = world.writes
        plan = world.pass_(60.0 if quiet < 15 else 600.0)
        busy = plan.actions or world.writes != writes or world.active()
        quiet = 0 if busy else quiet + 1
    return plan


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    replicas=st.integers(1, 6),
    second=st.sampled_from([0, 0, 1, 3]),
    gpus=st.integers(1, 9),
    story=stories,
)
def test_no_story_breaks_a_promise_and_every_story_ends(
    replicas: int, second: int, gpus: int, story: list[tuple[Event, Any]]
) -> None:
    told = Story(replicas, second, gpus)
    for event, (passes, every) in story:
        told.happen(event)
        for _ in range(passes):
            told.world.pass_(every)
    told.calm_down()
    world = told.world
    plan = calmed(world)
    note(world.tell())
    assert not plan.actions, plan.actions
    assert not world.status.remediations.active, world.tell()
    assert {name: len(world.members(name)) for name in told.sizes} == told.sizes
    everyone = world.alive_everywhere()
    assert all(pod.in_rotation for pod in everyone), "somebody is still out of rotation"
    assert all(pod.member for pod in everyone), "a released pod was forgotten"
    writes = world.writes
    for _ in range(10):
        world.pass_(60.0)
    assert world.writes == writes, "a quiet fleet is written about"
