"""What tests ask of a world in which one pod is healed."""

from collections.abc import Callable

from kintsugi.api.status import ActiveRemediation, RecentRemediation
from kintsugi.core.finding import Detector
from tests.unit.core.decision.world import Pod, World, kinds

ROOM, NO_ROOM = 100, 4
"""GPUs: enough for a surge, and just those of a pool of four."""


def sick(world: World, detector: Detector = Detector.FRAGMENTED, index: int = 0) -> Pod:
    """The pod at `index` of pool main, which falls sick now."""
    pod = world.members()[index]
    pod.faults[detector] = world.now
    return pod


def only(world: World) -> ActiveRemediation:
    (active,) = world.status.remediations.active
    return active


def phase(world: World) -> str:
    return only(world).phase if world.status.remediations.active else "none"


def last(world: World) -> RecentRemediation:
    return world.status.remediations.recent[-1]


def ended(world: World) -> Callable[[], bool]:
    return lambda: not world.status.remediations.active and bool(world.status.remediations.recent)


def taken(world: World) -> list[str]:
    return kinds(action for _, action in world.taken)


def done_at(world: World, kind: type) -> float:
    return next(when for when, action in world.taken if isinstance(action, kind))
