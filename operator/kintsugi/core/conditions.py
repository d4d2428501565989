"""The six conditions: the contract of a deployment's status."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kintsugi.api.condition import Condition
from kintsugi.api.status import InstanceStatus, RemediationsStatus
from kintsugi.core.accept import warnings
from kintsugi.core.classify import Retry
from kintsugi.core.classify.kinds import KIND_NAMES
from kintsugi.core.failing import Failing, failing_starts
from kintsugi.core.judged import Judged
from kintsugi.core.poolview import PoolView
from kintsugi.core.rollout import Course
from kintsugi.core.shared_cause import shared_cause
from kintsugi.core.snapshot import Snapshot

GOOD_WHEN: Final = {
    "SpecAccepted": "True",
    "Available": "True",
    "DataFresh": "True",
    "HealingAllowed": "True",
    "Degraded": "False",
}
"""By weight, heaviest first. `Progressing` is neither good nor bad unless its rollout stalls."""


MESSAGE_LENGTH: Final = 1000
"""Characters of a condition's message."""


@dataclass(frozen=True, slots=True)
class State:
    """What the conditions are about."""

    snapshot: Snapshot
    views: tuple[PoolView, ...]
    judged: Judged
    courses: Mapping[str, Course]
    problems: tuple[str, ...]
    remediations: RemediationsStatus
    instances: tuple[InstanceStatus, ...]

    @property
    def failing(self) -> tuple[Failing, ...]:
        """Pods that do not start, by cause."""
        return failing_starts(self.views, self.snapshot.deployment.spec, self.snapshot.now)


def conditions_of(state: State) -> tuple[Condition, ...]:
    """Every condition, each with reason and message."""
    made = (
        ("SpecAccepted", *_spec_accepted(state)),
        ("Available", *_available(state)),
        ("Progressing", *_progressing(state)),
        ("DataFresh", *_data_fresh(state)),
        ("HealingAllowed", *_healing_allowed(state)),
        ("Degraded", *_degraded(state)),
    )
    generation = state.snapshot.deployment.metadata.generation
    return tuple(
        Condition.model_validate(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message[:MESSAGE_LENGTH],
                "observed_generation": generation,
            }
        )
        for kind, status, reason, message in made
    )


def worst_message(conditions: Iterable[Condition]) -> str:
    """The message of the heaviest condition that is not as it should be; '' where all is well."""
    known = {condition.type: condition for condition in conditions}
    progressing = known.get("Progressing")
    if progressing and progressing.reason == "RolloutStalled":
        return progressing.message
    degraded = known.get("Degraded")
    if degraded and degraded.status == "True" and degraded.reason in KIND_NAMES:
        return degraded.message
    for kind, good in GOOD_WHEN.items():
        condition = known.get(kind)
        if condition and condition.status != good:
            return condition.message
    return ""


Said = tuple[str, str, str]


def _all_named(problems: tuple[str, ...]) -> str:
    """Every problem; where that is too long for a condition, the fields of all come first."""
    text = "; ".join(problems)
    if len(text) <= MESSAGE_LENGTH:
        return text
    fields = dict.fromkeys(problem.partition(" ")[0] for problem in problems)
    return f"{len(problems)} errors ({', '.join(fields)}): {text}"


def _spec_accepted(state: State) -> Said:
    unknown = state.snapshot.unknown_fields
    if state.problems:
        return "False", "ConfigInvalid", _all_named(state.problems)
    blamed = [each for each in state.failing if each.wanted and each.failure.blames_spec]
    if blamed:
        said = "; ".join(f"{each.failure.field}: {each.failure.message}" for each in blamed)
        return "False", blamed[0].failure.kind, said
    if unknown:
        return (
            "True",
            "UnknownFields",
            f"accepted; these fields are not known and do nothing: {', '.join(unknown)}",
        )
    if warned := warnings(state.snapshot.deployment):
        return "True", "Accepted", f"accepted, with warnings: {'; '.join(warned)}"
    return "True", "Accepted", ""


def _available(state: State) -> Said:
    short = []
    for view in state.views:
        serving = sum(1 for i in view.instances if i.revision == view.revision and view.serves(i))
        need = max(min(1, view.wanted), view.wanted - state.snapshot.deployment.spec.rollout.max_unavailable)
        if serving < need:
            short.append(
                f"pool {view.name}: {serving} of {view.wanted} instances of the wanted revision serve"
            )
    return ("False", "PoolShort", "; ".join(short)) if short else ("True", "Serving", "")


