"""The world that the decision acts in: history, but for what it would have done itself.

A pod that it would have withdrawn counts as withdrawn, one that it would have evicted is gone, and in its place stands
one that is assumed: Ready after a start of the usual length, and well. Nothing of that reaches the judge, which sees
what was recorded and nothing else.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kintsugi.api.effective import DEFAULT_POOL, pools_of
from kintsugi.api.objects import DeepSeekV4Deployment, Remediation
from kintsugi.api.status import DeploymentStatus
from kintsugi.core.backtest.moments import Moment
from kintsugi.core.finding import InstanceVerdict, Verdict
from kintsugi.core.moment import epoch
from kintsugi.core.names import ATTEMPT_ANNOTATION, DEPLOYMENT_KIND
from kintsugi.core.plan import Action, Evict, Plan, Release, Restore, Withdraw
from kintsugi.core.render import gpus_of
from kintsugi.core.revision import revision_of
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
from kintsugi.core.times import Times

SIZE_SECONDS: Final = 600.0
"""A pool is as large as it has been within this time: a pod that is missing is missed."""
ASSUMED: Final = "assumed"
"""Node of an assumed replacement, and the beginning of its name and UID."""


@dataclass(slots=True)
class _StandIn:
    instance: Instance
    victim: str
    ready_at: float


@dataclass(slots=True)
class World:
    """One deployment under a policy. `start_seconds`: what a replacement would have taken to be Ready."""

    deployment: DeepSeekV4Deployment
    paused: tuple[str, ...]
    start_seconds: float
    free_gpu: bool
    observed_since: float | None = None
    out: dict[str, bool] = field(default_factory=dict)
    """By UID: withdrawn (True) or put back (False) by the decision; absent = as recorded."""
    marks: dict[str, str] = field(default_factory=dict)
    """By UID: the attempt that last touched the pod."""
    released: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    remediations: dict[str, Remediation] = field(default_factory=dict)
    _written: Mapping[str, str] = field(init=False)
    """By pool: the revision that the spec asks for, whatever its size."""
    _stand_ins: list[_StandIn] = field(default_factory=list)
    _sizes: deque[tuple[float, Mapping[str, int]]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        spec = self.deployment.spec
        named = {pool.name: revision_of(spec, pool) for pool in spec.pools}
        self._written = named or {DEFAULT_POOL: revision_of(spec, None)}

    def recorded(self, moment: Moment) -> Snapshot:
        """What the judge is given: the instances as they stand in the history."""
        self._measure(moment)
        self.observed_since = moment.now if self.observed_since is None else self.observed_since
        return self._snapshot(moment.now, moment.instances, ())

    def acted_on(self, recorded: Snapshot, times: Times) -> Snapshot:
        """What the decision is given. `recorded` is this pass's own."""
        alive = {i.uid for i in recorded.instances}
        self._clean_up(alive)
        wanted = _newest_revisions(recorded.instances)
        written = self._written
        seen = [
            self._changed(i, written.get(i.pool) if i.revision == wanted[i.pool] else None)
            for i in recorded.instances
            if i.uid not in self.removed
        ]
        seen += [self._stand_in(each, recorded.now, alive) for each in self._stand_ins]
        return replace(
            recorded,
            instances=tuple(seen),
            replica_sets=_sets(seen, self.sizes(), written),
            remediations=dict(self.remediations),
            nodes=self._nodes(recorded.deployment),
            fleet=_fleet(recorded.deployment.status, len(seen), recorded.now, times),
            answers={each.instance.uid: True for each in self._stand_ins},
        )

    def verdicts(self, found: Mapping[str, InstanceVerdict], now: float) -> dict[str, InstanceVerdict]:
        """The judge's verdicts, and that assumed replacements are well."""
        assumed = {each.instance.uid: _assumed_well(each, now) for each in self._stand_ins}
        return {**found, **assumed}

    def apply(self, plan: Plan, snapshot: Snapshot) -> list[Action]:
        """Let the plan come true; the actions that concern an instance."""
        self.deployment = self.deployment.model_copy(update={"status": plan.status})
        known = {active.id for active in plan.status.remediations.active}
        written = {made.spec.attempt_id: made for made in plan.remediations}
        self.remediations = {
            id_: made for id_, made in {**self.remediations, **written}.items() if id_ in known
        }
        taken: list[Action] = []
        by_uid = {i.uid: i for i in snapshot.instances}
        for action in plan.actions:
            if isinstance(action, Withdraw | Restore):
                self.out[action.uid] = isinstance(action, Withdraw)
            elif isinstance(action, Release):
                self.released.add(action.uid)
                self._replace(by_uid[action.uid], snapshot.now)
            elif isinstance(action, Evict):
                self.removed.add(action.uid)
                self._replace(by_uid[action.uid], snapshot.now)
            else:
                continue
            self.marks[action.uid] = action.attempt
            taken.append(action)
        return taken

    def sizes(self) -> dict[str, int]:
        """Instances of each pool that the spec names, as large as it was within `SIZE_SECONDS`."""
        named = [pool.name for pool in pools_of(self.deployment.spec)]
        return {pool: max((size.get(pool, 0) for _, size in self._sizes), default=0) for pool in named}

    def _measure(self, moment: Moment) -> None:
        count: dict[str, int] = {}
        for instance in moment.instances:
            if not instance.deleting and instance.member:
                count[instance.pool] = count.get(instance.pool, 0) + 1
        self._sizes.append((moment.now, count))
        while self._sizes[0][0] < moment.now - SIZE_SECONDS:
            self._sizes.popleft()
        self.deployment = sized(self.deployment, self.sizes())

    def _snapshot(
        self, now: float, instances: tuple[Instance, ...], sets: tuple[ReplicaSet, ...]
    ) -> Snapshot:
        metadata = self.deployment.metadata
        return Snapshot(
            key=Key(metadata.namespace or "default", metadata.name),
            now=now,
            mono=now,
            late_by=0.0,
            observed_since=now if self.observed_since is None else self.observed_since,
            deployment=self.deployment,
            resource_version="1",
            uid=metadata.uid or DEPLOYMENT_KIND,
            instances=instances,
            replica_sets=sets,
            remediations={},
            nodes=None,
            fleet=Fleet(len(instances), 0, 0),
            paused=self.paused,
        )

    def _changed(self, instance: Instance, revision: str | None) -> Instance:
        out = self.out.get(instance.uid, not instance.in_rotation)
        return replace(
            instance,
            revision=revision or instance.revision or "unknown",
            in_rotation=not out,
            member=instance.member and instance.uid not in self.released,
            annotations={ATTEMPT_ANNOTATION: mark} if (mark := self.marks.get(instance.uid)) else {},
        )

    def _replace(self, victim: Instance, now: float) -> None:
        if any(each.victim == victim.uid for each in self._stand_ins):
            return
        name = f"{ASSUMED}-{victim.uid}"[:63]
        fresh = replace(
            victim,
            name=name,
            uid=name,
            node=ASSUMED,
            created_at=now,
            scheduled_at=now,
            phase="Running",
            started_at=now,
            ready=False,
            ready_since=None,
            in_rotation=True,
            member=True,
            deleting=False,
            restarts=0,
            last_termination=None,
            annotations={},
            scrape=Failed(Failure.PENDING, "assumed, never recorded", now),
        )
        self._stand_ins.append(_StandIn(fresh, victim.uid, now + self.start_seconds))

    def _stand_in(self, each: _StandIn, now: float, alive: set[str]) -> Instance:
        """It serves while its victim's pod stands in the history: after that, history has a replacement of its own."""
        ready = now >= each.ready_at
        return replace(
            each.instance,
            ready=ready,
            ready_since=each.ready_at if ready else None,
            in_rotation=each.victim in alive,
        )

    def _clean_up(self, alive: set[str]) -> None:
        named = {a.replacement_uid for a in self.deployment.status.remediations.active}
        self._stand_ins = [s for s in self._stand_ins if s.victim in alive or s.instance.uid in named]
        held = alive | {a.uid for a in self.deployment.status.remediations.active}
        self.out = {uid: out for uid, out in self.out.items() if uid in held}
        self.marks = {uid: attempt for uid, attempt in self.marks.items() if uid in held}
        self.released &= held
        self.removed &= held

    def _nodes(self, deployment: DeepSeekV4Deployment) -> tuple[NodeRoom, ...]:
        if not self.free_gpu:
            return ()
        most = max((gpus_of(deployment.spec, pool) or 0 for pool in pools_of(deployment.spec)), default=0)
        return (NodeRoom(ASSUMED, True, True, max(1, most)),)


