"""Pods that do not start, and why, for the conditions: each cause once, with its cure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.classify import StartFailure, kinds
from kintsugi.core.classify.of_instance import adapter_failure, failed_again, start_failure
from kintsugi.core.finding import Detector
from kintsugi.core.poolview import PoolView
from kintsugi.core.snapshot import Instance

PASSING_SECONDS: Final = 60.0
"""Some causes pass by themselves: while a GPU or a volume is handed from one pod to the next. Real seconds."""
_PASSING: Final = frozenset(
    kind.name
    for kind in (
        kinds.UNSCHEDULABLE,
        kinds.MOUNT_FAILED,
        kinds.MULTI_ATTACH,
        kinds.PVC_UNBOUND,
        kinds.SANDBOX_FAILED,
    )
)
MOST_NAMED: Final = 3
"""Pods that a message names; of the others it gives the number."""


@dataclass(frozen=True, slots=True)
class Failing:
    """Pods of one pool and revision that fail to start for the same reason."""

    pool: str
    wanted: bool
    """They are of the revision that the spec asks for now."""
    pods: tuple[str, ...]
    failure: StartFailure
    serves: bool = False
    """They serve all the same: an adapter is missing, not the engine."""

    @property
    def message(self) -> str:
        """For conditions."""
        more = len(self.pods) - MOST_NAMED
        named = ", ".join(self.pods[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        one = len(self.pods) == 1
        what = (
            ("serves" if one else "serve") if self.serves else ("does not start" if one else "do not start")
        )
        return f"pool {self.pool}: {named} {what} ({self.failure.kind}): {self.failure.message}"


def failing_starts(views: Iterable[PoolView], spec: DeploymentSpec, now: float) -> tuple[Failing, ...]:
    """Every cause for which pods do not start now, those of the wanted revision first. `now` in epoch seconds.

    Pods with the same kind of failure and the same field are one entry, in the words of the oldest: what each engine
    writes differs by request ids, addresses and the like.
    """
    found: dict[tuple[bool, str, bool, str, str], tuple[StartFailure, list[str]]] = {}
    for view in views:
        for instance in sorted(view.members, key=lambda i: (i.created_at, i.name)):
            failure = _failure(instance, view, spec, now)
            if failure is not None:
                old = instance.revision != view.revision
                cause = (old, view.name, instance.ready, failure.kind, failure.field)
                found.setdefault(cause, (failure, []))[1].append(instance.name)
    return tuple(
        Failing(pool, not old, tuple(pods), failure, serves)
        for (old, pool, serves, _, _), (failure, pods) in sorted(found.items(), key=lambda entry: entry[0])
    )


def _failure(instance: Instance, view: PoolView, spec: DeploymentSpec, now: float) -> StartFailure | None:
    failure = start_failure(instance, spec)
    if failure is not None and _counts(instance, view, failure, now):
        return failure
    return adapter_failure(instance, spec)


def _counts(instance: Instance, view: PoolView, failure: StartFailure, now: float) -> bool:
    """An engine that served and is restarted in place is down, not failing to start, unless that can't help."""
    if failure.kind in _PASSING and now - instance.created_at < PASSING_SECONDS:
        return False
    verdict = view.verdicts.get(instance.uid)
    about_life = [f for f in verdict.findings if f.detector is Detector.DEAD] if verdict else []
    if any(finding.reason == failure.kind for finding in about_life):
        return True
    return not failure.recreate_helps and any(failed_again(instance, finding.since) for finding in about_life)
