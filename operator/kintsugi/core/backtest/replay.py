"""The replay: each moment of a history through the judge and the decision that run in a cluster, in its own time."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from kintsugi.api.objects import DeepSeekV4Deployment
from kintsugi.api.status import DeploymentStatus
from kintsugi.core.accept import refusals
from kintsugi.core.backtest.asked import Asked
from kintsugi.core.backtest.moments import Moment, moments
from kintsugi.core.backtest.observation import Observed
from kintsugi.core.backtest.timeline import WELL, Timeline
from kintsugi.core.backtest.world import World
from kintsugi.core.decide import decide
from kintsugi.core.evidence import Memory
from kintsugi.core.judge import Judgement, judge
from kintsugi.core.judged import Judged
from kintsugi.core.plan import Action, Plan
from kintsugi.core.snapshot import Page, Snapshot
from kintsugi.core.times import effective_times

QUIET_SECONDS: Final = 60.0
WIDEST: Final = 30.0
"""Seconds between two looks beyond which nothing is evidence (hang paper §1.3), so that there is nothing to replay."""


class Unusable(ValueError):
    """A history that can't be replayed; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which policy, and what is assumed where history can't tell."""

    deployment: DeepSeekV4Deployment
    every: float
    """Seconds between two passes, at most `WIDEST`."""
    paused: tuple[str, ...] = ()
    start_seconds: float = 600.0
    """What a replacement would have taken until it was Ready."""
    free_gpu: bool = True
    infer: bool = True
    """Whether a canary counts as unanswered while the page proves that no step was made (see `asked`)."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that would have been done to an instance, for the first time at `time` (epoch seconds)."""

    time: float
    what: str
    instance: str
    uid: str
    attempt: str
    trigger: str
    remedy: str
    why: str
    gates: tuple[tuple[str, str], ...] = ()
    """The gates that were asked, with their answers."""


@dataclass(slots=True)
class Held:
    """A cure that was held back, by one gate, from `first` to `last` (epoch seconds)."""

    instance: str
    gate: str
    message: str
    first: float
    last: float


