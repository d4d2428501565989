"""What this operator knows of all its deployments together: for the operator-wide storm and the hourly cap."""

from dataclasses import dataclass

from kintsugi.api.seen import InstanceStatus
from kintsugi.api.status import DeploymentStatus
from kintsugi.core.finding import Detector, Severity
from kintsugi.core.moment import epoch
from kintsugi.core.snapshot import Fleet, Key, Snapshot
from kintsugi.core.times import Times


@dataclass(frozen=True, slots=True)
class _Share:
    instances: int
    newly_sick: int
    actions: int


def _only_grows(instance: InstanceStatus) -> bool:
    """Sick by a forecast of its memory alone, which counts towards no storm."""
    sick = [each.detector for each in instance.findings if each.severity == Severity.SICK.name]
    return bool(sick) and all(name == Detector.GROWING.value for name in sick)


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
            if i.verdict == "Sick" and i.since and epoch(i.since) >= sick_since and not _only_grows(i)
        } | {
            a.uid
            for a in status.remediations.active
            if epoch(a.detected_at) >= sick_since and a.trigger != Detector.GROWING.value
        }
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
