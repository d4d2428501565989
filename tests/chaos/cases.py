"""The cases of `make chaos`: what happens, to whom, and how many engines it may cost."""

from typing import Final

from tests.chaos import stories_of_fleets as fleets
from tests.chaos import stories_of_operators as operators
from tests.chaos.stage import GENERAL, LOST, PLACE, Case
from tests.chaos.stories_of_operators import SLOW_STEPS, killed
from tests.integration.sight import Json

STORMS: Final[Json] = {"storm": {"cooldownSeconds": 300}}
"""What a storm is by default: 30 % of a pool or of all engines, and a victim is held for long enough to see whether others
fall sick too: engines without work are found out up to a minute apart, by canaries of their own."""

CASES: Final = (
    # The operator's own life, each with an operator of its own; what takes longest begins first.
    Case("API server refuses half for 3 min", "refused", 1, operators.refused, healing=SLOW_STEPS),
    Case("the operator stands still", "wedged", 1, operators.wedged, healing=SLOW_STEPS),
    Case("API server silent for 90 s", "deaf", 1, operators.black_hole, healing=SLOW_STEPS),
    Case("clock jumps", "clock", 1, operators.clock_jumps, healing=SLOW_STEPS),
    Case("rights lost", "clock", 1, operators.rights_lost, healing=SLOW_STEPS),
    Case("watches gone, resets, slow answers", "reset", 1, operators.resets_and_slowness),
    Case("two operators, the leader freezes and wakes", "frozen", 1, operators.frozen_leader),
    # The operator killed at each step: two operators, three kills each, one after the other.
    Case(
        "operator killed: released, a stream runs",
        "killed",
        1,
        killed(operators.released, "fragmentation"),
        healing=SLOW_STEPS,
    ),
    Case("operator killed: replacement created", "killed", 1, killed(operators.replaced), healing=SLOW_STEPS),
    Case(
        "operator killed: replacement warms up",
        "killed",
        1,
        killed(operators.in_phase("Warming")),
        healing=SLOW_STEPS,
    ),
    Case(
        "operator killed: reserved and withdrawn",
        "killed-too",
        1,
        killed(operators.reserved),
        healing=SLOW_STEPS,
    ),
    Case("operator killed: evicted", "killed-too", 1, killed(operators.evicted), healing=SLOW_STEPS),
    Case(
        "operator killed: on probation",
        "killed-too",
        1,
        killed(operators.in_phase("Probation")),
        healing=SLOW_STEPS,
    ),
    # Trouble around and in fleets: one operator for all of them.
    Case("metrics gone", "calm", 0, fleets.no_metrics),
    Case("all slow together", "calm", 0, fleets.all_slow, 3, STORMS),
    Case("all hang together", "calm", 0, fleets.all_hang, 3, STORMS),
    Case("a PodDisruptionBudget that never allows", "calm", 1, fleets.eviction_refused),
    Case(
        "a replacement that stays Pending",
        "calm",
        1,
        fleets.replacement_pending,
        3,
        place={PLACE: GENERAL, fleets.ROOM: "yes"},
    ),
    Case("the trigger clears during the drain", "calm", 1, fleets.cleared_while_it_drains, 2, SLOW_STEPS),
    Case("two triggers on one instance", "calm", 1, fleets.two_triggers),
    Case("healing during a rollout", "calm", 1, fleets.during_a_rollout, 3),
    Case("a node lost", "calm", 0, fleets.node_lost, 3, place={PLACE: LOST}),
    Case("a foreign finalizer on the victim", "calm", 1, fleets.foreign_finalizer),
    Case("restored from a backup made during a removal", "calm", 0, fleets.restored, healing=SLOW_STEPS),
)
LAST: Final = Case("API server restarted", "calm", 1, operators.api_server_restarted, healing=SLOW_STEPS)
"""It meets everybody, so it comes when all others are over."""
ALL: Final = (*CASES, LAST)

ONE_AFTER_THE_OTHER: Final = frozenset({"killed", "killed-too", "clock"})
"""Operators whose stories would meet each other."""
PROXIED: Final = frozenset({"deaf", "refused", "reset"})
"""Operators that reach the API server through a proxy that makes trouble."""
TWICE: Final = frozenset({"frozen"})
"""Operators of two replicas."""
