"""`erroring` (hang paper §4): counts suspect, canaries convict, siblings acquit."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kintsugi.core.detect.error_findings import error_finding
from kintsugi.core.detect.erroring import (
    Counts,
    Erring,
    ErrorState,
    canaries_due,
    control_due,
    counts,
    errors_pass,
    hear,
    see_errors,
)
from kintsugi.core.detect.jeffreys import surely_above
from kintsugi.core.finding import Severity
from kintsugi.core.sample import RankSample, Sample
from kintsugi.core.snapshot import Canary, CanaryOutcome, CanaryResult, ProcessKey
from kintsugi.core.times import Times

TIMES = Times()
TABLE = {3: 3, 4: 3, 5: 4, 6: 4, 8: 5, 10: 6, 15: 7, 20: 9, 30: 12, 50: 17, 100: 30, 200: 54}
"""Requests to the least number of errors that proves more than 20 % (hang §4)."""


@dataclass
class Engine:
    """One engine's counters, and what it does to canaries."""

    uid: str = "pod-1"
    state: ErrorState = field(default_factory=lambda: ErrorState(answered=True))
    http_failed: float = 0.0
    rejections: float = 0.0
    failed: float = 0.0
    finished: float = 0.0
    own: int = 0
    fails: Callable[[int], bool] = lambda number: False
    asked: int = 0

    def page(self, mono: float) -> None:
        rank = RankSample("0", failed=self.failed, finished=self.finished)
        see_errors(
            self.state,
            Sample(mono, (rank,), http_failed=self.http_failed, rejections=self.rejections),
            self.own,
            TIMES,
        )

    def answer(self, mono: float) -> None:
        """Send what is due, and let the engine answer within the pass."""
        results = []
        for _ in range(canaries_due(self.state, mono, TIMES)):
            assert self.state.round is not None
            id_ = f"c-{self.asked}"
            self.state.round.outcomes[id_] = None
            bad = self.fails(self.asked)
            self.asked += 1
            outcome = CanaryOutcome.SERVER_ERROR if bad else CanaryOutcome.ANSWERED
            results.append(CanaryResult(Canary(id_, ProcessKey(self.uid, 0.0), "0", mono), outcome, mono))
            if bad:
                self.http_failed += 1
            else:
                self.finished, self.own = self.finished + 1, self.own + 1
        hear(self.state, results)


def play(engines: list[Engine], each_pass: Callable[[int], None], passes: int, percent: float = 20) -> None:
    """So many passes of 5 s; `each_pass` moves the counters."""
    for number in range(passes):
        mono = 5.0 * number
        each_pass(number)
        for engine in engines:
            engine.page(mono)
        entries = [Erring(e.uid, "short", e.state, True) for e in engines]
        errors_pass(entries, mono, mono, TIMES, percent)
        for engine in engines:
            engine.answer(mono)


def said(engine: Engine, fresh: bool = True) -> tuple[str, Severity] | None:
    found = error_finding(engine.state, fresh, 20, 0.0)
    return (found.reason, found.severity) if found else None


def failing(engine: Engine, *, good: float, bad: float, since: int = 1) -> Callable[[int], None]:
    """So many requests of users end so in each pass."""

    def move(number: int) -> None:
        if number >= since:
            engine.finished += good
            engine.failed += bad
            engine.http_failed += bad

    return move


@pytest.mark.parametrize(("requests", "least"), TABLE.items())
def test_the_least_number_of_errors_that_proves_a_share_is_the_papers(requests: int, least: int) -> None:
    assert surely_above(least, requests, 0.2)
    assert not surely_above(least - 1, requests, 0.2)


@pytest.mark.parametrize(("errors", "requests"), [(0, 0), (0, 10), (2, 2), (5, 0)])
def test_few_errors_prove_nothing(errors: float, requests: float) -> None:
    assert not Counts(errors, requests, 120.0).above(0.2)


def test_three_errors_of_forty_are_no_finding() -> None:
    engine = Engine()
    play([engine], failing(engine, good=1.85, bad=0.15), 21)
    assert said(engine) is None


def test_nine_of_twenty_with_clean_canaries_follow_the_requests() -> None:
    engine = Engine()
    play([engine], failing(engine, good=11 / 20, bad=9 / 20), 45)
    assert said(engine) == ("ErrorsFollowRequests", Severity.ADVICE)
    assert engine.asked == 20


