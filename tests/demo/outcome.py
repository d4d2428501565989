"""What each scenario came to, whether that is right, and how it is written down."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HEALED = "healed"
HELD_BACK = "heldBack"
WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One scenario's entry of `build/demo.json`. Seconds are None where there is nothing to measure."""

    name: str
    outcome: str
    withheld_by: str | None
    replaced: int
    requests: int
    requests_failed: int
    requests_lost: int
    detect_seconds: float | None = None
    withdraw_seconds: float | None = None
    replace_seconds: float | None = None
    remark: str = ""
    """For people: why it is wrong, or what was seen. Not written to the file."""

    def document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "outcome": self.outcome,
            "withheldBy": self.withheld_by,
            "replaced": self.replaced,
            "requests": self.requests,
            "requestsFailed": self.requests_failed,
            "requestsLostToFault": self.requests_lost,
            "detectSeconds": _rounded(self.detect_seconds),
            "withdrawSeconds": _rounded(self.withdraw_seconds),
            "replaceSeconds": _rounded(self.replace_seconds),
        }


EXPECTED: dict[str, tuple[str, str | None]] = {
    "fragmentation": (HEALED, None),
    "throughput": (HEALED, None),
    "hang": (HEALED, None),
    "storm": (HELD_BACK, "storm"),
    "metricsOutage": (HELD_BACK, "noData"),
}
"""The right outcome of each scenario, and the gate that must have held it back."""


def faults_of(outcome: Outcome) -> list[str]:
    """What is not as it must be, in words; empty where all is right."""
    kind, gate = EXPECTED[outcome.name]
    found = []
    if outcome.outcome != kind:
        found.append(f"{outcome.outcome}, must be {kind}")
    if outcome.withheld_by != gate:
        found.append(f"withheld by {outcome.withheld_by}, must be {gate}")
    wanted = 1 if kind == HEALED else 0
    if outcome.replaced != wanted:
        found.append(f"{outcome.replaced} pods replaced, must be {wanted}")
    if outcome.requests == 0:
        found.append("no requests were sent, so it shows nothing")
    if outcome.requests_failed:
        found.append(f"{outcome.requests_failed} requests failed")
    if outcome.requests_lost and outcome.name != "hang":
        found.append(f"{outcome.requests_lost} requests swallowed, though nothing hung")
    return found


def missing(outcomes: Sequence[Outcome]) -> list[str]:
    """Scenarios that left no outcome."""
    return [name for name in EXPECTED if name not in {outcome.name for outcome in outcomes}]


def write(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write the file, its folder too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"scenarios": [outcome.document() for outcome in outcomes]}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)
