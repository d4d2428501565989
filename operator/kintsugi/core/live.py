"""The last look before a pod is touched: against pods read a moment ago, not those of the pass (safety rule 6)."""

from kintsugi.api.status import ActiveRemediation
from kintsugi.core.attempt import finding_of
from kintsugi.core.plan import Action, Evict, Release, Withdraw
from kintsugi.core.poolview import PoolView
from kintsugi.core.times import Times


def needs_a_last_look(action: Action) -> bool:
    """Whether this action takes something from a pool that serves."""
    return isinstance(action, Withdraw | Release | Evict)


def reason_to_refrain(
    action: Action, active: ActiveRemediation | None, fresh: PoolView, min_healthy_percent: int, times: Times
) -> str | None:
    """Why this action must not be taken now; None where it may.

    `fresh` holds the pool's pods as just read. A released victim's eviction is never held up: the release was the
    decision, and its replacement has started.
    """
    if active is None:
        return "no reservation stands for it"
    assert isinstance(action, Withdraw | Release | Evict)
    victim = fresh.instance(action.uid)
    if victim is None:
        return "the pod is gone"
    if isinstance(action, Evict) and active.path == "Surge":
        return None if not victim.member else "it is still a member of its ReplicaSet"
    if fresh.of_one:
        return None
    need = fresh.must_serve(min_healthy_percent)
    left = fresh.serving(without=[action.uid])
    if left >= need:
        return None
    finding = finding_of(fresh.verdicts.get(action.uid), active.trigger)
    if finding and finding.serves_nothing and finding.silent_seconds >= times.protection_waiver:
        return None
    return f"only {left} serve without it at this moment, {need} must"
