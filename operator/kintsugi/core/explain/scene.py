"""What a diagnosis looks at: the status of a fleet, its spec, and the pages of its engines; each may be missing."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from kintsugi.api.condition import find_condition
from kintsugi.api.healing import Triggers
from kintsugi.api.status import FindingStatus, InstanceStatus
from kintsugi.core.advisor.traffic import InstanceTraffic, PoolTraffic
from kintsugi.core.explain.case import Case
from kintsugi.core.preflight.check import check
from kintsugi.core.preflight.finding import Finding

State = Literal["ok", "suspect", "unknown"]

LEAST_SECONDS: Final = 30.0
"""A window shorter than this gives no rate: one burst would pass for the traffic. Assumed."""
_UNSEEN: Final = frozenset({"Unknown", "Starting"})


@dataclass(frozen=True, slots=True)
class Step:
    """One question of the list, answered. `numbers` are those that the answer rests on, by name and unit."""

    claim: str
    """The claim of the article that it belongs to."""
    name: str
    question: str
    state: State
    said: str
    numbers: Mapping[str, float]
    truth: str
    """What is true about the article's advice here."""
    cure: str
    """What to do; where the state is unknown, how to know."""


@dataclass(frozen=True, slots=True)
class Question:
    """One step of the list before it is answered."""

    claim: str
    name: str
    text: str
    truth: str
    cure: str
    """Where the answer is `suspect`."""
    how_to_know: str
    """Where it is `unknown`."""

    def ok(self, said: str, numbers: Mapping[str, float] | None = None) -> Step:
        """Nothing speaks for this cause, and enough was seen."""
        return self._step("ok", said, numbers, "")

    def suspect(self, said: str, numbers: Mapping[str, float] | None = None) -> Step:
        """Something speaks for this cause."""
        return self._step("suspect", said, numbers, self.cure)

    def unknown(self, said: str, numbers: Mapping[str, float] | None = None) -> Step:
        """Too little is known to say."""
        return self._step("unknown", said, numbers, self.how_to_know)

    def _step(self, state: State, said: str, numbers: Mapping[str, float] | None, cure: str) -> Step:
        kept = {key: round(value, 3) for key, value in (numbers or {}).items() if math.isfinite(value)}
        return Step(self.claim, self.name, self.text, state, said, kept, self.truth, cure)


@dataclass(frozen=True, slots=True)
class Scene:
    """`case` None: no status and no spec. `traffic` None: no pages were read."""

    name: str
    case: Case | None = None
    raw: Mapping[str, Any] | None = None
    """The object as written, for the rules."""
    traffic: Mapping[str, PoolTraffic] | None = None

    @property
    def triggers(self) -> Triggers:
        """Thresholds in force; the defaults, which are the article's, where no spec tells."""
        if self.case is None or self.case.spec is None:
            return Triggers()
        return self.case.spec.healing.triggers

    def engines(self) -> tuple[InstanceTraffic, ...]:
        """Every instance whose pages count."""
        return tuple(one for pool in (self.traffic or {}).values() for one in pool.instances)

    def judged(self) -> tuple[InstanceStatus, ...]:
        """Instances that the operator has an opinion on."""
        if self.case is None:
            return ()
        return tuple(one for one in self.case.status.instances if one.verdict not in _UNSEEN)

    def working(self) -> tuple[InstanceStatus, ...]:
        """Those of them whose work tells something: warmed up, awake, with requests, and neither dead nor hung."""
        quiet = ("WarmingUp", "NoRequests", "Asleep", "Terminating")
        return tuple(
            one
            for one in self.judged()
            if one.reason not in quiet
            and not any(each.detector in ("dead", "stall") for each in one.findings)
        )

    def unseen(self) -> int:
        """Instances that it has none on."""
        return 0 if self.case is None else len(self.case.status.instances) - len(self.judged())

    def found(self, detector: str, *reasons: str) -> list[tuple[str, FindingStatus]]:
        """(instance, finding) of one detector, or of some of its reasons."""
        if self.case is None:
            return []
        return [
            (one.name, each)
            for one in self.case.status.instances
            for each in one.findings
            if each.detector == detector and (not reasons or each.reason in reasons)
        ]

    def condition(self, kind: str) -> tuple[str, str, str]:
        """(status, reason, message) of a condition; empty texts where it is not there."""
        found = find_condition(self.case.status.conditions, kind) if self.case is not None else None
        return (found.status, found.reason, found.message) if found is not None else ("", "", "")

    def rules(self, *names: str) -> list[Finding] | None:
        """What those rules find in the spec; None where there is no spec that can be read."""
        if self.raw is None or self.case is None or self.case.spec is None:
            return None
        wanted = {key: self.raw[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in self.raw}
        found = check(wanted)
        if any(each.rule == "InvalidField" for each in found):
            hit = [each for each in found if each.rule in names]
            return hit or None
        return [each for each in found if each.rule in names]


def rates(engines: tuple[InstanceTraffic, ...], counter: str) -> dict[str, float]:
    """By instance: how fast a counter rose, per second, where its pages tell and the window is long enough."""
    found = {}
    for one in engines:
        gained = one.gained(counter)
        if gained is not None and one.seconds >= LEAST_SECONDS:
            found[one.name] = gained / one.seconds
    return found


def gained(engines: tuple[InstanceTraffic, ...], counter: str) -> float | None:
    """The rise of a counter over all instances that tell; None where none does."""
    known = [value for one in engines if (value := one.gained(counter)) is not None]
    return math.fsum(known) if known else None


def worst(
    values: Mapping[str, float], key: Callable[[float], float] = lambda value: value
) -> tuple[str, float] | None:
    """(instance, value) of the largest `key`; of a tie the first name; None of nothing."""
    if not values:
        return None
    name = min(values, key=lambda each: (-key(values[each]), each))
    return name, values[name]


def named(found: list[tuple[str, FindingStatus]]) -> str:
    """Findings in one line, the first three told."""
    told = "; ".join(f"{instance}: {each.reason}: {each.message}"[:240] for instance, each in found[:3])
    return told + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
