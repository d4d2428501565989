"""Replica counts of one pool: first start, scaling, and one-at-a-time replacement between revisions.

A rollout stops at the first pod of the new revision that does not become Ready; the old ones serve on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kintsugi.api.objects import DeepSeekV4Deployment
from kintsugi.api.status import RolloutStatus
from kintsugi.core.attempt import DRAIN_SETTLE_SECONDS, FATAL_WAITS
from kintsugi.core.classify import Retry
from kintsugi.core.classify.of_instance import start_failure
from kintsugi.core.finding import Verdict
from kintsugi.core.moment import epoch, moment
from kintsugi.core.names import RETIRING_SINCE_ANNOTATION
from kintsugi.core.plan import Action, Create, Delete, Retire, Scale, Unretire
from kintsugi.core.poolview import PoolView
from kintsugi.core.render import replica_set, start_budget_seconds
from kintsugi.core.snapshot import Instance, ReplicaSet

RESTARTS_OF_A_BROKEN_START: Final = 2
"""A container that ended twice before it was ever Ready does not come up by waiting."""

UNSCHEDULED_SECONDS: Final = 60.0
"""A pod that no node took for this long lacks room; the scheduler needs milliseconds where there is some."""


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
    operator_image: str
    """As in `Snapshot`."""


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
    kept = _unretired(view, target, setting) if target.wanted <= view.wanted else ()
    done = _done(setting, view)
    if target.wanted < view.wanted:
        return Course((*kept, Scale(target.name, view.wanted, target.resource_version)), "scales up", done)
    if target.wanted > view.wanted:
        if setting.healing and all(i.ready for i in _pods(view, target)):
            return Course((), "scale-down waits for a remediation", done)
        return Course(_retire_one(view, (target,), setting), "scales down", done)
    starting = [i for i in view.members if not i.ready and view.verdict(i.uid) is Verdict.STARTING]
    busy = "starts its first pods" if starting and not any(i.ready_since for i in view.instances) else ""
    return Course((*kept, *spent), busy, done)


def _first_of_revision(view: PoolView, olds: tuple[ReplicaSet, ...], setting: Setting) -> Course:
    if not olds:
        manifest = _manifest(view, setting, view.wanted)
        return Course((Create(manifest),), "starts its first pods", setting.before)
    progress, strategy = _progress(view, setting, olds), _strategy(view, setting)
    if setting.healing:
        return Course((), "rollout waits for a remediation", progress, strategy)
    total = sum(s.wanted for s in view.sets)
    if total < view.wanted or (total == view.wanted and strategy == "Surge"):
        manifest = _manifest(view, setting, min(1, view.wanted))
        return Course((Create(manifest),), "rollout", progress, strategy)
    if strategy is None:
        return Course((), "rollout", progress, None, "looks for room")
    return Course(_retire_one(view, olds, setting), "rollout", progress, strategy)


def _manifest(view: PoolView, setting: Setting, replicas: int) -> dict[str, Any]:
    """The ReplicaSet of the wanted revision: what it says stays for as long as the revision does."""
    return replica_set(
        setting.deployment,
        setting.uid,
        view.pool,
        view.revision,
        replicas,
        operator_image=setting.operator_image,
    )


def _surges(view: PoolView) -> bool:
    return (view.room or 0) > 0


def _roll(view: PoolView, target: ReplicaSet, olds: tuple[ReplicaSet, ...], setting: Setting) -> Course:
    strategy = _strategy(view, setting)
    fresh = _pods(view, target)
    broken = next((why for i in fresh if (why := _does_not_come_up(i, view, setting))), None)
    if broken is None and any(view.verdict(i.uid) is Verdict.SICK for i in fresh):
        broken = "a pod of the new revision is sick"
    if broken:
        return Course((), "rollout", _stalled(setting, view, broken), strategy, broken)
    kept = _unretired(view, target, setting)
    if setting.healing:
        return Course(kept, "rollout waits for a remediation", _progress(view, setting, olds), strategy)
    total = sum(s.wanted for s in view.sets)
    waited_for = next((i for i in fresh if not i.ready), None)
    if len(fresh) < target.wanted or waited_for:
        progress = _progress(view, setting, olds, _waits_for(waited_for))
        if total > view.wanted and waited_for and _lacks_room(waited_for, setting):
            return Course((*kept, *_retire_one(view, olds, setting)), "rollout", progress, "DeleteFirst")
        return Course(kept, "rollout", progress, strategy)
    progress = _progress(view, setting, olds)
    grow = target.wanted < view.wanted and (
        total < view.wanted or (total == view.wanted and strategy == "Surge")
    )
    if grow:
        scale = Scale(target.name, target.wanted + 1, target.resource_version)
        return Course((*kept, scale), "rollout", progress, strategy)
    if view.room is None and total <= view.wanted and strategy is None:
        return Course(kept, "rollout", progress, strategy, "looks for room")
    return Course((*kept, *_retire_one(view, olds, setting)), "rollout", progress, strategy)


def _lacks_room(instance: Instance, setting: Setting) -> bool:
    """The room that a surge counted on was taken: one old instance must go first after all."""
    pending = not instance.node and setting.now - instance.created_at >= UNSCHEDULED_SECONDS
    return pending and setting.deployment.spec.rollout.strategy != "Surge"


def _waits_for(instance: Instance | None) -> str:
    if instance is None:
        return "waits for Kubernetes to make a pod of the new revision"
    why = instance.waiting_reason or ("starting" if instance.node else "not scheduled")
    return f"waits for {instance.name} of the new revision ({why})"


def _strategy(view: PoolView, setting: Setting) -> str | None:
    said = setting.deployment.spec.rollout.strategy
    if said != "Auto":
        return said
    return None if view.room is None else ("Surge" if _surges(view) else "DeleteFirst")


def _pods(view: PoolView, owner: ReplicaSet) -> list[Instance]:
    """The pods that Kubernetes counts for a ReplicaSet: one that ended stays, and is replaced all the same."""
    return [
        i for i in view.members if i.revision == owner.revision and i.phase not in ("Failed", "Succeeded")
    ]


def _retire_one(view: PoolView, olds: tuple[ReplicaSet, ...], setting: Setting) -> tuple[Action, ...]:
    """Withdraw one pod of `olds`, wait until nothing runs on it, then lower its ReplicaSet's count by one.

    The withdrawal makes it the one that Kubernetes ends: it is read back before the count is lowered.
    """
    for old in olds:
        count = len(_pods(view, old))
        if count > old.wanted:
            return ()  # Kubernetes has not ended the last one yet; lowering the count again would take two
        if count < old.wanted:
            return (Scale(old.name, old.wanted - 1, old.resource_version),)
    pods = [(i, old) for old in olds for i in _pods(view, old)]
    if not pods:
        return ()
    victim, old = min(pods, key=lambda pod: _first_to_go(pod[0], view, setting))
    since = setting.retiring.get(victim.uid)
    short = _short_without(victim, view, setting)
    if since is None or victim.in_rotation:
        if view.serves(victim) and short:
            return ()
        stamp = moment(setting.now).isoformat(timespec="seconds").replace("+00:00", "Z")
        return (Retire(victim.name, victim.uid, stamp),)
    if short and victim.ready and view.verdict(victim.uid) is not Verdict.SICK:
        return (Unretire(victim.name, victim.uid),)  # others failed since: it is needed
    verdict = view.verdicts.get(victim.uid)
    running = verdict.running if verdict and verdict.fresh else None
    waited = setting.now - since
    seen_idle = running == 0 and waited - (verdict.page_age if verdict else 0.0) >= DRAIN_SETTLE_SECONDS
    drained = seen_idle or waited >= setting.drain_timeout
    if drained or not victim.ready:
        return (Scale(old.name, old.wanted - 1, old.resource_version),)
    return ()


def _first_to_go(
    instance: Instance, view: PoolView, setting: Setting
) -> tuple[bool, bool, bool, bool, float, str]:
    """Who serves nobody first, as Kubernetes would, then who is withdrawn already, then the sick, then the youngest."""
    sick = view.verdict(instance.uid) is Verdict.SICK
    chosen = instance.uid in setting.retiring
    return (instance.ready, not chosen, not sick, instance.in_rotation, -instance.created_at, instance.name)


def _short_without(victim: Instance, view: PoolView, setting: Setting) -> bool:
    """Whether too few would serve without `victim`: by the rollout's own limit, or by the budget of healing (§9)."""
    spec = setting.deployment.spec
    left = view.serving(without=[victim.uid])
    need = 0 if view.of_one else view.must_serve(spec.healing.budget.min_healthy_percent)
    return view.wanted - left > spec.rollout.max_unavailable or left < need


