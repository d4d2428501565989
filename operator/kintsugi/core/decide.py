"""From verdicts to a plan: pure. One action budget for rollout, scaling and healing; every refusal has a reason."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kintsugi.api.effective import pools_of
from kintsugi.api.status import ActiveRemediation, DeploymentStatus, StormStatus, WithheldAction
from kintsugi.core.accept import refusals
from kintsugi.core.approval import approver_of, waiting
from kintsugi.core.attempt import World, orphaned
from kintsugi.core.children import children
from kintsugi.core.finding import Detector, Finding, InstanceVerdict, Severity, Verdict
from kintsugi.core.gate import Answer, Question, ask_gates, first_closed
from kintsugi.core.judged import Judged
from kintsugi.core.ladder import next_rung, wants_another_node
from kintsugi.core.ledger import book, reserve
from kintsugi.core.moment import moment
from kintsugi.core.moving import discards, keep_off, made_off, strikes_of_pass, told_to_avoid
from kintsugi.core.names import ATTEMPT_ANNOTATION, RETIRING_SINCE_ANNOTATION
from kintsugi.core.nodemarks import node_marks
from kintsugi.core.plan import Action, Plan, Restore, Shadow
from kintsugi.core.poolview import PoolView, pool_views
from kintsugi.core.record import remediation_of
from kintsugi.core.remedy import advance
from kintsugi.core.render import start_budget_seconds
from kintsugi.core.report import Facts, report
from kintsugi.core.rollout import Course, Setting, course, leaving, retiring_pods
from kintsugi.core.snapshot import Instance, Snapshot
from kintsugi.core.storm import storm_over, weigh_storms
from kintsugi.core.strikes import in_force, refused
from kintsugi.core.times import Times
from kintsugi.core.transition import happenings

BY_MODE: Final = ("Act", "Recommend", "Observe")
"""Of several findings the one that may do most is acted upon."""
REPLACING: Final = frozenset({"Draining", "Replacing"})
"""Phases in which a remediation takes an instance out of its pool."""


def decide(snapshot: Snapshot, judged: Judged, times: Times) -> Plan:
    """The plan of one pass. Same input, same plan."""
    spec, status = snapshot.deployment.spec, snapshot.deployment.status
    problems = refusals(snapshot.deployment)
    pools = pools_of(spec)
    views = pool_views(snapshot, pools, judged.verdicts)
    storms = weigh_storms(status, views, spec.healing.storm, snapshot.fleet, times, snapshot.now)
    courses = _courses(snapshot, views, status, times, accepted=not problems)
    healing = _Healing(snapshot, status, times, views, courses, storms, problems)
    healing.go_on()
    healing.begin()
    actions: list[Action] = [] if problems else list(children(snapshot, pools))
    for taken in courses.values():
        actions += taken.actions
    actions += healing.actions
    strikes = strikes_of_pass(snapshot, views, status, tuple(healing.active), times)
    actions = [
        *keep_off(snapshot, views, strikes),
        *discards(views, status),
        *made_off(actions, strikes, snapshot.now),
    ]
    allowed = spec.healing.node_actions
    strikes, marks, look = node_marks(strikes, snapshot.nodes, allowed, snapshot.uid, snapshot.now)
    actions += marks
    remediations = book(
        status, tuple(healing.active), snapshot, storms, tuple(healing.withheld), strikes, times
    )
    facts = Facts(snapshot, views, judged, courses, problems, remediations)
    after = report(facts, status)
    busy = bool(healing.active) or any(taken.busy for taken in courses.values())
    return Plan(
        status=after,
        remediations=tuple(
            remediation_of(
                active, snapshot, judged.verdicts.get(active.uid), healing.answers.get(active.id, ())
            )
            for active in healing.active
        ),
        actions=tuple(actions),
        happenings=happenings(status, after),
        needs_nodes=busy or healing.needs_nodes or look,
        shadows=tuple(healing.shadows),
    )


def _courses(
    snapshot: Snapshot, views: tuple[PoolView, ...], status: DeploymentStatus, times: Times, accepted: bool
) -> dict[str, Course]:
    """Each pool's course; none while the spec is not accepted, so that what serves goes on serving."""
    if not accepted:
        return {view.name: Course() for view in views}
    before = {entry.pool: entry for entry in status.rollouts}
    retiring = retiring_pods(snapshot.instances)
    single = {view.name for view in views if view.of_one}
    busy_pools = {
        a.pool for a in status.remediations.active if a.phase in REPLACING and not _let_go(a, single)
    }
    settings = Setting(
        snapshot.deployment,
        snapshot.uid,
        snapshot.now,
        times.drain_timeout,
        False,
        None,
        retiring,
        snapshot.operator_image,
    )
    found = {
        view.name: course(
            view, replace(settings, healing=view.name in busy_pools, before=before.get(view.name))
        )
        for view in views
    }
    named = {view.name for view in views}
    for pool in sorted({s.pool for s in snapshot.replica_sets} - named):
        orphan = _orphan(snapshot, views[0], pool)
        found[pool] = leaving(orphan, replace(settings, healing=pool in busy_pools))
    return found


