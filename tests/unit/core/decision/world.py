"""A cluster in a few lines, for `decide` alone: ReplicaSets, a scheduler, engines whose faults are scripted.

It follows Kubernetes where the decision depends on it: which pod a ReplicaSet ends first, that a released pod is
nobody's, that an ending pod holds its GPU, that a stale write is refused.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from kintsugi.api.effective import pools_of
from kintsugi.api.objects import DeepSeekV4Deployment, Remediation, parse_deployment, parse_remediation
from kintsugi.api.status import ActiveRemediation, DeploymentStatus
from kintsugi.core import plan as acts
from kintsugi.core.decide import decide
from kintsugi.core.finding import Detector, InstanceVerdict, Verdict
from kintsugi.core.judged import Judged
from kintsugi.core.names import RETIRING_SINCE_ANNOTATION
from kintsugi.core.plan import Action, Plan
from kintsugi.core.poolview import PoolView, pool_views
from kintsugi.core.snapshot import (
    Failed,
    Failure,
    Fleet,
    Instance,
    Key,
    NodeRoom,
    ReplicaSet,
    Snapshot,
)
from kintsugi.core.times import Times, effective_times
from tests.unit.core.decision.made import START, finding, verdict

KEY = Key("llm", "chat")
UID = "d-uid"


@dataclass
class Pod:
    """One pod. `faults` maps a detector to the epoch seconds at which its symptom began."""

    name: str
    uid: str
    pool: str
    revision: str
    created_at: float
    node: str = ""
    ready_at: float | None = None
    in_rotation: bool = True
    member: bool = True
    gone_at: float | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    faults: dict[Detector, float] = field(default_factory=dict)
    blind: bool = False
    running: float | None = 0.0
    ready: bool = True
    started_at: float | None = None
    never_starts: str = ""
    """A waiting reason such as CrashLoopBackOff: the container does not come up."""
    phase: str = ""
    restarts: int = 0
    cleared: frozenset[Detector] = frozenset()


@dataclass
class Set:
    """One ReplicaSet."""

    name: str
    pool: str
    revision: str
    wanted: int
    created_at: float
    version: int = 1


class World:
    """One deployment in its cluster. `step` lets time pass and runs one pass of the operator."""

    def __init__(self, spec: dict[str, Any], gpus: int = 100, starts_in: float = 60.0) -> None:
        self.now = START
        self.spec = spec
        self.annotations: dict[str, str] = {}
        self.generation = 1
        self.status = DeploymentStatus()
        self.gpus = gpus
        self.starts_in = starts_in
        self.ends_in = 10.0
        self.pods: dict[str, Pod] = {}
        self.sets: dict[str, Set] = {}
        self.remediations: dict[str, Remediation] = {}
        self.children: dict[tuple[str, str], Any] = {}
        self.answers: dict[str, bool] = {}
        self.fleet: Fleet | None = None
        self.nodes_asked = False
        self.on_start: Callable[[Pod], None] = lambda pod: None
        self.on_tick: Callable[[World], None] = lambda world: None
        self.allows: Callable[[Action], bool] = lambda action: True
        self.writes = 0
        self.plans: list[Plan] = []
        self.taken: list[tuple[float, Action]] = []
        self._made = 0
        self._times: tuple[str, Times] | None = None
        self._read: tuple[tuple[str, str, int], DeploymentStatus, DeepSeekV4Deployment] | None = None

    # what is there ----------------------------------------------------------------------------------------------

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

    def alive(self, pool: str = "main") -> list[Pod]:
        return [p for p in self.pods.values() if p.pool == pool and p.gone_at is None]

    def members(self, pool: str = "main") -> list[Pod]:
        return [p for p in self.alive(pool) if p.member]

    def active(self) -> list[ActiveRemediation]:
        return [a for a in self.status.remediations.active if a.outcome is None]

    def gates(self) -> dict[str, str]:
        """Pod name → the gate that withholds."""
        return {entry.instance: entry.gate for entry in self.status.remediations.withheld}

    def free(self) -> int:
        held = sum(1 for p in self.pods.values() if p.node)
        return max(0, self.gpus - held)

    def instance(self, pod: Pod) -> Instance:
        ready = pod.ready_at is not None and pod.ready and pod.gone_at is None and not pod.phase
        return Instance(
            name=pod.name,
            uid=pod.uid,
            pool=pod.pool,
            revision=pod.revision,
            node=pod.node,
            created_at=pod.created_at,
            phase=pod.phase or ("Running" if pod.node else "Pending"),
            phase_reason="",
            started_at=pod.started_at,
            ready=ready,
            ready_since=pod.ready_at if ready else None,
            in_rotation=pod.in_rotation,
            member=pod.member,
            deleting=pod.gone_at is not None,
            restarts=pod.restarts,
            waiting_reason=pod.never_starts,
            waiting_message="",
            last_termination=None,
            pod_ip="10.0.0.1",
            annotations=dict(pod.annotations),
            scrape=Failed(Failure.PENDING, "not read in these tests", 0.0),
        )

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
            replica_sets=tuple(self._set(s) for s in self.sets.values()),
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

    # what happens ------------------------------------------------------------------------------------------------

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

    def act(self, action: Action) -> None:
        if not isinstance(action, acts.Ask):
            self.taken.append((self.now, action))
        match action:
            case acts.Create(manifest):
                self._create_set(manifest)
            case acts.Apply(manifest):
                name = manifest["metadata"]["name"]
                made = json.loads(json.dumps(manifest))
                made["metadata"]["uid"] = f"uid-{name}"
                self.children[manifest["kind"], name] = made
            case acts.Delete(_, "ReplicaSet", name, _):
                self.sets.pop(name, None)
            case acts.Delete(_, kind, name, _):
                self.children.pop((kind, name), None)
            case acts.Scale(name, replicas, version):
                found = self.sets.get(name)
                if found and str(found.version) == version:
                    found.wanted, found.version = replicas, found.version + 1
            case acts.Ask(uid):
                self.answers.setdefault(uid, True)
            case _:
                self._act_on_pod(action)

    def _act_on_pod(self, action: Action) -> None:
        pod = self.pods.get(getattr(action, "uid", ""))
        if pod is None:
            return
        match action:
            case acts.Withdraw():
                pod.in_rotation = False
                pod.annotations["kintsugi.dev/attempt"] = action.attempt
            case acts.Restore():
                pod.in_rotation = True
            case acts.Release():
                pod.member = False
            case acts.Retire(since=since):
                pod.in_rotation = False
                pod.annotations[RETIRING_SINCE_ANNOTATION] = since
            case acts.Unretire():
                pod.in_rotation = True
                pod.annotations.pop(RETIRING_SINCE_ANNOTATION, None)
            case acts.Evict():
                self._end(pod)

    def _create_set(self, manifest: Any) -> None:
        name = manifest["metadata"]["name"]
        labels = manifest["metadata"]["labels"]
        if name not in self.sets:
            self.sets[name] = Set(
                name,
                labels["kintsugi.dev/pool"],
                labels["kintsugi.dev/revision"],
                manifest["spec"]["replicas"],
                self.now,
            )

    def _end(self, pod: Pod) -> None:
        if pod.gone_at is None:
            pod.gone_at = self.now + self.ends_in

    def _set(self, found: Set) -> ReplicaSet:
        actual = len(self.pods_of(found))
        return ReplicaSet(
            found.name,
            f"uid-{found.name}",
            found.pool,
            found.revision,
            found.wanted,
            actual,
            found.created_at,
            str(found.version),
        )

    def pods_of(self, found: Set) -> list[Pod]:
        """What a ReplicaSet counts: pods that ended stay, and are replaced all the same."""
        mine = [p for p in self.members(found.pool) if p.revision == found.revision]
        return [p for p in mine if p.phase not in ("Failed", "Succeeded")]

    def kubernetes(self) -> None:
        """ReplicaSet controller, scheduler, kubelet and garbage collector, each once."""
        for uid in [u for u, p in self.pods.items() if p.gone_at is not None and p.gone_at <= self.now]:
            del self.pods[uid]
        names = {(s.pool, s.revision) for s in self.sets.values()}
        for pod in self.alive_everywhere():
            if pod.member and (pod.pool, pod.revision) not in names:
                self._end(pod)
        for found in self.sets.values():
            self._replicate(found)
        for pod in sorted(self.alive_everywhere(), key=lambda p: p.created_at):
            if not pod.node and self.free() > 0:
                pod.node, pod.started_at = "node", self.now
            ready_due = pod.started_at is not None and self.now - pod.started_at >= self.starts_in
            if pod.node and pod.ready_at is None and not pod.never_starts and ready_due:
                pod.ready_at = self.now

    def alive_everywhere(self) -> list[Pod]:
        return [p for p in self.pods.values() if p.gone_at is None]

    def _replicate(self, found: Set) -> None:
        mine = self.pods_of(found)
        for _ in range(found.wanted - len(mine)):
            self._made += 1
            pod = Pod(
                f"{found.name}-{self._made}", f"u{self._made:07d}x", found.pool, found.revision, self.now
            )
            self.pods[pod.uid] = pod
            self.on_start(pod)

        def rank(pod: Pod) -> tuple[bool, bool, float, float]:
            ready = pod.ready_at is not None and pod.ready
            cost = -1000.0 if RETIRING_SINCE_ANNOTATION in pod.annotations else 0.0
            return bool(pod.node), ready, cost, -pod.created_at

        for pod in sorted(mine, key=rank)[: max(0, len(mine) - found.wanted)]:
            self._end(pod)


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
