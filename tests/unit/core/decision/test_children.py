"""Services and disruption budgets: made once, mended where they are ours, never taken from another deployment."""

from kintsugi.core.plan import Action, Apply, Create
from tests.unit.core.decision.made import spec
from tests.unit.core.decision.world import World


def _services(actions: list[Action], kind: type[Create] | type[Apply]) -> list[str]:
    made = [a.manifest for a in actions if isinstance(a, kind)]
    return [m["metadata"]["name"] for m in made if m["kind"] == "Service"]


def test_a_service_that_is_not_ours_yet_is_created_and_so_never_applied_over() -> None:
    """Pool `a-b` of `chat` and pool `b` of `chat-a` would share a Service name: a forced apply would steal traffic."""
    world = World(spec(2))
    world.step()
    taken = [action for _, action in world.taken]
    assert len(_services(taken, Create)) == 1
    assert not _services(taken, Apply)
