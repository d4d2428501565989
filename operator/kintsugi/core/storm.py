"""Storms: many instances newly sick at once have a shared cause, and removing them makes it worse (design §9)."""

from collections.abc import Iterable, Mapping

from kintsugi.api.healing import Storm
from kintsugi.api.status import DeploymentStatus, StormStatus
from kintsugi.core.finding import Detector, Verdict
from kintsugi.core.moment import epoch, moment
from kintsugi.core.poolview import PoolView
from kintsugi.core.snapshot import Fleet
from kintsugi.core.times import Times

EVERY_POOL = ""
"""The name under which a storm over all instances of this operator stands."""


def newly_sick(view: PoolView, status: DeploymentStatus, now: float, window: float) -> dict[str, float]:
    """UIDs that fell sick within `window` seconds, removed ones included, with when; from status alone.

    A planned recycle counts towards no storm: memory that grows in all at once is no accident (design §9).
    """
    known = {entry.uid: entry for entry in status.instances if entry.pool == view.name}
    found: dict[str, float] = {}
    for instance in view.instances:
        if view.verdict(instance.uid) is not Verdict.SICK or view.only_grows(instance.uid):
            continue
        entry = known.get(instance.uid)
        since = epoch(entry.since) if entry and entry.verdict == "Sick" and entry.since else now
        found[instance.uid] = since
    for active in status.remediations.active:
        if active.pool == view.name and active.trigger != Detector.GROWING.value:
            found.setdefault(active.uid, epoch(active.detected_at))
    return {uid: since for uid, since in found.items() if since >= now - window}


def weigh_storms(
    status: DeploymentStatus,
    views: Iterable[PoolView],
    storm: Storm,
    fleet: Fleet,
    times: Times,
    now: float,
) -> tuple[StormStatus, ...]:
    """The storms that stand after this pass: opened, kept, half-open or over."""
    before = {entry.pool: entry for entry in status.remediations.storms}
    after: list[StormStatus] = []
    pools = tuple(views)
    everywhere: dict[str, float] = {}
    for view in pools:
        sick = newly_sick(view, status, now, times.storm_window)
        everywhere |= sick
        size = max(view.wanted, 1)
        stood = _weighed(before.get(view.name), view.name, sick, len(sick), size, storm, times, now, (view,))
        after += [stood] if stood else []
    count = max(fleet.newly_sick, len(everywhere))
    size = max(fleet.instances, sum(view.wanted for view in pools), 1)
    over_all = _weighed(before.get(EVERY_POOL), EVERY_POOL, everywhere, count, size, storm, times, now, pools)
    return tuple([over_all, *after] if over_all else after)


def _weighed(
    before: StormStatus | None,
    pool: str,
    sick: Mapping[str, float],
    count: int,
    size: int,
    storm: Storm,
    times: Times,
    now: float,
    views: tuple[PoolView, ...],
) -> StormStatus | None:
    breaks = count >= storm.min_instances and 100 * count > storm.percent * size
    if before is None:
        if not breaks:
            return None
        return StormStatus(
            pool=pool,
            since=moment(now),
            last_sick_at=moment(max(sick.values(), default=now)),
            sick=tuple(sorted(sick)),
        )
    last = max([epoch(before.last_sick_at), *sick.values()])
    names = tuple(sorted({*before.sick, *sick}))[:1000]
    is_new = last > epoch(before.last_sick_at)
    if all_well(views):
        if now - last >= times.storm_cooldown:
            return None
        state = before.state
    elif is_new:
        state = "Open"
    else:
        state = "HalfOpen" if now - last >= times.storm_trial else before.state
    if state == before.state and not is_new and names == before.sick:
        return before
    return before.model_copy(update={"last_sick_at": moment(last), "state": state, "sick": names})


def all_well(views: Iterable[PoolView]) -> bool:
    """Nobody is sick, suspect or unknown: absence of data is not recovery."""
    bad = {Verdict.SICK, Verdict.SUSPECT, Verdict.UNKNOWN}
    return all(
        view.verdict(i.uid) not in bad or view.only_grows(i.uid)
        for view in views
        for i in view.instances
        if not i.deleting
    )


def storm_over(pool: str, storms: Iterable[StormStatus]) -> StormStatus | None:
    """The storm that covers `pool`, the stricter one first; None where there is none."""
    covering = [entry for entry in storms if entry.pool in (pool, EVERY_POOL)]
    return next((entry for entry in covering if entry.state == "Open"), covering[0] if covering else None)
