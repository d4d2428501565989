"""The table of transitions: it is what the code does, every row of it is seen here, and the docs print it."""

from collections.abc import Callable
from typing import Any

import pytest

from kintsugi.api.status import ActiveRemediation
from kintsugi.core.finding import Detector
from kintsugi.core.names import APPROVE_ANNOTATION
from kintsugi.core.phases import OUTCOMES, PHASES, TRANSITIONS, known
from kintsugi.core.remedy import PHASES as STEPS
from tests.unit.core.decision.made import spec
from tests.unit.core.decision.remediation_page import PAGE, page
from tests.unit.core.decision.watching import NO_ROOM, ROOM, only, phase, sick
from tests.unit.core.decision.world import Pod, World, running_world

Step = tuple[str | None, str, str | None]
RECOMMEND: dict[str, Any] = {"mode": "Recommend"}
ELSEWHERE = {
    (None, "Done", "Exhausted"): "tests/scenarios/test_safety_rules_of_acting.py, rule 22",
    ("Quarantined", "Done", "Exhausted"): "tests/scenarios/test_safety_rules_of_acting.py, rule 22",
    ("Quarantined", "Probation", None): "tests/scenarios: compaction in place",
}
"""Rows that need a ladder with a memory, or an engine that compacts."""


class Walk:
    """A world that remembers every step that its attempts took. `approver`: who has annotated whatever waits."""

    def __init__(self, gpus: int = ROOM, **healing: Any) -> None:
        self.world: World = running_world(spec(4, healing=healing), gpus)
        self.steps: set[Step] = set()
        self.approver = ""
        self._before: dict[str, ActiveRemediation] = {}
        self.world.on_tick = self._annotate

    def _annotate(self, world: World) -> None:
        for key, made in world.remediations.items():
            said = {APPROVE_ANNOTATION: self.approver} if self.approver else {}
            metadata = made.metadata.model_copy(update={"annotations": said})
            world.remediations[key] = made.model_copy(update={"metadata": metadata})

    def run(self, seconds: float, every: float = 5.0) -> None:
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.step(every)
            now = {a.id: a for a in self.world.status.remediations.active}
            for key, active in now.items():
                was = self._before.get(key)
                step = (was.phase if was else None, active.phase, active.outcome)
                if was is None or (was.phase, was.outcome) != (active.phase, active.outcome):
                    self.steps.add(step)
            self._before = now

    def until(self, wanted: str, within: float = 3000.0) -> None:
        end = self.world.now + within
        while phase(self.world) != wanted:
            assert self.world.now < end, self.world.tell()
            self.run(5)

    def clear(self, pod: Pod) -> None:
        pod.faults.clear()
        pod.cleared = frozenset({Detector.FRAGMENTED})

    def replacement(self) -> Pod:
        return next(p for p in self.world.members() if p.uid == only(self.world).replacement_uid)


def cured() -> Walk:
    walk = Walk()
    sick(walk.world)
    walk.run(3000)
    return walk


def approved() -> Walk:
    walk = Walk(**RECOMMEND)
    victim = sick(walk.world)
    walk.until("AwaitingApproval")
    walk.run(900)
    assert victim.in_rotation
    assert only(walk.world).phase == "AwaitingApproval"
    walk.approver = "no"
    walk.run(60)
    assert only(walk.world).phase == "AwaitingApproval", "nobody approves by saying no"
    walk.approver = "alice"
    walk.until("Draining")
    assert only(walk.world).approved_by == "alice"
    return walk


def expired() -> Walk:
    walk = Walk(**RECOMMEND)
    victim = sick(walk.world)
    walk.until("AwaitingApproval")
    walk.clear(victim)
    walk.run(60)
    return walk


def given_back() -> Walk:
    walk = Walk()
    victim = sick(walk.world)
    walk.until("Quarantined")
    walk.clear(victim)
    walk.run(60)
    return walk


def cleared_in_the_drain() -> Walk:
    walk = Walk(NO_ROOM)
    victim = sick(walk.world)
    victim.running = 5.0
    walk.until("Draining")
    walk.clear(victim)
    walk.run(60)
    return walk


def never_started() -> Walk:
    walk = Walk()
    sick(walk.world)
    walk.world.on_start = lambda pod: setattr(pod, "never_starts", "ImagePullBackOff")
    walk.run(1500)
    return walk


def cleared_after_the_release() -> Walk:
    walk = Walk()
    victim = sick(walk.world)
    victim.running = 5.0
    walk.until("Draining")
    walk.clear(victim)
    walk.run(900)
    return walk


def in_phase(wanted: str, then: Callable[[Walk], None]) -> Callable[[], Walk]:
    def story() -> Walk:
        walk = Walk()
        sick(walk.world)
        walk.until(wanted)
        then(walk)
        walk.run(1500)
        return walk

    story.__name__ = f"{then.__name__}_in_{wanted}"
    return story


def falls_sick(walk: Walk) -> None:
    walk.replacement().faults[Detector.FRAGMENTED] = walk.world.now


def goes_away(walk: Walk) -> None:
    walk.world.pods.pop(walk.replacement().uid)


def loses_its_pool(walk: Walk) -> None:
    walk.world.spec["pools"] = [{"name": "other", "replicas": 1}]
    walk.world.generation += 1


STORIES = [
    cured,
    approved,
    expired,
    given_back,
    cleared_in_the_drain,
    never_started,
    cleared_after_the_release,
    *(in_phase(p, do) for p in ("Warming", "Probation") for do in (falls_sick, goes_away, loses_its_pool)),
]


@pytest.fixture(scope="module")
def seen() -> dict[str, set[Step]]:
    return {story.__name__: story().steps for story in STORIES}


def test_no_story_takes_a_step_that_is_not_in_the_table(seen: dict[str, set[Step]]) -> None:
    strange = {(name, s) for name, steps in seen.items() for s in steps if not known(*s)}
    assert strange == set()


def test_every_row_of_the_table_is_taken(seen: dict[str, set[Step]]) -> None:
    taken = set().union(*seen.values())
    rows = {(t.phase, t.to, t.outcome) for t in TRANSITIONS}
    assert rows - taken - set(ELSEWHERE) == set()


def test_the_table_speaks_of_every_phase_and_outcome_and_code_stands_behind_each() -> None:
    assert {t.phase for t in TRANSITIONS} - {None} == set(PHASES) - {"Done"} == set(STEPS)
    assert {t.outcome for t in TRANSITIONS} - {None} == set(OUTCOMES)
    assert all((t.outcome is not None) == (t.to == "Done") for t in TRANSITIONS)


@pytest.mark.parametrize(
    ("step", "is_known"),
    [
        (("Draining", "Quarantined", None), False),
        (("Quarantined", "Done", "Cured"), False),
        (("Done", "Done", "Cured"), True),
        (("Warming", "Warming", None), True),
        (("Replacing", "Probation", None), False),
    ],
)
def test_a_step_that_is_not_in_the_table_is_not_known(step: Step, is_known: bool) -> None:
    assert known(*step) is is_known


def test_the_docs_print_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run make generate"