def _let_go(active: ActiveRemediation, single: set[str]) -> bool:
    """The only instance of a pool, released, serves until another is Ready: a new revision may have to bring that."""
    return active.phase == "Draining" and active.released_at is not None and active.pool in single


def _orphan(snapshot: Snapshot, pattern: PoolView, pool: str) -> PoolView:
    return replace(
        pattern,
        pool=replace(pattern.pool, name=pool, replicas=0),
        revision="",
        instances=tuple(i for i in snapshot.instances if i.pool == pool),
        sets=tuple(s for s in snapshot.replica_sets if s.pool == pool),
    )


class _Healing:
    """The remediations of one pass, in order: those under way, then new ones."""

    def __init__(
        self,
        snapshot: Snapshot,
        status: DeploymentStatus,
        times: Times,
        views: tuple[PoolView, ...],
        courses: Mapping[str, Course],
        storms: tuple[StormStatus, ...],
        problems: tuple[str, ...],
    ) -> None:
        self._snapshot = snapshot
        self._status = status
        self._times = times
        self._views = {view.name: view for view in views}
        self._courses = courses
        self._storms = storms
        self._problems = problems
        self.active: list[ActiveRemediation] = list(status.remediations.active)
        self.actions: list[Action] = []
        self.withheld: list[WithheldAction] = []
        self.answers: dict[str, tuple[Answer, ...]] = {}
        self.needs_nodes = False
        self.shadows: list[Shadow] = []
        """Whether room on other nodes has to be looked up."""

    def go_on(self) -> None:
        """Advance what is under way."""
        for index, active in enumerate(self.active):
            view = self._views.get(active.pool)
            if view is None and active.phase == "Draining" and active.released_at is not None:
                view = _orphan(self._snapshot, next(iter(self._views.values())), active.pool)
            if view is None:
                self.active[index] = orphaned(active, self._snapshot.now)
                continue
            step = advance(active, self._world(active, view))
            self.active[index] = step.active
            self.actions += step.actions
            if step.answers:
                self.answers[active.id] = step.answers
            if step.withheld:
                self._withhold(active.instance, step.withheld)

    def begin(self) -> None:
        """Reserve new remediations, the surest findings first."""
        under_way = {a.uid for a in self.active}
        replacements = {a.replacement_uid for a in self.active if a.outcome is None}
        for view, instance, finding in sorted(self._candidates(), key=_surest_first):
            if instance.uid in under_way or instance.uid in replacements:
                continue
            self.needs_nodes |= self._mode(finding) != "Observe"
            self._consider(view, instance, finding)
        self._report_blindness(under_way)
        self._report_unclaimed(under_way)
        self._give_back_strays()

    def _mode(self, finding: Finding) -> str:
        return self._snapshot.deployment.spec.healing.mode_of(finding.detector.value)

    def _candidates(self) -> list[tuple[PoolView, Instance, Finding]]:
        return [
            (view, instance, finding)
            for view in self._views.values()
            for instance in view.instances
            if not instance.deleting
            and instance.member
            and (verdict := view.verdicts.get(instance.uid)) is not None
            and not refused(verdict)
            and (finding := self._weightiest(verdict)) is not None
        ]

    def _weightiest(self, verdict: InstanceVerdict) -> Finding | None:
        """The Sick finding to act on: one that only observes hides none that acts, one without a remedy
        none that has one, and the surest comes first."""
        healing = self._snapshot.deployment.spec.healing
        sick = [f for f in verdict.findings if f.severity is Severity.SICK]
        rank = {
            f.detector: BY_MODE.index(
                "Observe" if f.detector in verdict.lacking else healing.mode_of(f.detector.value)
            )
            for f in sick
        }
        return min(
            sick,
            key=lambda f: (rank[f.detector], f.detector is Detector.DEVICE, not f.serves_nothing),
            default=None,
        )

    def _consider(self, view: PoolView, instance: Instance, finding: Finding) -> None:
        verdict = view.verdicts.get(instance.uid)
        struck = in_force(self._status.remediations.strikes, view.name, self._snapshot.now)
        elsewhere = view.room_without({instance.node, *struck})
        climb = next_rung(self._snapshot, instance, finding, verdict, elsewhere, self._times)
        another = climb.remedy == "RecreateElsewhere" or wants_another_node(finding, verdict)
        self.needs_nodes = self.needs_nodes or another
        if climb.remedy is None:
            text = (
                f"{finding.message}: no rung of spec.healing.ladder helps against {finding.detector.value}, "
                "which needs RecreateElsewhere: a person is asked"
            )
            closed = first_closed(self._ask(view, instance, finding, "", removal=False))
            self._withhold(instance.name, closed or Answer("ladder", False, text))
            return
        reserved = reserve(self._snapshot, instance, finding, climb.remedy, climb.attempt, climb.lineage)
        answers = self._ask(view, instance, finding, reserved.id, removal=False, remedy=climb.remedy)
        if climb.skipped:
            answers = (*answers, Answer("ladder", True, climb.skipped))
        closed = first_closed([a for a in answers if a.gate != "approval"]) or first_closed(answers)
        if closed and closed.gate == "approval":
            reserved = waiting(reserved, self._snapshot.key.namespace)
        elif closed:
            if self._mode(finding) == "Observe" and {a.gate for a in answers if not a.open} == {"mode"}:
                self.shadows.append(Shadow(instance.uid, finding.detector.value, climb.remedy))
            self._withhold(instance.name, closed)
            return
        step = advance(reserved, self._world(reserved, view))
        if step.active.outcome == "Cancelled":  # else the next pass would begin, and cancel, the next one
            self._withhold(instance.name, Answer("ladder", False, f"not begun: {step.active.message}"))
            return
        self.answers[reserved.id] = answers
        self.active.append(step.active)
        self.actions += step.actions
        if step.withheld:
            self._withhold(instance.name, step.withheld)

    def _report_blindness(self, under_way: set[str]) -> None:
        """Say of each instance that nothing is known of that nothing will be done to it."""
        for view in self._views.values():
            for instance in view.instances:
                verdict = view.verdicts.get(instance.uid)
                unknown = verdict is not None and verdict.verdict is Verdict.UNKNOWN and not verdict.fresh
                if unknown and instance.uid not in under_way and instance.ready:
                    text = "no fresh reading of this instance: nothing is decided about it until there is one"
                    self._withhold(instance.name, Answer("noData", False, text))

    def _report_unclaimed(self, under_way: set[str]) -> None:
        """Say of a pod that was released by an attempt nobody knows of any more: it holds its GPUs for nothing."""
        for view in self._views.values():
            for i in view.instances:
                if not i.member and not i.deleting and i.uid not in under_way:
                    text = "it was released, and the reservation for it is gone: a person has to delete it"
                    self._withhold(i.name, Answer("noReservation", False, text))

    def _give_back_strays(self) -> None:
        """Pods that an attempt of ours withdrew and that none holds any more go back once they are well."""
        held = {a.uid for a in self.active}
        well = (Verdict.HEALTHY, Verdict.IDLE, Verdict.SATURATED)
        for view in self._views.values():
            for i in view.instances:
                ours = ATTEMPT_ANNOTATION in i.annotations and RETIRING_SINCE_ANNOTATION not in i.annotations
                out = i.member and not i.in_rotation and not i.deleting and i.uid not in held
                if ours and out and i.ready and view.verdict(i.uid) in well:
                    self.actions.append(Restore(i.name, i.uid, i.annotations[ATTEMPT_ANNOTATION]))

    def _ask(
        self,
        view: PoolView,
        instance: Instance,
        finding: Finding,
        attempt: str,
        removal: bool,
        remedy: str = "Recreate",
    ) -> tuple[Answer, ...]:
        taken = self._courses.get(view.name, Course())
        return ask_gates(
            Question(
                snapshot=self._snapshot,
                status=self._status,
                storms=self._storms,
                times=self._times,
                view=view,
                instance=instance,
                finding=finding,
                active=tuple(self.active),
                attempt=attempt,
                removal=removal,
                rollout=taken.busy,
                problems=self._problems,
                remedy=remedy,
            )
        )

    def _world(self, active: ActiveRemediation, view: PoolView) -> World:
        claimed = {a.replacement_uid for a in self.active if a.id != active.id and a.replacement_uid}
        claimed |= {entry.uid for entry in self._status.remediations.lineages}
        return World(
            now=self._snapshot.now,
            times=self._times,
            view=view,
            ask=lambda instance, finding: self._ask(
                view, instance, finding, active.id, removal=True, remedy=active.remedy
            ),
            storm=storm_over(view.name, self._storms),
            claimed=frozenset(uid for uid in claimed if uid),
            answers=self._snapshot.answers,
            start_budget=start_budget_seconds(view.pool),
            observed_for=self._snapshot.mono - self._snapshot.observed_since,
            mode=self._snapshot.deployment.spec.healing.mode_of,
            told_to_avoid=told_to_avoid(active, view, self._status, self._snapshot.now),
            compacted=self._snapshot.compacted,
            fragmentation_line=float(
                self._snapshot.deployment.spec.healing.triggers.fragmentation.threshold_percent
            ),
            approver=approver_of(self._snapshot.remediations.get(active.id)),
            namespace=self._snapshot.key.namespace,
            clock_set_at=self._snapshot.clock_set_at,
        )

    def _withhold(self, instance: str, answer: Answer) -> None:
        if any(entry.instance == instance for entry in self.withheld):
            return
        when = moment(answer.next_check) if answer.next_check is not None else None
        self.withheld.append(
            WithheldAction(instance=instance, gate=answer.gate, message=answer.message[:500], next_check=when)
        )


def _surest_first(candidate: tuple[PoolView, Instance, Finding]) -> tuple[bool, bool, float, str]:
    """Who serves nobody, then who is ill, then who will be: among those, the one that reaches its limit first."""
    _, instance, finding = candidate
    planned = finding.detector is Detector.GROWING
    when = finding.since if finding.deadline is None else finding.deadline
    return (not finding.serves_nothing, planned, when, instance.name)
