"""What a gate is asked, and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass

from kintsugi.api.status import ActiveRemediation, DeploymentStatus, StormStatus
from kintsugi.core.finding import Finding
from kintsugi.core.poolview import PoolView
from kintsugi.core.snapshot import Instance, Snapshot
from kintsugi.core.times import Times


@dataclass(frozen=True, slots=True)
class Answer:
    """One gate's answer. `next_check` in epoch seconds, where it is known when the gate may open by itself."""

    gate: str
    open: bool
    message: str
    next_check: float | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """May this instance be withdrawn (`removal` False) or removed (True) for this finding?"""

    snapshot: Snapshot
    status: DeploymentStatus
    storms: tuple[StormStatus, ...]
    times: Times
    view: PoolView
    instance: Instance
    finding: Finding
    active: tuple[ActiveRemediation, ...]
    """Reservations in force, those of this pass included."""
    attempt: str
    """Id of the attempt that asks, so that it does not count against itself."""
    removal: bool
    rollout: str
    """What a rollout or a scaling is doing in the pool; '' where nothing."""
    problems: tuple[str, ...] = ()
    remedy: str = "Recreate"
    """The rung that is to be climbed."""

    @property
    def withdrawn_uids(self) -> set[str]:
        """Victims of other attempts in this pool that are out, or go out in this pass."""
        held = [a for a in self.active if a.pool == self.view.name and a.phase != "AwaitingApproval"]
        return {a.uid for a in held if a.outcome is None}

    @property
    def others(self) -> list[ActiveRemediation]:
        """Other attempts of this pool that use the budget, those included that have ended and are not in the books yet.

        A stalled engine that is only withdrawn uses none: else several of them would wait for each other for ever.
        """
        return [a for a in self.everywhere if a.pool == self.view.name]

    @property
    def everywhere(self) -> list[ActiveRemediation]:
        """The same in every pool of the deployment."""
        return [a for a in self.active if a.id != self.attempt and a.counts_towards_budget]


Gate = Callable[[Question], Answer]
