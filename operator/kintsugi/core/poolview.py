"""One pool as the decision sees it: its instances, their verdicts, and who serves."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kintsugi.api.effective import Pool
from kintsugi.core.avoidance import may_land
from kintsugi.core.finding import InstanceVerdict, Verdict
from kintsugi.core.render import gpus_of
from kintsugi.core.revision import revision_of
from kintsugi.core.snapshot import Instance, NodeRoom, Quota, ReplicaSet, Snapshot


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool, all its pods (released and ending ones too), its ReplicaSets and verdicts by UID."""

    pool: Pool
    revision: str
    instances: tuple[Instance, ...]
    sets: tuple[ReplicaSet, ...]
    verdicts: Mapping[str, InstanceVerdict]
    room: int | None
    """Instances that the cluster's free GPUs could still take; None where nobody asked."""
    nodes: tuple[NodeRoom, ...] | None = None
    """Nodes on which its new pods may land; None where nobody asked."""
    gpus: int = 0
    """GPUs of one instance."""

    def room_without(self, nodes: Collection[str]) -> int | None:
        """Instances that nodes other than these could take; None where nobody asked."""
        if self.nodes is None:
            return None
        others = tuple(n for n in self.nodes if n.name not in nodes and n.ready and n.schedulable)
        return room_for(others, self.gpus) if others else 0

    @property
    def name(self) -> str:
        return self.pool.name

    @property
    def wanted(self) -> int:
        return self.pool.replicas

    @property
    def of_one(self) -> bool:
        """A pool of one has a path of its own (design §3 and §9)."""
        return self.pool.replicas <= 1

    @property
    def wanted_set(self) -> ReplicaSet | None:
        return next((s for s in self.sets if s.revision == self.revision), None)

    @property
    def old_sets(self) -> tuple[ReplicaSet, ...]:
        return tuple(s for s in self.sets if s.revision != self.revision)

    @property
    def members(self) -> tuple[Instance, ...]:
        """Pods that a ReplicaSet counts."""
        return tuple(i for i in self.instances if i.member and not i.deleting)

    def verdict(self, uid: str) -> Verdict:
        found = self.verdicts.get(uid)
        return found.verdict if found else Verdict.UNKNOWN

    def serves(self, instance: Instance) -> bool:
        """In rotation, Ready and not Sick: what min-healthy counts. One that only grows serves until its limit."""
        usable = instance.in_rotation and instance.ready and not instance.deleting
        sick = self.verdict(instance.uid) is Verdict.SICK
        return usable and (not sick or self.only_grows(instance.uid))

    def only_grows(self, uid: str) -> bool:
        """Sick by nothing but a forecast of its memory."""
        found = self.verdicts.get(uid)
        return found is not None and found.verdict is Verdict.SICK and found.serves

    def serving(self, without: Iterable[str] = ()) -> int:
        """How many serve, leaving out these UIDs."""
        left_out = set(without)
        return sum(1 for i in self.instances if i.uid not in left_out and self.serves(i))

    def must_serve(self, min_healthy_percent: int) -> int:
        """How many must serve without the victim: the share rounded up, and never less than one."""
        return max(1, math.ceil(self.wanted * min_healthy_percent / 100))

    def instance(self, uid: str) -> Instance | None:
        return next((i for i in self.instances if i.uid == uid), None)


def pool_views(
    snapshot: Snapshot, pools: Iterable[Pool], verdicts: Mapping[str, InstanceVerdict]
) -> tuple[PoolView, ...]:
    """The pools that the spec names, each with what belongs to it."""
    spec = snapshot.deployment.spec
    written = {pool.name: pool for pool in spec.pools}
    return tuple(_view(snapshot, pool, revision_of(spec, written.get(pool.name)), verdicts) for pool in pools)


def _view(snapshot: Snapshot, pool: Pool, revision: str, verdicts: Mapping[str, InstanceVerdict]) -> PoolView:
    sets = tuple(s for s in snapshot.replica_sets if s.pool == pool.name)
    nodes, gpus = snapshot.nodes, gpus_of(snapshot.deployment.spec, pool) or 0
    if nodes is not None:
        wanted = next((s for s in sets if s.revision == revision), None)
        nodes = tuple(node for node in nodes if may_land(wanted, node))
    return PoolView(
        pool=pool,
        revision=revision,
        instances=tuple(i for i in snapshot.instances if i.pool == pool.name),
        sets=sets,
        verdicts=verdicts,
        room=_within(snapshot.quotas.get(pool.name), room_for(nodes, gpus)),
        nodes=nodes,
        gpus=gpus,
    )


def _within(quota: Quota | None, room: int | None) -> int | None:
    """No more than what the namespace's quotas allow besides what is there."""
    return room if quota is None or room is None else max(0, min(room, quota.room))


UNBOUNDED_ROOM = 1000
"""Instances without GPUs fit anywhere, as far as GPUs tell."""


def room_for(nodes: tuple[NodeRoom, ...] | None, gpus: int) -> int | None:
    """How many more instances of `gpus` GPUs the ready, schedulable nodes could take."""
    if nodes is None:
        return None
    if gpus == 0:
        return UNBOUNDED_ROOM
    return sum(max(0, node.gpus_free) // gpus for node in nodes if node.ready and node.schedulable)
