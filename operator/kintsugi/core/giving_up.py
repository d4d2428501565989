"""GiveUp: the end of the ladder. The instance is left as it is, its pool serves on, and a person is asked."""

from typing import Final

from kintsugi.api.status import ActiveRemediation
from kintsugi.core.attempt import Step, World, finding_of, finished
from kintsugi.core.moment import epoch, moment
from kintsugi.core.names import RESET_LADDERS_ANNOTATION
from kintsugi.core.plan import Action, Withdraw

WITHDRAW_SECONDS: Final = 60.0
"""A withdrawal that was not taken by then (others fell sick) is given up too. Real seconds."""


def given_up(active: ActiveRemediation, world: World) -> Step:
    """The attempt ends as it begins. What is proven to serve nobody goes out of rotation first, where others serve."""
    victim = world.view.instance(active.uid)
    if victim is None or victim.deleting:
        return Step(finished(active, "Cancelled", "the pod went away by itself", world.now))
    finding = finding_of(world.view.verdicts.get(active.uid), active.trigger)
    others = world.view.serving(without=[active.uid]) > 0
    early = world.now - epoch(active.reserved_at) < WITHDRAW_SECONDS
    idle = finding is not None and finding.serves_nothing and victim.in_rotation
    if idle and others and early and not world.view.of_one:
        out: tuple[Action, ...] = (Withdraw(victim.name, victim.uid, active.id),)
        return Step(active.model_copy(update={"withdrawn_at": active.withdrawn_at or moment(world.now)}), out)
    text = (
        f"every remedy was tried in this line and {active.trigger} came back: it is left as it is, and a person is asked. "
        f"`kintsugi reset` or the annotation {RESET_LADDERS_ANNOTATION} lets healing begin anew"
    )
    return Step(finished(active, "Exhausted", text, world.now))