@dataclass(slots=True)
class Replay:
    """Everything that came of it."""

    terms: Terms
    timeline: Timeline
    first: float | None = None
    last: float | None = None
    passes: int = 0
    pages: int = 0
    assumed: set[str] = field(default_factory=set)
    """Names of pods of which nothing was known but their pages."""
    deeds: list[Deed] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    pool_findings: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """By pool and finding: first and last time."""
    data: Counter[str] = field(default_factory=Counter)
    """Passes by the reason of the condition DataFresh."""
    missing: str = ""
    """What the condition said last of missing series."""
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By attempt: phase or outcome at the end, and what it said."""
    canaries: dict[str, int] = field(default_factory=dict)
    """By pod UID: canaries that would have been sent beside the idle ones."""
    refused: tuple[str, ...] = ()
    """Why the operator would not run this spec at all: every gate stays closed."""


def adapted(deployment: DeepSeekV4Deployment, every: float) -> DeepSeekV4Deployment:
    """The deployment, read as often as the history was. Raises Unusable where that is too seldom to judge by."""
    if every > WIDEST:
        raise Unusable(
            f"the history holds a look every {every:.0f} s, and gaps of more than {WIDEST:.0f} s are no evidence: "
            "scrape or record the engines every 15 s or more often, and give no larger --step"
        )
    monitoring = deployment.spec.monitoring.model_copy(
        update={"scrape_interval_seconds": max(1, min(30, round(every)))}
    )
    spec = deployment.spec.model_copy(update={"monitoring": monitoring})
    return deployment.model_copy(update={"spec": spec})


def replay(observations: Iterable[Observed], terms: Terms, watch: Callable[[float], None]) -> Replay:
    """Run the whole history. `watch` is told the epoch seconds of every pass. Raises Unusable."""
    deployment = adapted(terms.deployment, terms.every)
    times = effective_times(deployment.spec)
    world = World(deployment, terms.paused, terms.start_seconds, terms.free_gpu)
    made = Replay(terms, Timeline(bridge=3 * terms.every), refused=refusals(deployment))
    memory, asked, quiet = Memory(), Asked(terms.infer), _Quiet()
    for moment in moments(_noting(observations, made), terms.every):
        watch(moment.now)
        _check_pools(moment, deployment)
        snapshot = world.recorded(moment)
        told = asked.results(snapshot.instances, memory, moment.now)
        heard = tuple(replace(i, canaries=told.get(i.uid, ())) for i in snapshot.instances)
        judgement = judge(replace(snapshot, instances=heard), times, memory)
        asked.note(judgement.probes, memory)
        _note_pass(made, moment, judgement)
        if quiet.over(moment, judgement, world.deployment.status):
            seen = world.acted_on(snapshot, times)
            plan = decide(seen, _judged(judgement, world, moment.now), times)
            _note_plan(made, plan, world.apply(plan, seen), seen)
    made.canaries = asked.wanted
    return made


@dataclass(slots=True)
class _Quiet:
    """A fleet that is well, changes nothing and has nothing under way is decided on once a minute: half of the cost."""

    decided: float = -math.inf
    fleet: tuple[tuple[object, ...], ...] = ()

    def over(self, moment: Moment, judgement: Judgement, status: DeploymentStatus) -> bool:
        """Whether there may be something to decide in this pass."""
        books = status.remediations
        busy = books.active or books.withheld or books.storms or books.breakers
        well = all(verdict.verdict in WELL for verdict in judgement.verdicts.values())
        fleet = tuple(
            (i.uid, i.started_at, i.ready, i.in_rotation, i.member, i.deleting, i.revision)
            for i in moment.instances
        )
        same = fleet == self.fleet and moment.now - self.decided < QUIET_SECONDS
        if well and same and not busy:
            return False
        self.fleet, self.decided = fleet, moment.now
        return True


def _noting(observations: Iterable[Observed], made: Replay) -> Iterable[Observed]:
    for seen in observations:
        if seen.assumed:
            made.assumed.add(seen.instance.name)
        yield seen


def _check_pools(moment: Moment, deployment: DeepSeekV4Deployment) -> None:
    known = [pool.name for pool in deployment.spec.pools] or ["main"]
    strange = next((i for i in moment.instances if i.pool not in known), None)
    if strange is not None:
        said = f"pool {strange.pool}" if strange.pool else "no pool"
        raise Unusable(
            f"{strange.name} is of {said}, and the policy has {', '.join(known)}: name the policy's pools as the "
            "history does, or give one pool"
        )


def _judged(judgement: Judgement, world: World, now: float) -> Judged:
    return Judged(
        verdicts=world.verdicts(judgement.verdicts, now),
        data_fresh=judgement.data_fresh,
        data_reason=judgement.data_reason,
        data_message=judgement.data_message,
        pool_findings=judgement.pool_findings,
    )


def _note_pass(made: Replay, moment: Moment, judgement: Judgement) -> None:
    made.first = moment.now if made.first is None else made.first
    made.last = moment.now
    made.passes += 1
    made.pages += moment.pages
    made.data[judgement.data_reason] += 1
    if judgement.data_reason == "SeriesMissing":
        made.missing = judgement.data_message
    for instance in moment.instances:
        read = isinstance(instance.scrape, Page)
        made.timeline.note(instance, judgement.verdicts[instance.uid], read, moment.now)
    made.timeline.close({i.uid for i in moment.instances}, moment.now)
    for pool, findings in judgement.pool_findings.items():
        for finding in findings:
            made.pool_findings.setdefault((pool, finding), [moment.now, moment.now])[1] = moment.now


def _note_plan(made: Replay, plan: Plan, actions: list[Action], seen: Snapshot) -> None:
    attempts = {active.id: active for active in plan.status.remediations.active}
    gates = {each.spec.attempt_id: each.status.gates for each in plan.remediations}
    known = {(deed.what, deed.attempt) for deed in made.deeds}
    names = {i.uid: i.name for i in seen.instances}
    for action in actions:
        what, attempt = type(action).__name__, str(getattr(action, "attempt", ""))
        if (what, attempt) in known:
            continue
        uid, active = str(getattr(action, "uid", "")), attempts.get(attempt)
        made.deeds.append(
            Deed(
                time=seen.now,
                what=what,
                instance=names.get(uid, uid),
                uid=uid,
                attempt=attempt,
                trigger=active.trigger if active else "",
                remedy=active.remedy if active else "",
                why=active.message if active else "",
                gates=tuple((g.name, g.message) for g in gates.get(attempt, ())),
            )
        )
    for active in attempts.values():
        made.outcomes[active.id] = (active.outcome or active.phase, active.message)
    _note_held(made, plan, seen.now)


def _note_held(made: Replay, plan: Plan, now: float) -> None:
    bridge = 3 * made.terms.every
    open_ = {(h.instance, h.gate): h for h in made.held if now - h.last <= bridge}
    for entry in plan.status.remediations.withheld:
        found = open_.get((entry.instance, entry.gate))
        if found is None:
            made.held.append(Held(entry.instance, entry.gate, entry.message, now, now))
        else:
            found.last, found.message = now, entry.message
