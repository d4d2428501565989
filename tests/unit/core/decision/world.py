"""One deployment in its cluster, for `decide` alone: faults are scripted, passes are run in simulated time."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kintsugi.api.effective import pools_of
from kintsugi.api.objects import DeepSeekV4Deployment, Remediation, parse_deployment, parse_remediation
from kintsugi.api.status import ActiveRemediation, DeploymentStatus
from kintsugi.core.decide import decide
from kintsugi.core.finding import Detector, InstanceVerdict, Verdict
from kintsugi.core.judged import Judged
from kintsugi.core.plan import Action, Plan
from kintsugi.core.poolview import PoolView, pool_views
from kintsugi.core.snapshot import Fleet, Key, NodeRoom, Snapshot
from kintsugi.core.times import Times, effective_times
from tests.unit.core.decision.cluster import Cluster, Pod
from tests.unit.core.decision.made import START, finding, verdict

__all__ = ["Pod", "World", "at", "kinds", "running_world"]

KEY = Key("llm", "chat")
UID = "d-uid"


class World(Cluster):
    """One deployment in its cluster. `step` lets time pass and runs one pass of the operator."""

    def __init__(self, spec: dict[str, Any], gpus: int = 100, starts_in: float = 60.0) -> None:
        super().__init__(gpus, starts_in)
        self.spec = spec
        self.annotations: dict[str, str] = {}
        self.generation = 1
        self.status = DeploymentStatus()
        self.remediations: dict[str, Remediation] = {}
        self.fleet: Fleet | None = None
        self.nodes_asked = False
        self.on_tick: Callable[[World], None] = lambda world: None
        self.allows: Callable[[Action], bool] = lambda action: True
        self.writes = 0
        self.plans: list[Plan] = []
        self._times: tuple[str, Times] | None = None
        self._read: tuple[tuple[str, str, int], DeploymentStatus, DeepSeekV4Deployment] | None = None

    @property
    def times(self) -> Times:
        written = json.dumps(self.spec)
        if self._times is None or self._times[0] != written:
            self._times = written, effective_times(self.deployment().spec)
        return self._times[1]

    @property
    def paused(self) -> tuple[str, ...]:
        return tuple(self.spec.get("healing", {}).get("pauseRequests", ()))

    def deployment(self) -> DeepSeekV4Deployment:
        """The object as read from the API server: its status has been JSON since it was written."""
        written = (json.dumps(self.spec), json.dumps(self.annotations), self.generation)
        known = self._read
        if known is not None and known[0] == written and known[1] is self.status:
            return known[2]
        read = parse_deployment(
            {
                "metadata": {
                    "name": KEY.name,
                    "namespace": KEY.namespace,
                    "uid": UID,
                    "generation": self.generation,
                    "annotations": dict(self.annotations),
                },
                "spec": self.spec,
                "status": self.status.dump(),
            }
        )
        self._read = written, self.status, read
        return read

    def active(self) -> list[ActiveRemediation]:
        return [a for a in self.status.remediations.active if a.outcome is None]

    def gates(self) -> dict[str, str]:
        """Pod name → the gate that withholds."""
        return {entry.instance: entry.gate for entry in self.status.remediations.withheld}

    def snapshot(self) -> Snapshot:
        deployment = self.deployment()
        active = {a.id for a in deployment.status.remediations.active}
        instances = tuple(self.instance(pod) for pod in self.pods.values())
        book = self.status.remediations
        began = [a.draining_since or a.reserved_at for a in book.active if a.counts_towards_budget]
        began += [r.started_at for r in book.recent if r.counts_towards_budget]
        used = sum(1 for at in began if at.timestamp() > self.now - 3600)
        fleet = self.fleet or Fleet(len(instances), 0, used)
        room = (NodeRoom("node", True, True, self.free()),)
        return Snapshot(
            key=KEY,
            now=self.now,
            mono=self.now - START,
            late_by=0.0,
            observed_since=0.0,
            deployment=deployment,
            resource_version=str(self.writes),
            uid=UID,
            instances=instances,
            replica_sets=tuple(self.replica_set(s) for s in self.sets.values()),
            remediations={key: found for key, found in self.remediations.items() if key in active},
            nodes=room if self.nodes_asked or active else None,
            fleet=fleet,
            children=tuple(self.children.values()),
            answers=dict(self.answers),
            paused=self.paused,
        )

    def judged(self) -> Judged:
        return Judged({pod.uid: self.verdict(pod) for pod in self.pods.values()})

    def verdict(self, pod: Pod) -> InstanceVerdict:
        times = self.times
        found = [finding(d, since, self.now, times) for d, since in pod.faults.items()]
        if self.instance(pod).ready:  # up again between two restarts
            found = [replace(f, serves_nothing=False) if f.detector is Detector.DEAD else f for f in found]
        calm = Verdict.HEALTHY
        if pod.gone_at is not None or pod.blind:
            calm, found = Verdict.UNKNOWN, [f for f in found if f.detector is Detector.DEAD]
        elif pod.ready_at is None:
            calm = Verdict.STARTING
        return verdict(
            pod.uid,
            *found,
            name=pod.name,
            pool=pod.pool,
            calm=calm,
            fresh=not pod.blind and pod.ready_at is not None,
            running=None if pod.blind else pod.running,
            cleared=pod.cleared,
        )

    def views(self, snapshot: Snapshot | None = None, judged: Judged | None = None) -> tuple[PoolView, ...]:
        seen, said = snapshot or self.snapshot(), judged or self.judged()
        return pool_views(seen, pools_of(seen.deployment.spec), said.verdicts)

    def view(self, pool: str = "main") -> PoolView:
        return next(view for view in self.views() if view.name == pool)

    def step(self, seconds: float = 5.0, *, crash: str = "") -> Plan:
        """Time passes, Kubernetes works, the operator makes a pass. `crash`: it dies before `commit`, `record`,
        `act`, or halfway through the actions (`half`)."""
        self.now += seconds
        self.on_tick(self)
        self.kubernetes()
        snapshot = self.snapshot()
        plan = decide(snapshot, self.judged(), self.times)
        self.carry_out(snapshot, plan, crash)
        self.kubernetes()
        return plan

    def run(self, seconds: float, every: float = 5.0) -> Plan:
        """Passes for so long; the last plan."""
        plan = self.step(min(every, seconds))
        end = self.now + seconds - min(every, seconds)
        while self.now < end - 1e-6:
            plan = self.step(min(every, end - self.now))
        return plan

    def until(self, done: Callable[[], bool], within: float, every: float = 5.0) -> float:
        """Passes until `done`; how long it took. Fails after `within` seconds."""
        began = self.now
        while not done():
            assert self.now - began < within, f"not within {within} s: {self.tell()}"
            self.step(every)
        return self.now - began

    def tell(self) -> str:
        """What a person would see of it."""
        active = [(a.instance, a.phase, a.message) for a in self.active()]
        told = [(r.pool, r.state, r.message) for r in self.status.rollouts]
        return f"active {active}; withheld {self.gates()}; rollouts {told}; {self.status.ready}"

    def carry_out(self, snapshot: Snapshot, plan: Plan, crash: str = "") -> bool:
        """Commit, record, act, as the runtime does; False where the commit was refused as stale."""
        self.plans.append(plan)
        if crash == "commit":
            return False
        old = snapshot.deployment.status
        if plan.status != old and plan.status.dump() != old.dump():
            if snapshot.resource_version != str(self.writes):
                return False
            self.status = self._read_back(plan.status)
            self.writes += 1
        self.nodes_asked = plan.needs_nodes
        if crash == "record":
            return True
        for made in plan.remediations:
            if made != self.remediations.get(made.spec.attempt_id):
                self.remediations[made.spec.attempt_id] = parse_remediation(
                    json.loads(json.dumps(made.dump()))
                )
        actions = list(plan.actions)
        if crash == "act":
            return True
        for action in actions[: len(actions) // 2] if crash == "half" else actions:
            if self.allows(action):
                self.act(action)
        return True

    def _read_back(self, status: DeploymentStatus) -> DeploymentStatus:
        return DeploymentStatus.model_validate_json(json.dumps(status.dump()), strict=True)


def running_world(spec: dict[str, Any], gpus: int = 100, starts_in: float = 60.0) -> World:
    """A world whose pools are up and warm, as after a first start an hour ago."""
    world = World(spec, gpus, starts_in=0.0)
    for _ in range(4):
        world.step()
    world.now += 3600.0
    world.starts_in = starts_in
    world.step()
    assert not world.plans[-1].actions, world.plans[-1].actions
    world.plans.clear()
    world.taken.clear()
    return world


def kinds(actions: Iterable[Action]) -> list[str]:
    """The kinds of actions, in order."""
    return [type(action).__name__ for action in actions]


def at(snapshot: Snapshot, **more: Any) -> Snapshot:
    """`snapshot` with some of it replaced."""
    return replace(snapshot, **more)
