"""What tests ask of a world whose pods are made, scaled and replaced."""

from tests.unit.core.decision.made import pools
from tests.unit.core.decision.world import World


def image(world: World, name: str) -> None:
    """Another engine image: a new revision."""
    world.spec["engine"] = {"image": name}
    world.generation += 1


def scale(world: World, replicas: int) -> None:
    world.spec["pools"] = pools(main=replicas)
    world.generation += 1


def revisions(world: World) -> dict[str, int]:
    """Revision → its pods that are not ending."""
    found: dict[str, int] = {}
    for pod in world.members():
        found[pod.revision] = found.get(pod.revision, 0) + 1
    return found


def wanted(world: World) -> str:
    return world.view().revision


def rolled(world: World) -> bool:
    done = list(revisions(world)) == [wanted(world)] and len(world.sets) == 1
    return done and serving(world) >= world.view().wanted


def serving(world: World) -> int:
    return world.view().serving()


def lowest(world: World, within: float, every: float = 5.0) -> int:
    """Passes until the rollout is over; the fewest that served meanwhile."""
    least, began = serving(world), world.now
    while not rolled(world):
        assert world.now - began < within, world.tell()
        world.step(every)
        least = min(least, serving(world))
    return least