def _unretired(view: PoolView, kept: ReplicaSet, setting: Setting) -> tuple[Action, ...]:
    """Puts back what was withdrawn of `kept`, but not while Kubernetes still has one of its pods to end."""
    pods = _pods(view, kept)
    if len(pods) > kept.wanted:
        return ()
    well = [i for i in pods if i.uid in setting.retiring and view.verdict(i.uid) is not Verdict.SICK]
    return tuple(Unretire(i.name, i.uid) for i in well)


def _does_not_come_up(instance: Instance, view: PoolView, setting: Setting) -> str | None:
    """Why this pod of the new revision will not be Ready: the rollout goes no further (S06)."""
    if instance.ready or instance.ready_since:
        return None
    starting = instance.started_at is None or view.verdict(instance.uid) is Verdict.STARTING
    failure = start_failure(instance, setting.deployment.spec) if starting else None
    hopeless = instance.waiting_reason in FATAL_WAITS or instance.restarts >= RESTARTS_OF_A_BROKEN_START
    if failure is not None and (hopeless or failure.retry is Retry.NEVER):
        return f"{instance.name} does not start ({failure.kind}): {failure.message}"[:700]
    if hopeless:
        why = instance.last_termination.message if instance.last_termination else ""
        why = (why or instance.waiting_message or instance.waiting_reason).strip().split("\n")[0]
        return f"{instance.name} does not start: {why}"[:400]
    if instance.node and setting.now - instance.start_began_at > start_budget_seconds(view.pool):
        return f"{instance.name} was not Ready within {start_budget_seconds(view.pool)} s"
    return None


def _progress(
    view: PoolView,
    setting: Setting,
    olds: tuple[ReplicaSet, ...],
    message: str = "one pod at a time to the new revision",
) -> RolloutStatus | None:
    return _status(setting, view, "Progressing", message) if olds else setting.before


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
    spent = tuple(
        Delete("apps/v1", "ReplicaSet", s.name, s.uid) for s in view.sets if s.wanted == 0 and s.actual == 0
    )
    olds = tuple(s for s in view.sets if s.wanted > 0 or s.actual > 0)
    retired = () if setting.healing else _retire_one(view, olds, setting)
    return Course((*spent, *retired), "the pool is being removed")


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
