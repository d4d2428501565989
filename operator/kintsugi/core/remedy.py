"""One remediation, step by step: a function per phase, from what is seen to what is next (design §2, §3).

Which steps there are says the table of `core.phases`; one that stands not there is not taken.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kintsugi.api.status import ActiveRemediation
from kintsugi.core.approval import awaiting
from kintsugi.core.attempt import Step, World, owes_restore, said
from kintsugi.core.compacting import compacting
from kintsugi.core.gate import Answer
from kintsugi.core.phases import known
from kintsugi.core.plan import Restore
from kintsugi.core.removal import draining, quarantined
from kintsugi.core.succession import probation, replacing, warming


def advance(active: ActiveRemediation, world: World) -> Step:
    """The next step of `active`. Pure; every action it asks for is idempotent."""
    if active.outcome is not None:
        victim = world.view.instance(active.uid)
        if victim is not None and owes_restore(active, victim):
            return Step(active, (Restore(victim.name, victim.uid, active.id),))
        return Step(active)
    phase = COMPACT_PHASES.get(active.phase) if active.remedy == "Compact" else PHASES.get(active.phase)
    if phase is None:
        text = f"its phase {active.phase} is not known to this version: nothing is done"
        return Step(said(active, text), (), Answer("unknownPhase", False, text))
    step = phase(active, world)
    if not known(active.phase, step.active.phase, step.active.outcome):
        outcome = f" ({step.active.outcome})" if step.active.outcome else ""
        text = (
            f"a step from {active.phase} to {step.active.phase}{outcome} is not in the table: nothing is done"
        )
        return Step(said(active, text), (), Answer("unknownPhase", False, text))
    return step


PHASES: Final[Mapping[str, Callable[[ActiveRemediation, World], Step]]] = {
    "AwaitingApproval": awaiting,
    "Quarantined": quarantined,
    "Draining": draining,
    "Replacing": replacing,
    "Warming": warming,
    "Probation": probation,
}
COMPACT_PHASES: Final[Mapping[str, Callable[[ActiveRemediation, World], Step]]] = {
    "AwaitingApproval": awaiting,
    "Quarantined": compacting,
    "Probation": compacting,
}
"""In place: nothing is withdrawn, drained or replaced."""
