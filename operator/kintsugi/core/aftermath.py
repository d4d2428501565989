"""What an attempt is verified by, beyond the replacement's own verdict: the trigger's signal, traffic, and the pool.

Safety rules 19 and 23: Ready alone proves nothing, and an action after which the pool serves worse is the last one.
"""

from typing import Any, Final

from kintsugi.api.status import ActiveRemediation
from kintsugi.core.finding import Detector, InstanceVerdict
from kintsugi.core.poolview import PoolView
from kintsugi_engine import contract

ERROR_POINTS: Final = 5.0
"""Percentage points by which the pool's failed requests must rise to count as worse: our choice, above what 99 % bounds
of two windows with some hundred requests leave open."""
ERROR_FACTOR: Final = 2.0
"""And at least so many times as before."""

_SIGNALS: Final = {
    Detector.FRAGMENTED.value: frozenset({contract.GPU_FRAGMENTATION, contract.KV_ORPHANED_BLOCKS_RATIO}),
    Detector.SLOW.value: frozenset({"vllm:iteration_tokens_total_count"}),
}
"""Series by which a trigger is seen; with none of them nobody can say that the fault is gone."""


def before(view: PoolView, uid: str) -> dict[str, Any]:
    """How the pool serves without the victim when its removal is decided: fields of the reservation."""
    return {"served_before": view.serving(without={uid}), "errors_before": _errors(view, without=uid)}


def unmeasured(active: ActiveRemediation, verdict: InstanceVerdict) -> str:
    """Why the trigger's own signal says nothing of the replacement; '' where it does."""
    wanted = _SIGNALS.get(active.trigger, frozenset())
    if not wanted or not wanted <= set(verdict.missing):
        return ""
    return f"its replacement does not export what {active.trigger} is seen by"


def without_traffic(active: ActiveRemediation, view: PoolView) -> str:
    """Why users' requests are missed at the replacement; '' where it had some, or its siblings have none either."""
    if active.traffic_seen:
        return ""
    uid = active.replacement_uid or ""
    busy = [
        i.name
        for i in view.instances
        if i.uid not in (uid, active.uid) and view.serves(i) and _runs(view, i.uid)
    ]
    return f"no request of a user reached its replacement, though {busy[0]} has some" if busy else ""


def with_traffic(active: ActiveRemediation, view: PoolView) -> ActiveRemediation:
    """`active`, which remembers that its replacement was seen to serve users."""
    if active.traffic_seen or not _runs(view, active.replacement_uid or ""):
        return active
    return active.model_copy(update={"traffic_seen": True})


def worse(active: ActiveRemediation, view: PoolView) -> str:
    """In what the pool serves worse after the attempt than before it; '' where it does not."""
    now = view.serving()
    if active.served_before is not None and now < min(active.served_before, view.wanted):
        return f"the pool serves worse than before: {now} instances serve, {active.served_before} did without the victim"
    errors = _errors(view)
    known = active.errors_before
    if errors is not None and known is not None and errors > max(known + ERROR_POINTS, ERROR_FACTOR * known):
        return f"the pool serves worse than before: {errors:.0f} % of its requests fail, {known:.0f} % did before"
    return ""


def _runs(view: PoolView, uid: str) -> bool:
    verdict = view.verdicts.get(uid)
    return bool(verdict and verdict.fresh and verdict.running)


def _errors(view: PoolView, without: str = "") -> float | None:
    """Mean percentage of failed requests over the instances that serve; None where none says."""
    serving = [i.uid for i in view.instances if i.uid != without and view.serves(i)]
    told = [
        float(verdict.signals["error_percent"])
        for uid in serving
        if (verdict := view.verdicts.get(uid)) is not None
        and verdict.signals.get("error_percent") is not None
    ]
    return min(100.0, sum(told) / len(told)) if told else None