def test_with_three_bad_canaries_of_twenty_it_is_sick() -> None:
    engine = Engine(fails=lambda number: number % 7 == 0)
    play([engine], failing(engine, good=11 / 20, bad=9 / 20), 45)
    assert said(engine) == ("Erroring", Severity.SICK)


def test_with_two_bad_canaries_it_is_not() -> None:
    engine = Engine(fails=lambda number: number in (3, 12))
    play([engine], failing(engine, good=11 / 20, bad=9 / 20), 45)
    assert said(engine) == ("ErrorsFollowRequests", Severity.ADVICE)


def test_refusals_at_the_door_are_no_errors() -> None:
    engine = Engine()

    def refuse(number: int) -> None:
        engine.http_failed += 10
        engine.rejections += 10

    play([engine], refuse, 40)
    assert said(engine) is None
    assert engine.asked == 0


def test_streams_that_end_in_an_error_frame_count_though_http_said_200() -> None:
    engine = Engine(fails=lambda number: number % 2 == 0)

    def move(number: int) -> None:
        engine.failed += 1
        engine.finished += 0.5

    play([engine], move, 60)
    assert said(engine) == ("Erroring", Severity.SICK)


def test_a_share_that_a_sibling_has_too_is_no_reason_to_act() -> None:
    engines = [Engine("pod-1", fails=lambda n: True), Engine("pod-2"), Engine("pod-3")]

    def move(number: int) -> None:
        for engine in engines:
            engine.failed, engine.finished = engine.failed + 3, engine.finished + 7

    play(engines, move, 120)
    assert [said(engine) for engine in engines] == [("ErrorsEverywhere", Severity.ADVICE)] * 3
    assert [engine.asked for engine in engines] == [0, 0, 0]


def test_siblings_that_fail_a_little_together_acquit_though_none_alone_would() -> None:
    engines = [Engine("pod-1", fails=lambda n: True)] + [Engine(f"pod-{n}") for n in range(2, 12)]

    def move(number: int) -> None:
        engines[0].failed, engines[0].finished = engines[0].failed + 0.5, engines[0].finished + 0.5
        for engine in engines[1:]:
            engine.failed, engine.finished = engine.failed + 0.16, engine.finished + 0.84

    play(engines, move, 60)
    assert said(engines[0]) == ("ErrorsEverywhere", Severity.ADVICE)


def test_three_idle_canaries_that_fail_ask_for_a_round_without_any_traffic() -> None:
    engine = Engine(fails=lambda number: True)
    for number in range(3):
        canary = Canary(f"idle-{number}", ProcessKey("pod-1", 0.0), "0", 0.0)
        hear(engine.state, [CanaryResult(canary, CanaryOutcome.SERVER_ERROR, 0.0)])
        assert engine.state.idle_bad == number + 1
    play([engine], lambda number: None, 30)
    assert said(engine) == ("Erroring", Severity.SICK)


def test_canaries_that_nobody_in_the_pool_ever_answered_convict_nobody() -> None:
    engines = [Engine("pod-1", ErrorState(), fails=lambda n: True), Engine("pod-2", ErrorState())]
    play(engines, failing(engines[0], good=0.5, bad=0.5), 60)
    assert engines[0].asked == 20
    assert not engines[0].state.sick


def test_a_busy_sibling_that_was_never_asked_is_asked_once_so_that_failing_canaries_can_be_believed() -> None:
    sick, sibling = Engine("pod-1", ErrorState(), fails=lambda n: True), Engine("pod-2", ErrorState())
    fail, asked = failing(sick, good=0.5, bad=0.5), []

    def move(number: int) -> None:
        fail(number)
        mono = 5.0 * number
        if control_due(sibling.state, mono, TIMES):
            sibling.state.control_at = mono
            asked.append(mono)
            canary = Canary("control", ProcessKey("pod-2", 0.0), "0", mono)
            hear(sibling.state, [CanaryResult(canary, CanaryOutcome.ANSWERED, mono)])

    play([sick, sibling], move, 40)

    assert said(sick) == ("Erroring", Severity.SICK)
    assert len(asked) == 1
    assert not sibling.state.control
    assert said(sibling) is None


def test_own_canaries_are_neither_requests_nor_errors() -> None:
    engine = Engine()
    engine.page(0.0)
    engine.finished, engine.own, engine.http_failed, engine.state.own_bad = 12.0, 10, 4.0, 4
    engine.page(200.0)
    assert counts(engine.state.rows, TIMES) == Counts(0.0, 2.0, 200.0)


