"""Replica counts of one pool: first start, scaling, and one-at-a-time replacement between revisions.

A rollout stops at the first pod of the new revision that does not become Ready; the old ones serve on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kintsugi.api.objects import DeepSeekV4Deployment
from kintsugi.api.status import RolloutStatus
from kintsugi.core.attempt import DRAIN_SETTLE_SECONDS, FATAL_WAITS
from kintsugi.core.finding import Verdict
from kintsugi.core.moment import epoch, moment
from kintsugi.core.names import RETIRING_SINCE_ANNOTATION
from kintsugi.core.plan import Action, Create, Delete, Retire, Scale, Unretire
from kintsugi.core.poolview import PoolView
from kintsugi.core.render import replica_set, start_budget_seconds
from kintsugi.core.snapshot import Instance, ReplicaSet

RESTARTS_OF_A_BROKEN_START: Final = 2
"""A container that ended twice before it was ever Ready does not come up by waiting."""


@dataclass(frozen=True, slots=True)
class Course:
    """What this pass does about the replica counts of one pool."""

    actions: tuple[Action, ...] = ()
    busy: str = ""
    """What is under way, for the gate `rollout`; '' where the pool stands as wanted."""
    rollout: RolloutStatus | None = None
    strategy: str | None = None
    why: str = ""
    """What holds the pool up, for people."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a pool's course depends on beside the pool itself."""

    deployment: DeepSeekV4Deployment
    uid: str
    now: float
    drain_timeout: float
    healing: bool
    """A remediation is removing or replacing in this pool: one budget for both (design §9). One that only holds its
    victim back, or only watches its replacement, stands in nobody's way: the new revision may be the cure."""
    before: RolloutStatus | None
    retiring: Mapping[str, float | None]
    """UID to epoch seconds: pods that a rollout or a scale-down withdrew."""


def course(view: PoolView, setting: Setting) -> Course:
    """The next step towards the wanted revision and number of replicas."""
    target = view.wanted_set
    olds = tuple(s for s in view.old_sets if s.wanted > 0 or s.actual > 0)
    spent = tuple(
        Delete("apps/v1", "ReplicaSet", s.name, s.uid)
        for s in view.old_sets
        if s.wanted == 0 and s.actual == 0
    )
    if target is None:
        return _first_of_revision(view, olds, setting)
    if olds:
        return _roll(view, target, olds, setting)
    kept = _unretired(view, setting) if target.wanted <= view.wanted else ()
    done = _done(setting, view)
    if target.wanted < view.wanted:
        return Course((*kept, Scale(target.name, view.wanted, target.resource_version)), "scales up", done)
    if target.wanted > view.wanted:
        if setting.healing:
            return Course((), "scale-down waits for a remediation", done)
        return Course(_retire_one(view, target, setting), "scales down", done)
    starting = [i for i in view.members if not i.ready and view.verdict(i.uid) is Verdict.STARTING]
    busy = "starts its first pods" if starting and not any(i.ready_since for i in view.instances) else ""
    return Course((*kept, *spent), busy, done)


def _first_of_revision(view: PoolView, olds: tuple[ReplicaSet, ...], setting: Setting) -> Course:
    if not olds:
        manifest = replica_set(setting.deployment, setting.uid, view.pool, view.revision, view.wanted)
        return Course((Create(manifest),), "starts its first pods", setting.before)
    progress, strategy = _progress(view, setting, olds), _strategy(view, setting)
    if setting.healing:
        return Course((), "rollout waits for a remediation", progress, strategy)
    total = sum(s.wanted for s in view.sets)
    if total < view.wanted or (total == view.wanted and strategy == "Surge"):
        manifest = replica_set(setting.deployment, setting.uid, view.pool, view.revision, min(1, view.wanted))
        return Course((Create(manifest),), "rollout", progress, strategy)
    if strategy is None:
        return Course((), "rollout", progress, None, "looks for room")
    return Course(_retire_one(view, _next_old(view, olds), setting), "rollout", progress, strategy)


def _next_old(view: PoolView, olds: tuple[ReplicaSet, ...]) -> ReplicaSet:
    """The old ReplicaSet that loses a pod next: one whose pods serve nobody first, then the oldest."""
    serving = {i.revision for i in view.instances if view.serves(i)}
    return min(olds, key=lambda s: (s.wanted == 0, s.revision in serving, s.created_at, s.name))


def _surges(view: PoolView) -> bool:
    return (view.room or 0) > 0


def _roll(view: PoolView, target: ReplicaSet, olds: tuple[ReplicaSet, ...], setting: Setting) -> Course:
    strategy = _strategy(view, setting)
    fresh = [i for i in view.members if i.revision == view.revision]
    broken = next((why for i in fresh if (why := _does_not_come_up(i, view, setting.now))), None)
    if broken:
        return Course((), "rollout", _stalled(setting, view, broken), strategy, broken)
    progress = _progress(view, setting, olds)
    if setting.healing:
        return Course((), "rollout waits for a remediation", progress, strategy)
    if len(fresh) < target.wanted or not all(i.ready for i in fresh):
        return Course((), "rollout", progress, strategy)
    if any(view.verdict(i.uid) is Verdict.SICK for i in fresh):
        return Course((), "rollout", _stalled(setting, view, "a pod of the new revision is sick"), strategy)
    total = sum(s.wanted for s in view.sets)
    grow = target.wanted < view.wanted and (
        total < view.wanted or (total == view.wanted and strategy == "Surge")
    )
    if grow:
        scale = Scale(target.name, target.wanted + 1, target.resource_version)
        return Course((scale,), "rollout", progress, strategy)
    if view.room is None and total <= view.wanted and strategy is None:
        return Course((), "rollout", progress, strategy, "looks for room")
    return Course(_retire_one(view, _next_old(view, olds), setting), "rollout", progress, strategy)


