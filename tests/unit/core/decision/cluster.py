"""Kubernetes in a few lines: ReplicaSets, a scheduler, a kubelet, and what the operator's actions do to them.

It follows Kubernetes where the decision depends on it: which pod a ReplicaSet ends first, that a released pod is
nobody's, that an ending pod holds its GPU, that a stale write is refused.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kintsugi.core import plan as acts
from kintsugi.core.finding import Detector
from kintsugi.core.names import ATTEMPT_ANNOTATION, RETIRING_SINCE_ANNOTATION
from kintsugi.core.plan import Action
from kintsugi.core.snapshot import Failed, Failure, Instance, ReplicaSet
from tests.unit.core.decision.made import START


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
    scheduled_at: float | None = None
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


class Cluster:
    """Pods, ReplicaSets and other children of one deployment, at one moment."""

    def __init__(self, gpus: int, starts_in: float) -> None:
        self.now = START
        self.gpus = gpus
        self.starts_in = starts_in
        self.ends_in = 10.0
        self.pods: dict[str, Pod] = {}
        self.sets: dict[str, Set] = {}
        self.children: dict[tuple[str, str], Any] = {}
        self.answers: dict[str, bool] = {}
        self.on_start: Callable[[Pod], None] = lambda pod: None
        self.taken: list[tuple[float, Action]] = []
        self._made = 0

    def alive(self, pool: str = "main") -> list[Pod]:
        return [p for p in self.pods.values() if p.pool == pool and p.gone_at is None]

    def alive_everywhere(self) -> list[Pod]:
        return [p for p in self.pods.values() if p.gone_at is None]

    def members(self, pool: str = "main") -> list[Pod]:
        return [p for p in self.alive(pool) if p.member]

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
            scheduled_at=pod.scheduled_at,
            scrape=Failed(Failure.PENDING, "not read in these tests", 0.0),
        )

    def replica_set(self, found: Set) -> ReplicaSet:
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
                self.end(pod)
        for found in self.sets.values():
            self._replicate(found)
        for pod in sorted(self.alive_everywhere(), key=lambda p: p.created_at):
            if not pod.node and self.free() > 0:
                pod.node, pod.started_at, pod.scheduled_at = "node", self.now, self.now
            ready_due = pod.started_at is not None and self.now - pod.started_at >= self.starts_in
            if pod.node and pod.ready_at is None and not pod.never_starts and ready_due:
                pod.ready_at = self.now

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
            self.end(pod)

    def end(self, pod: Pod) -> None:
        if pod.gone_at is None:
            pod.gone_at = self.now + self.ends_in

    def act(self, action: Action) -> None:
        if not isinstance(action, acts.Ask):
            self.taken.append((self.now, action))
        match action:
            case acts.Create(manifest) if manifest["kind"] == "ReplicaSet":
                self._create_set(manifest)
            case acts.Create(manifest) | acts.Apply(manifest):
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
                pod.annotations[ATTEMPT_ANNOTATION] = action.attempt
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
                self.end(pod)

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
