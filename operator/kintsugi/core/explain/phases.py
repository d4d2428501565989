"""Words for the steps of an attempt and for the ways in which it ends."""

from collections.abc import Mapping
from typing import Final

NEXT: Final[Mapping[str, str]] = {
    "AwaitingApproval": "a person approves it, or does it by hand",
    "Quarantined": "when the hold is over and every gate is open it drains; given back if the trigger clears, a storm "
    "opens, or a gate closes that only a person opens",
    "Draining": "its running requests end, or the drain's time is over; then it is evicted",
    "Replacing": "its replacement becomes Ready; not cured if that does not start within its budget",
    "Warming": "its replacement's warm-up ends; not cured if that falls sick",
    "Probation": "its replacement stays well for spec.healing.probationSeconds and answers one real request: cured",
    "Done": "it is written into its Remediation and leaves this list",
}
"""What comes after each phase (`core.remedy`)."""

OUTCOMES: Final[Mapping[str, str]] = {
    "Cured": "its replacement was well after its probation",
    "NotCured": "its replacement was sick or did not start; the pool's removals stop",
    "Cancelled": "it was called off, and the instance was given back or went by itself",
    "Ambiguous": "too little is known of the replacement to call it cured; the pool's removals stop",
    "Exhausted": "every remedy of the ladder was tried",
}

UNDONE_UNTIL: Final = frozenset({"AwaitingApproval", "Quarantined"})
"""Phases in which the victim still stands untouched but for its traffic."""
