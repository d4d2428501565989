"""The kubelets of all nodes: pull, start, restart with back-off, readiness, termination, loss of a node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kintsugi.core import names
from kintsugi.testing.clock import SimulatedClock
from kintsugi.testing.cluster import pods
from kintsugi.testing.cluster.store import Json, ObjectStore, stamp

BACK_OFF_FIRST = 10.0
BACK_OFF_MOST = 300.0
BACK_OFF_RESET = 600.0
"""CrashLoopBackOff of Kubernetes: 10 s, doubled up to five minutes, forgotten after ten minutes of running."""
FALLBACK_BYTES = 2048
"""Of the end of a log that becomes the termination message of a container which wrote none."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a pod's engine container behaves from the node's point of view. Times in seconds."""

    image_seconds: float = 1.0
    image_ok: bool = True
    boot_seconds: float = 20.0
    """From the start of the container to Ready; infinity = never."""
    dies_after: float | None = None
    """Each run ends by itself after this long."""
    exit_code: int = 1
    waits: tuple[str, str] = ("", "")
    """Reason and message with which its container waits for ever, as for a Secret that is not there."""
    last_words: str = ""
    """What a run writes before it ends: its log, and the end of it as termination message."""
    end_reason: str = ""
    """Kubernetes' word for the end: OOMKilled, for one; '' = by the exit code."""
    probe_seconds: float | None = None
    """The start probe ends a run that is not Ready after so long."""
    stop_seconds: float = 1.0
    """From SIGTERM to the end of the process, unless the grace period is shorter."""


@dataclass(slots=True)
class _Run:
    """What a kubelet remembers of a pod. `number` tells a timer whether it is still about this run."""

    number: int = 0
    started: float = 0.0
    crashes: int = 0
    stopping: bool = False
    notes: list[str] = field(default_factory=list)


