"""What this operator knows of all its deployments together: for the operator-wide storm and the hourly cap."""

from dataclasses import dataclass

from kintsugi.api.status import DeploymentStatus
from kintsugi.core.moment import epoch
from kintsugi.core.snapshot import Fleet, Key, Snapshot
from kintsugi.core.times import Times


@dataclass(frozen=True, slots=True)
class _Share:
    instances: int
    newly_sick: int
    actions: int


class FleetBook:
    """The latest share of each deployment; a deleted one vanishes."""

    def __init__(self) -> None:
        self._shares: dict[Key, _Share] = {}

    def note(self, snapshot: Snapshot, status: DeploymentStatus, times: Times) -> None:
        """Keep what a pass found."""
        now = snapshot.now
        hour_ago = now - times.budget_hour
        began = [
            *(epoch(a.reserved_at) for a in status.remediations.active if a.counts_towards_budget),
            *(epoch(r.started_at) for r in status.remediations.recent if r.counts_towards_budget),
        ]
        sick_since = now - times.storm_window
        newly = {
            i.uid
            for i in status.instances
            if i.verdict == "Sick" and i.since and epoch(i.since) >= sick_since
        } | {a.uid for a in status.remediations.active if epoch(a.detected_at) >= sick_since}
        self._shares[snapshot.key] = _Share(
            instances=len(snapshot.instances),
            newly_sick=len(newly),
            actions=sum(1 for at in began if at > hour_ago),
        )

    def forget(self, key: Key) -> None:
        """The deployment is gone."""
        self._shares.pop(key, None)

    def fleet(self) -> Fleet:
        """The sum over all deployments."""
        shares = self._shares.values()
        return Fleet(
            instances=sum(share.instances for share in shares),
            newly_sick=sum(share.newly_sick for share in shares),
            actions_last_hour=sum(share.actions for share in shares),
        )
