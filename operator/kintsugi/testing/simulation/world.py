"""One pool over time: its traffic, its pods, what happens to it as a whole, and the snapshots an operator would make."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kintsugi.api.objects import DeepSeekV4Deployment, parse_deployment
from kintsugi.core import names
from kintsugi.core.snapshot import Canary, Failure, Fleet, Instance, Key, Snapshot
from kintsugi.testing.clock import EPOCH
from kintsugi.testing.simulation import mishaps
from kintsugi.testing.simulation.pod import Pod, shares
from kintsugi.testing.simulation.temper import Temper
from kintsugi.testing.simulation.traffic import Traffic

BLACKOUTS_PER_HOUR = 0.01
"""Nobody's page can be read: the operator's own path is cut."""
ALL_SLOW_PER_HOUR = 0.005
"""The whole pool is slower for a while: driver, power cap, network."""
ROLLOUTS_PER_HOUR = 0.01
STICKY_PER_HOUR = 0.02
"""One instance gets other prompts than its siblings for an hour: session affinity."""


def deployment(size: int, spec: Mapping[str, Any] | None = None) -> DeepSeekV4Deployment:
    """A deployment of one pool on its defaults."""
    return parse_deployment(
        {
            "apiVersion": names.API_VERSION,
            "kind": names.DEPLOYMENT_KIND,
            "metadata": {"name": "simulated", "namespace": "llm", "uid": "d-1", "generation": 1},
            "spec": {
                "model": {"id": "deepseek-ai/DeepSeek-V4-Flash"},
                "pools": [{"name": "main", "replicas": size}],
                **(spec or {}),
            },
        }
    )


@dataclass
class World:
    """One pool. `events` off: nothing happens but traffic, noise and lost pages."""

    temper: Temper
    deployed: DeepSeekV4Deployment
    luck: random.Random
    events: bool = True
    t: float = 0.0
    pods: list[Pod] = field(default_factory=list)
    _number: int = 0
    _revision: int = 1
    _slow_until: float = -1.0
    _slow: float = 1.0
    _sticky_until: float = -1.0
    _sticky: int = 0
    _sticky_factor: float = 1.0
    _replacing: list[Pod] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.traffic = Traffic(self.temper, self.luck)
        self.least_request = self.temper.least_request
        for _ in range(self.temper.size):
            self.add(self.luck.uniform(0, 20))

    def add(self, starts: float) -> Pod:
        """A new pod, Ready after `starts` seconds."""
        self._number += 1
        pod = Pod(f"pod-{self._number}", self.temper, f"r{self._revision}", self.t, starts, self.luck)
        if self._revision > 1:
            pod.step_factor = 1.0 + 0.25 * (self._revision % 3)
        pod.telemetry = self.luck.random() < self.temper.telemetry
        self.pods.append(pod)
        return pod

    def move(self, seconds: float) -> None:
        """Let `seconds` pass."""
        t, until = self.t, self.t + seconds
        if self.events:
            self._befall(t, seconds)
        self._send(t, seconds)
        for pod in self.pods:
            if self.events:
                mishaps.happen(pod, t, seconds, self.luck)
            pod.advance(t, until)
        self.t = until

    def _send(self, t: float, seconds: float) -> None:
        targets = shares(self.pods, t)
        if not targets:
            return
        draw, count = self.luck.random, len(targets)
        two = count > 1 and self.least_request
        sticky = self.pods[self._sticky % len(self.pods)] if t < self._sticky_until else None
        for request in self.traffic.arrivals(t, seconds):
            pod, engine = targets[int(draw() * count)]
            if two:
                other = targets[int(draw() * count)]
                if other[1].load < engine.load:
                    pod, engine = other
            if pod is sticky:
                request.prompt = min(self.temper.longest, int(request.prompt * self._sticky_factor) + 1)
                request.computed = min(request.prompt, int(request.computed * self._sticky_factor) + 1)
            engine.take(request)

    def _befall(self, t: float, seconds: float) -> None:
        """What happens to the pool as a whole."""
        luck, hours = self.luck, seconds / 3_600
        if luck.random() < BLACKOUTS_PER_HOUR * hours:
            until = t + luck.uniform(20, 900)
            for pod in self.pods:
                pod.gap, pod.gap_until, pod.gap_unready = Failure.CONNECT_TIMEOUT, until, False
        if luck.random() < ALL_SLOW_PER_HOUR * hours:
            self._slow_until, self._slow = t + luck.uniform(600, 7_200), luck.uniform(1.2, 2.5)
        if luck.random() < STICKY_PER_HOUR * hours:
            self._sticky_until, self._sticky = t + luck.uniform(600, 3_600), luck.randrange(8)
            self._sticky_factor = luck.choice((0.25, 2.0, 4.0))
        for pod in self.pods:
            if t < self._slow_until and pod.neighbour_until < t + seconds:
                pod.neighbour_until, pod.neighbour = t + seconds, self._slow
        self._roll(t, luck.random() < ROLLOUTS_PER_HOUR * hours)

    def _roll(self, t: float, begins: bool) -> None:
        """A rollout: surge one, wait until it is Ready, end an old one."""
        if begins and not self._replacing:
            self._revision += 1
            self._replacing = list(self.pods)
            self.add(self.luck.uniform(60, 600))
        if not self._replacing or not self.pods[-1].ready(t):
            return
        old = self._replacing.pop(0)
        if old in self.pods:
            self.pods.remove(old)
        if self._replacing:
            self.add(self.luck.uniform(60, 600))

    def snapshot(self, late_by: float = 0.0) -> Snapshot:
        """What a pass sees now."""
        lost, draw = self.temper.lost, self.luck.random
        return snapshot_of(
            self.deployed, [pod.instance(self.t, draw() < lost) for pod in self.pods], self.t, late_by
        )

    def hear(self, probes: tuple[Canary, ...], abandon_after: float, answer_within: float) -> None:
        """Deliver canaries and questions, and close those that nobody will answer."""
        if probes:
            by_uid = {pod.uid: pod for pod in self.pods}
            for canary in probes:
                by_uid[canary.process.uid].ask(canary)
        for pod in self.pods:
            pod.abandon(self.t, abandon_after, answer_within)


def snapshot_of(
    deployed: DeepSeekV4Deployment, instances: list[Instance], mono: float, late_by: float
) -> Snapshot:
    """One pass over instances at monotonic time `mono`."""
    return Snapshot(
        key=Key("llm", "simulated"),
        now=EPOCH + mono,
        mono=mono,
        late_by=late_by,
        observed_since=0.0,
        deployment=deployed,
        resource_version="1",
        uid="d-1",
        instances=tuple(instances),
        replica_sets=(),
        remediations={},
        nodes=None,
        fleet=Fleet(instances=len(instances), newly_sick=0, actions_last_hour=0),
    )


def up_hours(pods: list[Pod], t: float, seconds: float) -> float:
    """Instance-hours of the pods that are Ready at `t`, over `seconds`."""
    return seconds / 3_600 * sum([pod.ready(t) for pod in pods])
