"""The first question of a young process: what an engine compiles for margins is compiled before its silence counts."""

from itertools import count

from kintsugi.core.known_answers import NAMES
from kintsugi.core.probes import QUESTIONS_AT_ONCE
from kintsugi.core.snapshot import CanaryOutcome
from tests.unit.core.answering import Pool
from tests.unit.core.staging import EPOCH

YOUNG = {"started_at": EPOCH - 100.0, "ready_since": EPOCH}
"""Just become Ready: ten minutes of warm-up lie before it."""
OPENER = NAMES[0]


def test_a_young_process_is_asked_the_shortest_question_once_and_all_of_them_when_it_is_warm() -> None:
    pool = Pool(2).run(590, **YOUNG)
    assert pool.asked == {"pod-0": [OPENER], "pod-1": [OPENER]}
    pool.run(60, **YOUNG)
    assert sorted(pool.asked["pod-0"]) == sorted([OPENER, *NAMES])


def test_the_first_question_asks_for_its_margin() -> None:
    pool = Pool(1)
    pool.look(**YOUNG)
    assert pool.stage.last is not None
    (question,) = pool.stage.last.questions
    assert question.question is not None
    assert (question.question.name, question.question.margin) == (OPENER, True)


def test_a_first_question_without_an_answer_is_not_asked_again_and_says_nothing() -> None:
    pool = Pool(2)
    pool.outcomes["pod-0"] = CanaryOutcome.ABANDONED, 0
    pool.run(590, **YOUNG)
    assert pool.asked["pod-0"] == [OPENER]
    assert pool.sick() == []
    assert pool.findings() == []


def test_a_young_process_with_a_queue_is_asked_once_the_queue_is_gone() -> None:
    pool = Pool(1)
    pool.engines["pod-0"].ranks[0].waiting = 3
    pool.run(60, **YOUNG)
    assert pool.asked == {}
    pool.engines["pod-0"].ranks[0].waiting = 0
    pool.run(60, **YOUNG)
    assert pool.asked == {"pod-0": [OPENER]}


def test_a_process_that_is_asleep_or_ending_is_not_asked() -> None:
    pool = Pool(1)
    pool.engines["pod-0"].ranks[0].awake = 0
    pool.run(60, **YOUNG)
    assert pool.asked == {}
    pool.engines["pod-0"].ranks[0].awake = 1
    pool.run(60, **YOUNG, deleting=True)
    assert pool.asked == {}


def test_the_pause_in_which_an_engine_compiles_is_no_stall() -> None:
    """It runs our question and makes no step for five minutes, which would be a hang of a warm engine."""
    pool = Pool(2)
    pool.outcomes["pod-0"] = CanaryOutcome.ABANDONED, 0
    pool.run(30, **YOUNG)
    stuck = pool.engines["pod-0"].ranks[0]
    steps, tokens = stuck.steps, stuck.first_tokens
    for _ in range(60):
        stuck.steps, stuck.first_tokens = steps - 50, tokens - 2
        pool.look(**YOUNG)
    assert pool.asked["pod-0"] == [OPENER]
    assert pool.sick() == []


def test_the_first_question_is_no_request_of_a_user_while_it_runs() -> None:
    pool = Pool(1)
    pool.held = []
    rank = pool.engines["pod-0"].ranks[0]
    seen: list[float | None] = []
    for running in (0, 1, 1, 0):
        rank.running = running
        if not running and seen:
            pool.let_go()
        pool.look(**YOUNG)
        seen.append(pool.running())
    assert seen == [0.0, 0.0, 0.0, 0.0]


def test_a_first_question_whose_end_is_never_told_hides_no_user_for_ever() -> None:
    pool = Pool(1)
    pool.held = []
    rank = pool.engines["pod-0"].ranks[0]
    rank.running = 0
    pool.look(**YOUNG)
    rank.running = 1
    pool.run(100, **YOUNG)
    assert pool.running() == 1.0


def test_a_process_whose_warm_up_is_nearly_over_is_not_asked_any_more() -> None:
    pool = Pool(1)
    pool.engines["pod-0"].ranks[0].waiting = 3
    pool.run(545, **YOUNG)
    pool.engines["pod-0"].ranks[0].waiting = 0
    pool.run(50, **YOUNG)
    assert pool.asked == {}


def test_a_refused_first_question_strikes_none_out() -> None:
    pool = Pool(1)
    pool.outcomes["pod-0"] = CanaryOutcome.REFUSED_BY_ENGINE, 400
    pool.run(60, **YOUNG)
    (process,) = pool.stage.memory.processes.values()
    assert process.answers.refused == set()


def test_a_first_question_that_fails_is_no_error_of_a_user() -> None:
    pool = Pool(1)
    pool.outcomes["pod-0"] = CanaryOutcome.SERVER_ERROR, 500
    page_number = count()
    failed = 'vllm:request_success_total{engine="0",finished_reason="error"}'
    pool.extra["pod-0"] = lambda page: f"{page}{failed} {min(next(page_number), 1)}\n"
    pool.run(60, **YOUNG)
    (process,) = pool.stage.memory.processes.values()
    assert process.errors.counts.errors == 0


def test_one_pass_asks_no_more_than_twenty_questions_whoever_is_young() -> None:
    pool = Pool(60)
    pool.born = {f"pod-{number}": YOUNG for number in range(1, 60, 2)}
    most = 0
    for _ in range(16):
        before = sum(map(len, pool.asked.values()))
        pool.look()
        most = max(most, sum(map(len, pool.asked.values())) - before)
    assert most == QUESTIONS_AT_ONCE
    assert all(pool.asked.get(f"pod-{number}") for number in range(1, 60, 2))