def test_a_rare_stream_of_errors_is_seen_by_stretching_the_window() -> None:
    engine = Engine()

    def move(number: int) -> None:
        if number and number % 24 == 0:  # one failed request in two minutes
            engine.failed += 1

    play([engine], move, 180)
    assert engine.state.suspected
    assert engine.state.counts.seconds > 300


def test_errors_older_than_fifteen_minutes_are_forgotten() -> None:
    engine = Engine()
    play([engine], lambda number: setattr(engine, "failed", min(10.0, float(number))), 260)
    assert said(engine) is None


def test_no_more_than_four_canaries_are_open_and_no_more_than_twenty_go_out_in_a_round() -> None:
    state = ErrorState()
    hear(
        state,
        [
            CanaryResult(Canary(f"i{n}", ProcessKey("p", 0.0), "0", 0.0), CanaryOutcome.SERVER_ERROR, 0.0)
            for n in range(3)
        ],
    )
    sent = 0
    for number in range(40):
        mono = 5.0 * number
        errors_pass([Erring("p", "short", state, True)], mono, mono, TIMES, 20)
        due = canaries_due(state, mono, TIMES)
        assert due <= 4
        for _ in range(due):
            assert state.round is not None
            state.round.outcomes[str(sent)] = None  # none is ever answered
            sent += 1
    assert sent == 4
    assert not state.sick


def test_canaries_that_could_not_connect_are_sent_again_and_say_nothing() -> None:
    state = ErrorState(idle_bad=3)
    errors_pass([Erring("p", "short", state, True)], 0.0, 0.0, TIMES, 20)
    key = ProcessKey("p", 0.0)
    for number in range(22):
        mono = 5.0 * number
        for _ in range(canaries_due(state, mono, TIMES)):
            assert state.round is not None
            id_ = f"{number}-{len(state.round.outcomes)}"
            state.round.outcomes[id_] = None
            hear(state, [CanaryResult(Canary(id_, key, "0", mono), CanaryOutcome.CONNECT_TIMEOUT, mono)])
    assert state.round is not None
    assert state.round.told == 0
    assert not state.sick


def test_a_sick_one_is_well_again_only_after_a_whole_round_without_a_failure() -> None:
    bad = [True]
    engine = Engine(fails=lambda number: bad[0])
    play([engine], failing(engine, good=0.5, bad=0.5), 30)
    assert said(engine) == ("Erroring", Severity.SICK)
    bad[0] = False
    play_on = [0]

    def quiet(number: int) -> None:
        play_on[0] += 1

    for number in range(30, 120):
        mono = 5.0 * number
        quiet(number)
        engine.page(mono)
        errors_pass([Erring(engine.uid, "short", engine.state, True)], mono, mono, TIMES, 20)
        if engine.state.cleared:
            break
        assert engine.state.sick
        engine.answer(mono)
    assert engine.state.cleared
    assert not engine.state.sick
    assert mono >= 300, "no sooner than the next round"


def test_one_that_is_not_judged_is_neither_suspected_nor_a_witness() -> None:
    sick, cold = Engine("pod-1", fails=lambda n: True), Engine("pod-2")
    for number in range(40):
        mono = 5.0 * number
        for engine in (sick, cold):
            engine.failed, engine.finished = engine.failed + 0.5, engine.finished + 0.5
            engine.page(mono)
        entries = [Erring("pod-1", "short", sick.state, True), Erring("pod-2", "short", cold.state, False)]
        errors_pass(entries, mono, mono, TIMES, 20)
        sick.answer(mono)
    assert said(sick) == ("Erroring", Severity.SICK)
    assert said(cold) is None


def test_what_can_not_be_read_now_is_neither_sick_nor_well() -> None:
    engine = Engine(fails=lambda number: True)
    play([engine], failing(engine, good=0.5, bad=0.5), 30)
    assert said(engine, fresh=False) == ("ErroringUnknown", Severity.SUSPECT)


def test_a_finding_carries_its_arithmetic() -> None:
    engine = Engine(fails=lambda number: True)
    play([engine], failing(engine, good=0.5, bad=0.5), 30)
    found = error_finding(engine.state, True, 20, 0.0)
    assert found is not None
    assert {e.signal: e.samples > 0 for e in found.evidence} == {
        "requests failed": True,
        "errors allowed": True,
        "canaries failed": True,
    }
    assert "requests failed in" in found.message