def sized(deployment: DeepSeekV4Deployment, sizes: Mapping[str, int]) -> DeepSeekV4Deployment:
    """The deployment with the pools as large as they were; the same object where they are that large already."""
    spec = deployment.spec
    if {pool.name: pool.replicas for pool in pools_of(spec)} == dict(sizes):
        return deployment
    if spec.pools:
        pools = tuple(pool.model_copy(update={"replicas": sizes[pool.name]}) for pool in spec.pools)
        changed = spec.model_copy(update={"pools": pools, "replicas": None, "scale_pool": None})
    else:
        changed = spec.model_copy(update={"replicas": sizes[DEFAULT_POOL]})
    return deployment.model_copy(update={"spec": changed})


def _newest_revisions(instances: Iterable[Instance]) -> dict[str, str]:
    found: dict[str, tuple[float, str]] = {}
    for instance in instances:
        at = (instance.created_at, instance.revision)
        found[instance.pool] = max(found.get(instance.pool, at), at)
    return {pool: revision for pool, (_, revision) in found.items()}


def _sets(
    instances: Iterable[Instance], sizes: Mapping[str, int], written: Mapping[str, str]
) -> tuple[ReplicaSet, ...]:
    """The ReplicaSets that must have stood behind these pods: the wanted one is as large as the pool, less old ones."""
    counted: dict[tuple[str, str], int] = {(pool, written[pool]): 0 for pool in sizes}
    for instance in instances:
        if instance.member and not instance.deleting:
            key = (instance.pool, instance.revision)
            counted[key] = counted.get(key, 0) + 1
    found = []
    for (pool, revision), count in counted.items():
        old = sum(n for (p, r), n in counted.items() if p == pool and r != revision)
        wanted = max(0, sizes.get(pool, 0) - old) if revision == written.get(pool) else count
        name = f"{pool}-{revision}"
        found.append(ReplicaSet(name, name, pool, revision, wanted, count, 0.0, "1"))
    return tuple(found)


def _fleet(status: DeploymentStatus, instances: int, now: float, times: Times) -> Fleet:
    """This deployment's own share: nothing is known of others under the same operator."""
    books = status.remediations
    began = [
        *(epoch(a.reserved_at) for a in books.active if a.counts_towards_budget),
        *(epoch(r.started_at) for r in books.recent if r.counts_towards_budget),
    ]
    since = now - times.storm_window
    newly = {i.uid for i in status.instances if i.verdict == "Sick" and i.since and epoch(i.since) >= since}
    newly |= {a.uid for a in books.active if epoch(a.detected_at) >= since}
    return Fleet(instances, len(newly), sum(at > now - times.budget_hour for at in began))


def _assumed_well(each: _StandIn, now: float) -> InstanceVerdict:
    ready = now >= each.ready_at
    return InstanceVerdict(
        uid=each.instance.uid,
        name=each.instance.name,
        pool=each.instance.pool,
        verdict=Verdict.HEALTHY if ready else Verdict.STARTING,
        reason="Assumed",
        message="an assumed replacement: nothing of it was recorded",
    )