def _strategy(view: PoolView, setting: Setting) -> str | None:
    said = setting.deployment.spec.rollout.strategy
    if said != "Auto":
        return said
    return None if view.room is None else ("Surge" if _surges(view) else "DeleteFirst")


def _retire_one(view: PoolView, old: ReplicaSet, setting: Setting) -> tuple[Action, ...]:
    """Withdraw the pod that Kubernetes would end first, wait until nothing runs, then lower the count by one."""
    pods = [i for i in view.members if i.revision == old.revision]
    if len(pods) < old.wanted or not pods:
        return (Scale(old.name, max(old.wanted - 1, 0), old.resource_version),) if old.wanted else ()
    victim = min(
        pods, key=lambda i: (i.ready, i.uid not in setting.retiring, i.in_rotation, -i.created_at, i.name)
    )
    if not victim.ready:
        return (Scale(old.name, old.wanted - 1, old.resource_version),)
    since = setting.retiring.get(victim.uid)
    if since is None:
        unavailable = view.wanted - view.serving(without=[victim.uid])
        if view.serves(victim) and unavailable > setting.deployment.spec.rollout.max_unavailable:
            return ()
        stamp = moment(setting.now).isoformat(timespec="seconds").replace("+00:00", "Z")
        return (Retire(victim.name, victim.uid, stamp),)
    verdict = view.verdicts.get(victim.uid)
    running = verdict.running if verdict and verdict.fresh else None
    waited = setting.now - since
    if (running == 0 and waited >= DRAIN_SETTLE_SECONDS) or waited >= setting.drain_timeout:
        return (Scale(old.name, old.wanted - 1, old.resource_version),)
    return ()


def _unretired(view: PoolView, setting: Setting) -> tuple[Action, ...]:
    return tuple(Unretire(i.name, i.uid) for i in view.members if i.uid in setting.retiring)


def _does_not_come_up(instance: Instance, view: PoolView, now: float) -> str | None:
    if instance.ready or instance.ready_since:
        return None
    if instance.waiting_reason in FATAL_WAITS or instance.restarts >= RESTARTS_OF_A_BROKEN_START:
        why = instance.last_termination.message if instance.last_termination else ""
        why = (why or instance.waiting_message or instance.waiting_reason).strip().split("\n")[0]
        return f"{instance.name} does not start: {why}"[:400]
    if instance.node and now - instance.created_at > start_budget_seconds(view.pool):
        return f"{instance.name} was not Ready within {start_budget_seconds(view.pool)} s"
    return None


def _progress(view: PoolView, setting: Setting, olds: tuple[ReplicaSet, ...]) -> RolloutStatus | None:
    if not olds:
        return setting.before
    return _status(setting, view, "Progressing", "one pod at a time to the new revision")


def _stalled(setting: Setting, view: PoolView, why: str) -> RolloutStatus:
    return _status(setting, view, "Stalled", f"{why}; the old pods serve on: correct the spec")


def _done(setting: Setting, view: PoolView) -> RolloutStatus | None:
    if setting.before is None:
        return None
    return _status(setting, view, "Done", "every pod has the wanted revision")


def _status(setting: Setting, view: PoolView, state: str, message: str) -> RolloutStatus:
    before = setting.before
    same = before is not None and before.state == state and before.revision == view.revision
    since = before.since if before is not None and same else moment(setting.now)
    return RolloutStatus.model_validate(
        {"pool": view.name, "revision": view.revision, "state": state, "message": message, "since": since}
    )


def leaving(view: PoolView, setting: Setting) -> Course:
    """The course of a pool that the spec no longer names: drained one by one, then gone."""
    actions: list[Action] = []
    for old in view.sets:
        if old.wanted == 0 and old.actual == 0:
            actions.append(Delete("apps/v1", "ReplicaSet", old.name, old.uid))
        elif old.wanted > 0 and not setting.healing and not actions:
            actions += _retire_one(view, old, setting)
    return Course(tuple(actions), "the pool is being removed")


def retiring_pods(instances: tuple[Instance, ...]) -> dict[str, float | None]:
    """UID to the time of withdrawal (epoch seconds), of pods that a rollout or a scale-down withdrew.

    None where nobody can read the time: the pod is then withdrawn anew, so that its drain is never cut short.
    """
    found: dict[str, float | None] = {}
    for instance in instances:
        text = instance.annotations.get(RETIRING_SINCE_ANNOTATION)
        if text is not None:
            found[instance.uid] = _read(text)
    return found


def _read(text: str) -> float | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if when.tzinfo is None else epoch(when)