class Kubelets:
    """Moves pods through their lives by timers on the clock."""

    def __init__(self, store: ObjectStore, clock: SimulatedClock) -> None:
        self._store = store
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._addresses = 0
        self.ended_logs: dict[tuple[str, str], list[str]] = {}
        """What the run that ended last wrote, by namespace and name."""
        self.told: Callable[[Json, str, str, str], None] = lambda about, kind, reason, message: None
        """Posts an Event about a pod."""
        self.down: set[str] = set()
        """Nodes whose kubelet says and does nothing."""
        self.behaviour: Callable[[Json], Start] = lambda pod: Start()

    def bound(self, pod: Json) -> None:
        """A pod was bound to a node: create it there."""
        if pod["metadata"]["uid"] not in self._runs:
            self._runs[pod["metadata"]["uid"]] = _Run()
            self._later(0.1, pod, self._create)

    def forget(self, pod: Json) -> None:
        """The object is gone."""
        self._runs.pop(pod["metadata"]["uid"], None)

    def terminate(self, pod: Json) -> None:
        """A deletion timestamp appeared (or moved nearer): stop the process, then let the object go."""
        run = self._runs.get(pod["metadata"]["uid"])
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds", 0))
        if run is None or grace == 0 or not pod["spec"].get("nodeName") or pods.ended(pod):
            self._remove(pod)
            return
        run.stopping = True
        seconds = min(grace, self.behaviour(pod).stop_seconds if _running(pod) else 0.0)
        self._later(max(0.1, seconds), pod, self._remove)

    def exit(self, pod: Json, exit_code: int, reason: str = "") -> None:
        """The engine process ends now; by its restart policy the container is started again or the pod is over."""
        policy = pod["spec"].get("restartPolicy", "Always")
        run = self._runs[pod["metadata"]["uid"]]
        if run.stopping:
            return
        run.number += 1
        over: Json = {
            "exitCode": exit_code,
            "reason": reason or ("Completed" if exit_code == 0 else "Error"),
            "startedAt": stamp(run.started),
            "finishedAt": stamp(self._clock.now()),
        }
        self._last_words(pod, over)
        if policy == "Never" or (policy == "OnFailure" and exit_code == 0):
            self._engine(
                pod, {"terminated": over}, ready=False, phase="Succeeded" if exit_code == 0 else "Failed"
            )
            return
        if self._clock.now() - run.started >= BACK_OFF_RESET:
            run.crashes = 0
        run.crashes += 1
        wait = 0.0 if run.crashes == 1 else min(BACK_OFF_MOST, BACK_OFF_FIRST * 2.0 ** (run.crashes - 2))
        waiting = {
            "waiting": {
                "reason": "CrashLoopBackOff",
                "message": f"back-off {wait:.0f}s restarting failed container",
            }
        }
        self._engine(pod, waiting if wait else {"terminated": over}, ready=False, last={"terminated": over})
        self._later(wait or 0.5, pod, lambda p: self._run(p, restart=True))

    def fail(self, pod: Json, reason: str, message: str) -> None:
        """The node gives the pod up (Evicted, for one): it is Failed and stays as an object."""
        self._runs[pod["metadata"]["uid"]].number += 1
        over = {"exitCode": 137, "reason": "Error", "finishedAt": stamp(self._clock.now())}
        self._engine(pod, {"terminated": over}, ready=False, phase="Failed", reason=reason, message=message)

    def set_ready(self, pod: Json, ready: bool) -> None:
        """The readiness probe changes its mind."""
        self._status(pod, lambda held: self._readiness(held, ready))

    def set_device_health(self, pod: Json, health: str | None) -> None:
        """The device plugin changes its mind about the pod's first GPU; None = this kubelet reports no health at all."""

        def change(held: Json) -> Json:
            for status in held["status"].get("containerStatuses", ()):
                if health is None:
                    status["allocatedResourcesStatus"] = []
                elif each := status.get("allocatedResourcesStatus"):
                    each[0]["resources"][0]["health"] = health
            return held

        self._status(pod, change)

    def lost(self, node: str) -> None:
        """Power goes, or the network: nothing is heard of the node from now on."""
        self.down.add(node)

    def back(self, node: str, rebooted: bool) -> None:
        """The node is heard of again. `rebooted`: its containers ended meanwhile and start again."""
        self.down.discard(node)
        for pod in [each for each in self._store.each("Pod") if each["spec"].get("nodeName") == node]:
            held = self._store.find("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
            if held is None:
                continue
            if pods.deleting(held):
                self._remove(held)
            elif "startTime" not in (held.get("status") or {}):
                self._create(held)
            elif rebooted and _running(held):
                self.exit(held, 137)
            elif _running(held):
                run = self._runs[held["metadata"]["uid"]]
                self.set_ready(held, self._clock.now() - run.started >= self.behaviour(held).boot_seconds)

    def _create(self, pod: Json) -> None:
        start = self.behaviour(pod)
        waiting = {"waiting": {"reason": "ContainerCreating"}}
        self._engine(
            pod, waiting, ready=False, phase="Pending", extra={"startTime": stamp(self._clock.now())}
        )
        if start.waits[0]:
            self._later(start.image_seconds, pod, self._wait_for_ever)
        elif start.image_ok:
            self._later(start.image_seconds, pod, lambda p: self._run(p, restart=False))
        else:
            self._later(start.image_seconds, pod, self._no_image)

    def _no_image(self, pod: Json) -> None:
        image = next((c.get("image", "") for c in pod["spec"]["containers"]), "")
        why = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}
        self._engine(pod, {"waiting": why}, ready=False, phase="Pending")

    def _wait_for_ever(self, pod: Json) -> None:
        reason, message = self.behaviour(pod).waits
        if not reason:
            self._run(pod, restart=False)
            return
        waiting = {"waiting": {"reason": reason, "message": message}}
        self._engine(pod, waiting, ready=False, phase="Pending")
        self._later(BACK_OFF_FIRST, pod, self._wait_for_ever)

    def _probe(self, pod: Json) -> None:
        self.told(pod, "Warning", "Unhealthy", "Startup probe failed: connection refused")
        self.told(pod, "Normal", "Killing", "Container engine failed startup probe, will be restarted")
        self.exit(pod, 143)

    def _last_words(self, pod: Json, over: Json) -> None:
        """Keep what the run wrote, as the kubelet does with FallbackToLogsOnError."""
        words = self.behaviour(pod).last_words
        spot = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        self.ended_logs[spot] = words.splitlines()
        if words and over["exitCode"] != 0:
            over["message"] = words[-FALLBACK_BYTES:]

    def _run(self, pod: Json, restart: bool) -> None:
        run = self._runs[pod["metadata"]["uid"]]
        start = self.behaviour(pod)
        run.number += 1
        run.started = self._clock.now()
        extra: Json = {}
        if not (pod.get("status") or {}).get("podIP"):
            self._addresses += 1
            address = f"10.244.{self._addresses // 250}.{self._addresses % 250 + 1}"
            extra = {"podIP": address, "podIPs": [{"ip": address}]}
        running = {"running": {"startedAt": stamp(run.started)}}
        self._engine(pod, running, ready=False, phase="Running", restarted=restart, extra=extra)
        if start.boot_seconds != float("inf"):
            self._later(start.boot_seconds, pod, lambda p: self.set_ready(p, True))
        if start.dies_after is not None:
            self._later(start.dies_after, pod, lambda p: self.exit(p, start.exit_code, start.end_reason))
        if start.probe_seconds is not None and start.probe_seconds < start.boot_seconds:
            self._later(start.probe_seconds, pod, self._probe)

    def _remove(self, pod: Json) -> None:
        meta = pod["metadata"]
        held = self._store.find("Pod", meta["namespace"], meta["name"])
        if held is not None and held["metadata"]["uid"] == meta["uid"]:
            self._store.remove("Pod", meta["namespace"], meta["name"])

    def _later(self, seconds: float, pod: Json, step: Callable[[Json], None]) -> None:
        """Do `step` with the pod as it is then, if it is still this pod, this run and the node is up."""
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        number = self._runs[uid].number

        def due() -> None:
            held = self._store.find("Pod", meta["namespace"], meta["name"])
            run = self._runs.get(uid)
            if held is None or run is None or held["metadata"]["uid"] != uid:
                return
            if run.number == number and held["spec"].get("nodeName") not in self.down:
                step(held)

        self._clock.call_later(seconds, due)

    def _engine(
        self,
        pod: Json,
        state: Mapping[str, object],
        ready: bool,
        phase: str | None = None,
        last: Mapping[str, object] | None = None,
        restarted: bool = False,
        reason: str = "",
        message: str = "",
        extra: Mapping[str, object] | None = None,
    ) -> None:
        def change(held: Json) -> Json:
            status = held.setdefault("status", {})
            status |= {key: value for key, value in (("reason", reason), ("message", message)) if value}
            status |= extra or {}
            if phase:
                status["phase"] = phase
            before = {each["name"]: each for each in status.get("containerStatuses", ())}
            status["containerStatuses"] = [
                self._container(each["name"], before.get(each["name"], {}), state, last, restarted)
                for each in held["spec"]["containers"]
            ]
            pods.report_devices(held)
            return self._readiness(held, ready)

        self._status(pod, change)

    def _container(
        self,
        name: str,
        before: Json,
        state: Mapping[str, object],
        last: Mapping[str, object] | None,
        restarted: bool,
    ) -> Json:
        """The container that serves takes `state`; others of the pod simply run while it does."""
        status: Json = {
            "name": name,
            "ready": False,
            "restartCount": before.get("restartCount", 0),
            "state": dict(state),
        }
        if name != names.ENGINE_CONTAINER and before:
            return before
        status["restartCount"] += restarted
        held = last or before.get("lastState")
        if held:
            status["lastState"] = dict(held)
        return status

    def _readiness(self, held: Json, ready: bool) -> Json:
        at = stamp(self._clock.now())
        for each in held["status"].get("containerStatuses", ()):
            each["ready"] = ready
        word, reason = ("True", "") if ready else ("False", "ContainersNotReady")
        pods.set_condition(held, "ContainersReady", word, at, reason)
        pods.set_condition(held, "Ready", word, at, reason)
        return held

    def _status(self, pod: Json, change: Callable[[Json], Json]) -> None:
        meta = pod["metadata"]
        held = self._store.find("Pod", meta["namespace"], meta["name"])
        if held is not None and held["metadata"]["uid"] == meta["uid"]:
            self._store.update_status("Pod", meta["namespace"], meta["name"], change)


def _running(pod: Json) -> bool:
    """Whether the engine container runs; in a pod without one of that name, any container."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    named = [each for each in statuses if each["name"] == names.ENGINE_CONTAINER] or statuses
    return any("running" in each["state"] for each in named)