def _progressing(state: State) -> Said:
    stalled = [c.rollout for c in state.courses.values() if c.rollout and c.rollout.state == "Stalled"]
    if stalled:
        return "False", "RolloutStalled", "; ".join(f"pool {r.pool}: {r.message}" for r in stalled)
    failing = [each for each in state.failing if each.wanted and not each.serves]
    if failing:
        hopeless = any(each.failure.retry is Retry.NEVER for each in failing)
        said = "; ".join(each.message for each in failing)
        return "False" if hopeless else "True", failing[0].failure.kind, said
    busy = [f"pool {name}: {c.busy}" for name, c in sorted(state.courses.items()) if c.busy]
    if busy:
        return "True", "Working", "; ".join(busy)
    healing = [
        a.instance for a in state.remediations.active if a.outcome is None and a.phase != "AwaitingApproval"
    ]
    if healing:
        return "True", "Healing", f"heals {', '.join(sorted(healing))}"
    return "False", "AsWanted", ""


def _data_fresh(state: State) -> Said:
    if state.judged.data_fresh:
        return "True", state.judged.data_reason or "Fresh", state.judged.data_message
    return "False", state.judged.data_reason or "NoData", state.judged.data_message


def _healing_allowed(state: State) -> Said:
    """Pauses, storms and breakers are about the deployment; a single instance's gates are in `withheld`."""
    if state.snapshot.paused:
        return "False", "Paused", f"healing is paused: {', '.join(state.snapshot.paused)}"
    if state.problems:
        return "False", "SpecRefused", "nothing new is done while the spec is not accepted"
    for storm in state.remediations.storms:
        where = f"pool {storm.pool}" if storm.pool else "all instances of this operator"
        if storm.state == "Open":
            text = f"{len(storm.sick)} instances of {where} fell sick together: a shared cause is likely, nothing is removed"
            return "False", "Storm", f"{text}{_in_common(state, storm.pool)}"
    if state.remediations.breakers:
        first = state.remediations.breakers[0]
        return "False", "BreakerOpen", f"pool {first.pool}: {first.message}"
    if not state.judged.data_fresh:
        return "False", "NoData", state.judged.data_message
    if state.snapshot.deployment.spec.healing.mode != "Act":
        mode = state.snapshot.deployment.spec.healing.mode
        asked = (
            "nothing is removed before a person approves it" if mode == "Recommend" else "nothing is removed"
        )
        return "False", f"Mode{mode}", f"mode {mode}: findings are shown, {asked}"
    return "True", "Ready", ""


def _in_common(state: State, pool: str) -> str:
    """What the sick of a storm have in common, as far as this deployment shows it; '' where nothing is seen."""
    instances = [i for i in state.snapshot.instances if pool in ("", i.pool)]
    cause = shared_cause(state.judged.verdicts, instances)
    return f". In common: {cause}" if cause else ""


def _degraded(state: State) -> Said:
    sick = [
        f"{i.name}: {i.findings[0].message if i.findings else i.reason}"
        for i in state.instances
        if i.verdict == "Sick"
    ]
    failing = state.failing
    if failing:
        return "True", failing[0].failure.kind, "; ".join([*(each.message for each in failing), *sick])
    over = {entry.uid for entry in state.remediations.lineages if entry.exhausted}
    given_up = [i.name for i in state.instances if i.verdict == "Sick" and i.uid in over]
    if given_up:
        text = (
            f"every remedy was tried on {', '.join(given_up)}: look at it, then let healing begin anew by "
            f"`kintsugi reset`"
        )
        return "True", "Exhausted", "; ".join([text, *sick])
    if sick:
        return "True", "Sick", "; ".join(sick)
    stalled = [c.why for c in state.courses.values() if c.rollout and c.rollout.state == "Stalled"]
    if stalled:
        return "True", "RolloutStalled", "; ".join(stalled)
    pools = [
        f"pool {name}: {', '.join(found)}"
        for name, found in sorted(state.judged.pool_findings.items())
        if found
    ]
    if pools:
        return "True", "PoolFindings", "; ".join(pools)
    return "False", "Well", ""
