"""One pool as the decision sees it: its instances, their verdicts, and who serves."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kintsugi.api.effective import Pool
from kintsugi.core.finding import InstanceVerdict, Verdict
from kintsugi.core.render import gpus_of
from kintsugi.core.revision import revision_of
from kintsugi.core.snapshot import Instance, NodeRoom, ReplicaSet, Snapshot


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
        """In rotation, Ready and not Sick: what min-healthy counts."""
        usable = instance.in_rotation and instance.ready and not instance.deleting
        return usable and self.verdict(instance.uid) is not Verdict.SICK

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
    return tuple(
        PoolView(
            pool=pool,
            revision=revision_of(spec, written.get(pool.name)),
            instances=tuple(i for i in snapshot.instances if i.pool == pool.name),
            sets=tuple(s for s in snapshot.replica_sets if s.pool == pool.name),
            verdicts=verdicts,
            room=room_for(snapshot.nodes, gpus_of(spec, pool) or 0),
        )
        for pool in pools
    )


UNBOUNDED_ROOM = 1000
"""Instances without GPUs fit anywhere, as far as GPUs tell."""


def room_for(nodes: tuple[NodeRoom, ...] | None, gpus: int) -> int | None:
    """How many more instances of `gpus` GPUs the ready, schedulable nodes could take."""
    if nodes is None:
        return None
    if gpus == 0:
        return UNBOUNDED_ROOM
    return sum(max(0, node.gpus_free) // gpus for node in nodes if node.ready and node.schedulable)
