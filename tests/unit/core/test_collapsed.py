"""`collapsed` (slow paper §4): a queue without a reason suspects, canaries that wait in vain convict."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from kintsugi.core.detect.cost_model import USABLE_SAMPLES, CostModel
from kintsugi.core.detect.slow import ModelKey
from kintsugi.core.evidence import Memory
from kintsugi.core.finding import Detector, Finding, InstanceVerdict, Severity, Verdict
from kintsugi.core.snapshot import Canary, CanaryOutcome, Failure
from tests.unit.core.staging import Engine, Rank, Stage, deployment

At = Callable[[float], Any]


@dataclass
class Fleet:
    """Engines of one pool in passes of 5 s; `starved` ones behave as the figures say, the others are well."""

    starved: tuple[str, ...] = ("pod-a",)
    well: tuple[str, ...] = ("pod-b", "pod-c")
    waiting: At = lambda t: 6.0
    running: At = lambda t: 1.0
    kv: At = lambda t: 0.05
    steps: At = lambda t: 40.0
    prompt: At = lambda t: 0.0
    """Prompt tokens a pass."""
    deferred: At = lambda t: 0.0
    admits_every: float = 20.0
    """Seconds between two first tokens."""
    answers_after: float | None = None
    """Seconds that a canary waits in a starved engine; None = for ever."""
    concurrency: float | None = 8.0
    readable: At = lambda t: True
    stage: Stage = field(default_factory=lambda: Stage(deployment()))
    engines: dict[str, Engine] = field(default_factory=dict)
    asked: list[Canary] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    def run(self, seconds: float) -> dict[str, InstanceVerdict]:
        until = self.stage.mono + seconds
        while self.stage.mono < until:
            last = self.once()
        return last

    def once(self) -> dict[str, InstanceVerdict]:
        stage, t = self.stage, self.stage.mono + self.stage.step
        pages: dict[str, str | Failure] = {}
        for uid in (*self.starved, *self.well):
            engine = self.engines.setdefault(uid, Engine([Rank()], max_concurrency=self.concurrency))
            rank = engine.ranks[0]
            rank.steps += 100 if uid in self.well else self.steps(t)
            rank.running, rank.waiting, rank.kv = 2, 0, 0.1
            rank.first_tokens += 1
            if uid in self.starved:
                rank.first_tokens -= 1 if t % self.admits_every else 0
                rank.running, rank.waiting, rank.kv = self.running(t), self.waiting(t), self.kv(t)
                rank.waiting += sum(c.process.uid == uid and c.id not in self.told for c in self.asked)
                rank.deferred = self.deferred(t)
                rank.prompt += self.prompt(t)
            readable = uid in self.well or self.readable(t)
            pages[uid] = engine.page() if readable else Failure.CONNECT_TIMEOUT
        judged = stage.look(pages)
        self.asked += judged.probes
        for canary in self.asked:
            self._answer(canary)
        return dict(judged.verdicts)

    def _answer(self, canary: Canary) -> None:
        if canary.id in self.told:
            return
        after = self.answers_after if canary.process.uid in self.starved else 0.0
        if after is not None and self.stage.mono - canary.sent >= after:
            self.told.add(canary.id)
            self.stage.end(canary)


def starved(verdict: InstanceVerdict) -> Finding | None:
    return next((f for f in verdict.findings if f.detector is Detector.COLLAPSED), None)


def sick_at(fleet: Fleet, within: float = 900.0) -> float | None:
    """Seconds until pod-a is Sick for this."""
    while fleet.stage.mono < within:
        found = starved(fleet.once()["pod-a"])
        if found is not None and found.severity is Severity.SICK:
            return fleet.stage.mono
    return None


def test_a_queue_that_grows_while_one_runs_is_a_suspect_at_180_s_and_sick_after_three_canaries() -> None:
    fleet = Fleet(waiting=lambda t: 6 + t / 30)
    verdict = fleet.run(185)["pod-a"]
    assert (verdict.verdict, verdict.reason) == (Verdict.SUSPECT, "StarvedSuspected")
    assert sick_at(fleet) == pytest.approx(365, abs=10)
    found = starved(fleet.once()["pod-a"])
    assert found is not None
    assert found.removable
    assert "3 of 3 canaries waited in vain" in found.message
    assert {"canaries in vain", "requests waiting", "KV usage"} <= {e.signal for e in found.evidence}
    assert all(e.samples for e in found.evidence)
    assert fleet.once()["pod-b"].verdict is Verdict.HEALTHY


def test_pages_read_amid_the_short_prefill_of_somebody_let_in_reset_nothing() -> None:
    fleet = Fleet(kv=lambda t: 0.06 if t % 35 == 0 else 0.05, steps=lambda t: 40.0 if t % 35 else 0.0)

    assert sick_at(fleet) == pytest.approx(365, abs=10)


def test_a_prefill_that_is_seen_on_two_pages_in_a_row_explains_the_queue() -> None:
    def usage(t: float) -> float:
        return 0.05 + 0.01 * (t % 100 in (0, 5)) + 0.01 * (t % 100 == 5)

    assert sick_at(Fleet(kv=usage, steps=lambda t: 0.0 if t % 100 in (0, 5) else 40.0)) is None


def test_canaries_that_are_served_late_still_waited_in_vain_in_a_pool_of_several() -> None:
    assert sick_at(Fleet(answers_after=100.0)) is not None


@pytest.mark.parametrize(
    ("why", "fleet"),
    [
        ("a canary is answered in time", Fleet(answers_after=5.0)),
        ("the engine is full (S16)", Fleet(running=lambda t: 16.0, waiting=lambda t: 180.0)),
        ("more than a quarter of the slots run", Fleet(running=lambda t: 5.0)),
        ("the queue shrinks", Fleet(waiting=lambda t: max(0.0, 40 - t / 10))),
        ("one request waits", Fleet(waiting=lambda t: 1.0)),
        ("only deferred requests wait", Fleet(deferred=lambda t: 6.0)),
        ("a waiting prompt may lack room", Fleet(kv=lambda t: 0.55, concurrency=2.0)),
        ("room is not known", Fleet(kv=lambda t: 0.2, concurrency=None)),
        ("a giant prefill runs beside others", Fleet(kv=lambda t: 0.1 + t / 4000)),
        ("a giant prefill runs alone", Fleet(kv=lambda t: 0.1 + t / 4000, steps=lambda t: 0.0)),
        ("prompts are computed and their cost is not known", Fleet(prompt=lambda t: 1000.0)),
        ("the siblings show it too", Fleet(starved=("pod-a", "pod-b"), well=("pod-c",))),
        ("half of the pages are missing", Fleet(readable=lambda t: t % 15 == 0)),
    ],
)
def test_nobody_is_sick_where(why: str, fleet: Fleet) -> None:
    assert sick_at(fleet, 1500) is None, why


@pytest.mark.parametrize(("tokens_a_step", "sick"), [(25.0, True), (300.0, False)])
def test_steps_that_carry_chunks_explain_a_queue_whatever_the_model_thinks_a_chunk_costs(
    tokens_a_step: float, sick: bool
) -> None:
    fleet = Fleet(prompt=lambda t: 40.0 * tokens_a_step)
    fleet.stage.memory.slow.models[ModelKey("main", "r1")] = CostModel(samples=USABLE_SAMPLES, solved_at=0.0)
    assert (sick_at(fleet) is not None) is sick


def test_no_step_at_all_is_left_to_the_detector_of_stalls() -> None:
    fleet = Fleet(steps=lambda t: 0.0, running=lambda t: 0.0)
    verdict = fleet.run(400)["pod-a"]
    assert starved(verdict) is None
    assert (verdict.verdict, verdict.reason) == (Verdict.SICK, "Stalled")


def test_nobody_admitted_at_all_is_told_once_by_the_admission_clock() -> None:
    fleet = Fleet(admits_every=1e9)
    verdict = fleet.run(320)["pod-a"]
    assert (verdict.verdict, verdict.reason) == (Verdict.SICK, "NotAdmitting")
    assert starved(fleet.run(200)["pod-a"]) is None


def test_siblings_that_show_it_too_are_advised_about() -> None:
    fleet = Fleet(starved=("pod-a", "pod-b"), well=())
    found = starved(fleet.run(600)["pod-a"])
    assert found is not None
    assert (found.reason, found.severity) == ("StarvedEverywhere", Severity.ADVICE)


def test_in_a_pool_of_one_a_person_is_asked_unless_no_canary_was_ever_served() -> None:
    late = Fleet(well=(), answers_after=100.0).run(900)["pod-a"]
    assert (late.verdict, late.reason) == (Verdict.SUSPECT, "StarvedAlone")
    assert sick_at(Fleet(well=())) is not None


def test_warm_up_is_waited_for() -> None:
    fleet = Fleet(stage=Stage(deployment()))
    fleet.stage.mono = -8_800.0  # 200 s after the first Ready
    fleet.stage.memory = Memory()
    fleet.run(385)
    assert all(canary.id[-2:] != "-q" for canary in fleet.asked)


def test_unreadable_pages_turn_a_verdict_into_unknown_and_back() -> None:
    fleet = Fleet(readable=lambda t: not 500 < t < 600)
    assert sick_at(fleet) is not None
    fleet.run(560 - fleet.stage.mono)
    verdict = fleet.once()["pod-a"]
    assert (verdict.verdict, verdict.reason) == (Verdict.UNKNOWN, "StarvedUnknown")
    assert fleet.run(60)["pod-a"].verdict is Verdict.SICK


def test_many_running_clears_it_at_once() -> None:
    fleet = Fleet(running=lambda t: 1.0 if t < 500 else 12.0)
    assert sick_at(fleet) is not None
    verdict = fleet.run(510 - fleet.stage.mono)["pod-a"]
    assert starved(verdict) is None
    assert Detector.COLLAPSED in verdict.cleared


def test_a_withdrawn_engine_is_given_back_for_prompt_answers_once_but_not_again() -> None:
    """Without traffic a scheduler that lets one in at a time answers canaries: that proves nothing the second time."""
    fleet = Fleet()
    assert sick_at(fleet) is not None
    fleet.waiting, fleet.answers_after = (lambda t: 0.0), 0.0
    cleared = fleet.run(400)["pod-a"]
    assert starved(cleared) is None
    assert Detector.COLLAPSED in cleared.cleared
    fleet.waiting, fleet.answers_after = (lambda t: 6.0), None
    assert sick_at(fleet, 2000) is not None
    fleet.waiting, fleet.answers_after = (lambda t: 0.0), 0.0
    assert starved(fleet.run(600)["pod-a"]) is not None


def test_a_refused_canary_says_nothing_and_is_asked_again_a_minute_later() -> None:
    fleet = Fleet()
    asked = 0
    while fleet.stage.mono < 800:
        verdict = fleet.once()["pod-a"]
        judged = fleet.stage.last
        assert judged is not None
        for canary in judged.probes:
            if canary.process.uid == "pod-a":
                asked += 1
                fleet.told.add(canary.id)
                fleet.stage.end(canary, CanaryOutcome.REFUSED_BY_ENGINE, 429)
    found = starved(verdict)
    assert found is not None
    assert found.severity is Severity.SUSPECT
    assert asked <= 12


def test_our_own_canaries_are_no_queue() -> None:
    """Two requests of ours and none of users: nothing is suspected."""
    fleet = Fleet(waiting=lambda t: 0.0)
    fleet.run(30)
    state = next(iter(fleet.stage.memory.processes.values())).queues
    assert not state.starved
