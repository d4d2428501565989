"""The state machine of a remediation, as a table: from which phase to which, with which outcome, and when.

`remedy.advance` takes no step that stands not here, and `docs/remediation.md` prints it.
"""

from dataclasses import dataclass
from typing import Final, get_args

from kintsugi.api.remediation import Outcome, Phase


@dataclass(frozen=True, slots=True)
class Transition:
    """One way out of a phase (None: the attempt is made). `outcome` where it ends the attempt."""

    phase: Phase | None
    to: Phase
    outcome: Outcome | None
    when: str


TRANSITIONS: Final[tuple[Transition, ...]] = (
    Transition(
        None, "AwaitingApproval", None, "Sick in mode Recommend, and every gate but `approval` is open"
    ),
    Transition(None, "Quarantined", None, "Sick in mode Act, and every gate is open"),
    Transition(
        "Quarantined",
        "Probation",
        None,
        "Compact: nothing is withdrawn, the engine is asked to release cached memory",
    ),
    Transition(
        "Quarantined",
        "Done",
        "Exhausted",
        "GiveUp: every rung of the ladder was tried in this line within its memory, and a person is asked",
    ),
    Transition(
        "AwaitingApproval",
        "Quarantined",
        None,
        "a person approved it, or the mode became Act, and every gate is open when asked again",
    ),
    Transition(
        "AwaitingApproval",
        "Done",
        "Cancelled",
        "the trigger cleared, another finding takes over, the mode became Observe, or the process or the pod is "
        "gone: the approval expires with it",
    ),
    Transition(
        "Quarantined",
        "Draining",
        None,
        "the hold is over, the removal time is reached, and every gate is open",
    ),
    Transition(
        "Quarantined",
        "Done",
        "Cancelled",
        "the trigger cleared, a storm opened, a person said so, too few others serve, or the process or the pod is "
        "gone: put back",
    ),
    Transition(
        "Draining", "Replacing", None, "nothing runs any more or the deadline passed; evicted, and seen to go"
    ),
    Transition(
        "Draining",
        "Done",
        "Cancelled",
        "the trigger cleared, a storm opened or the process ended before anything was released: put back",
    ),
    Transition("Replacing", "Warming", None, "the replacement is Ready"),
    Transition("Replacing", "Done", "NotCured", "the replacement does not start"),
    Transition(
        "Replacing",
        "Done",
        "Cancelled",
        "the trigger cleared after the release, a rollout brings the replacement, or the pool was made smaller",
    ),
    Transition("Warming", "Probation", None, "the replacement's warm-up is over"),
    Transition("Warming", "Done", "NotCured", "the replacement is sick"),
    Transition("Warming", "Done", "Ambiguous", "the replacement was removed before it was verified"),
    Transition(
        "Warming", "Done", "Cancelled", "a rollout replaced the replacement, or its pool left the spec"
    ),
    Transition(
        "Probation",
        "Done",
        "Cured",
        "the probation is over: the trigger's own signal is read and well, a real request was answered, and users' "
        "requests reach it if they reach its siblings",
    ),
    Transition(
        "Probation",
        "Done",
        "NotCured",
        "the replacement is sick, does not answer a real request, or the pool serves worse than before",
    ),
    Transition(
        "Probation",
        "Done",
        "Ambiguous",
        "the replacement was removed, or twice the probation shows too little of it",
    ),
    Transition(
        "Probation", "Done", "Cancelled", "a rollout replaced the replacement, or its pool left the spec"
    ),
)

PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
_KNOWN: Final = frozenset((t.phase, t.to, t.outcome) for t in TRANSITIONS)


def known(phase: str | None, to: str, outcome: str | None) -> bool:
    """Whether the table has this step. Staying where one is needs no row."""
    stays = phase == to and (outcome is None or phase == "Done")
    return stays or (phase, to, outcome) in _KNOWN


def table() -> str:
    """The transitions as a Markdown table, in the order of the phases."""
    rows = [
        f"| {t.phase or '—'} | {t.to}{f' (**{t.outcome}**)' if t.outcome else ''} | {t.when} |"
        for t in TRANSITIONS
    ]
    return "\n".join(["| from | to | when |", "|---|---|---|", *rows])
