"""One remediation, step by step: a function per phase, from what is seen to what is next.

Phases and their ways out (design §2, §3):

| phase | leaves when | to |
|---|---|---|
| Quarantined | the trigger clears, a storm opens, the pod goes or its process ends by itself | Done (Cancelled) |
| Quarantined | hold over, removal time reached, every gate open | Draining |
| Draining | trigger clears, nothing released yet | Done (Cancelled) |
| Draining | nothing runs, or the deadline: evicted, and seen to go | Replacing |
| Replacing | the replacement is Ready / does not come up | Warming / Done (NotCured) |
| Warming | its warm-up is over / it falls sick / it goes | Probation / Done (NotCured, Ambiguous) |
| Probation | still well, and one real request answered / sick / gone | Done (Cured, NotCured, Ambiguous) |
"""

from collections.abc import Callable, Mapping
from typing import Final

from kintsugi.api.status import ActiveRemediation
from kintsugi.core.attempt import Step, World, owes_restore, said
from kintsugi.core.gate import Answer
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
    phase = PHASES.get(active.phase)
    if phase is None:
        text = f"its phase {active.phase} is not known to this version: nothing is done"
        return Step(said(active, text), (), Answer("unknownPhase", False, text))
    return phase(active, world)


PHASES: Final[Mapping[str, Callable[[ActiveRemediation, World], Step]]] = {
    "Quarantined": quarantined,
    "Draining": draining,
    "Replacing": replacing,
    "Warming": warming,
    "Probation": probation,
}
