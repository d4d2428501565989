"""What a pass does about nodes: strikes are dealt, ReplicaSets are told to avoid, pods that a node refused are discarded."""

from collections.abc import Iterable

from kintsugi.api.status import ActiveRemediation, DeploymentStatus, StrikeStatus
from kintsugi.core.avoidance import avoid, avoiding
from kintsugi.core.names import POOL_LABEL
from kintsugi.core.plan import Action, Create, Discard
from kintsugi.core.poolview import PoolView
from kintsugi.core.snapshot import Snapshot
from kintsugi.core.strikes import Blow, in_force, moved_away, refused, reset_at, strikes_after
from kintsugi.core.times import Times


def strikes_of_pass(
    snapshot: Snapshot,
    views: Iterable[PoolView],
    status: DeploymentStatus,
    active: tuple[ActiveRemediation, ...],
    times: Times,
) -> tuple[StrikeStatus, ...]:
    """The strikes after this pass: one for each instance whose move was decided in it, and for each pod refused."""
    removing = {a.id for a in status.remediations.active if a.draining_since is not None}
    blows: list[Blow] = []
    for view in views:
        blows += [Blow(i, "NodeRefused", False) for i in view.instances if refused(view.verdicts.get(i.uid))]
        for attempt in active:
            moves = attempt.remedy == "RecreateElsewhere" and attempt.draining_since is not None
            victim = view.instance(attempt.uid)
            if moves and attempt.id not in removing and victim is not None:
                blows.append(moved_away(victim, attempt.trigger))
    reset = reset_at(snapshot.deployment, snapshot.now)
    return strikes_after(status.remediations.strikes, blows, snapshot.nodes, snapshot.now, reset, times)


def keep_off(
    snapshot: Snapshot, views: Iterable[PoolView], strikes: tuple[StrikeStatus, ...]
) -> tuple[Action, ...]:
    """Bring every ReplicaSet that still makes pods to avoid what it must, and nothing else."""
    found = []
    for view in views:
        hosts = sorted(in_force(strikes, view.name, snapshot.now).values())
        for owned in view.sets:
            if owned.wanted > 0 or owned.actual > 0 or owned.revision == view.revision:
                found.append(avoid(owned, hosts))
    return tuple(action for action in found if action is not None)


def made_off(actions: Iterable[Action], strikes: tuple[StrikeStatus, ...], now: float) -> tuple[Action, ...]:
    """`actions`, in which ReplicaSets that are about to be made avoid nodes from their first pod on."""
    return tuple(_made_off(action, strikes, now) for action in actions)


def _made_off(action: Action, strikes: tuple[StrikeStatus, ...], now: float) -> Action:
    if not isinstance(action, Create) or action.manifest.get("kind") != "ReplicaSet":
        return action
    pool = str(action.manifest["metadata"]["labels"][POOL_LABEL])
    return Create(avoiding(action.manifest, sorted(in_force(strikes, pool, now).values())))


def discards(views: Iterable[PoolView], status: DeploymentStatus) -> tuple[Action, ...]:
    """Pods that a node refused, once their strike is on record: left alone they pile up by thousands (S24)."""
    counted = {uid for entry in status.remediations.strikes for uid in entry.pods}
    return tuple(
        Discard(i.name, i.uid)
        for view in views
        for i in view.instances
        if i.uid in counted and not i.deleting and refused(view.verdicts.get(i.uid))
    )


def told_to_avoid(active: ActiveRemediation, view: PoolView, status: DeploymentStatus, now: float) -> bool:
    """Whether the ReplicaSet that will replace the victim keeps off its node already, where it has to."""
    if active.remedy != "RecreateElsewhere":
        return True
    host = in_force(status.remediations.strikes, view.name, now).get(active.node)
    owner = next((s for s in view.sets if s.revision == active.revision), None)
    return host is None or (owner is not None and host in owner.avoids)
