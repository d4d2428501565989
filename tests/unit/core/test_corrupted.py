"""Wrong answers to known questions: who is convicted, who never is, and what is asked (hang paper §4, test 16)."""

from collections.abc import Callable
from typing import Any

import pytest

from kintsugi.core.finding import Severity
from kintsugi.core.known_answers import NAMES, TOKENS
from kintsugi.core.snapshot import Answer, Canary, CanaryOutcome
from tests.unit.core.answering import BORN, Pool, fallen, unsure_of, well, wrong_on
from tests.unit.core.staging import EPOCH, Rank


def test_five_of_eight_wrong_in_two_bursts_where_siblings_are_right_is_sick() -> None:
    pool = fallen().run(600)
    assert pool.sick() == ["pod-0"]
    (found,) = pool.findings()
    assert (found.reason, found.severity, found.removable) == ("CorruptedOutput", Severity.SICK, True)
    assert "5 of 8 known answers were wrong, and 5 of 8 at least 60 s later" in found.message
    assert {e.signal: e.value for e in found.evidence} == {
        "wrong answers, first burst": 5.0,
        "wrong answers, second burst": 5.0,
        "siblings right": 2.0,
        "siblings wrong": 0.0,
    }


def test_the_two_bursts_lie_a_minute_apart() -> None:
    pool = fallen()
    times: list[float] = []
    for _ in range(160):
        before = len(pool.asked.get("pod-0", []))
        pool.look()
        times += [pool.stage.mono] * (len(pool.asked["pod-0"]) - before)
        if pool.sick():
            break
    bursts = times[-16:]
    assert 60.0 <= bursts[8] - bursts[0] <= 75.0


@pytest.mark.parametrize(("wrong", "sick"), [(NAMES[3:], True), ((*NAMES[:3], *NAMES[5:]), False)])
def test_two_that_agree_on_five_questions_convict_by_four_of_those_and_by_no_others(
    wrong: tuple[str, ...], sick: bool
) -> None:
    pool = Pool(2)
    pool.mouths = {"pod-0": unsure_of(NAMES[0]), "pod-1": unsure_of(*NAMES[1:3])}
    pool.run(120)
    pool.mouths["pod-0"] = wrong_on(*wrong)
    pool.run(2_000)
    assert pool.sick() == (["pod-0"] if sick else [])


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_less_than_four_wrong_answers_never_convict(wrong: int) -> None:
    pool = fallen(wrong=wrong).run(4_000)
    assert pool.sick() == []
    assert "CorruptedOutput" not in pool.said()


def test_a_burst_that_is_wrong_once_and_right_a_minute_later_convicts_nobody() -> None:
    pool = Pool().run(120)
    pool.mouths["pod-0"] = wrong_on(*NAMES)
    for _ in range(200):
        pool.look()
        if len(pool.stage.memory.processes) and any(
            len(p.answers.pair) == 1 for p in pool.stage.memory.processes.values()
        ):
            break
    pool.mouths["pod-0"] = well
    for _ in range(60):
        pool.look()
        assert pool.sick() == []
    assert pool.said() == []


def test_siblings_that_answer_wrong_too_make_it_everybodys_trouble() -> None:
    pool = Pool(3).run(120)
    for uid in pool.engines:
        pool.mouths[uid] = wrong_on(*NAMES[:5])
    seen: set[str] = set()
    for _ in range(240):
        pool.look()
        seen |= {reason for uid in pool.engines for reason in pool.said(uid)}
        assert pool.sick() == []
    assert "WrongAnswersEverywhere" in seen


def test_a_pool_of_one_is_reported_and_never_convicted() -> None:
    pool = fallen(size=1)
    for _ in range(240):
        pool.look()
        assert pool.sick() == []
    (found,) = pool.findings()
    assert (found.reason, found.severity) == ("WrongAnswers", Severity.SUSPECT)


def test_in_a_pool_of_two_one_right_sibling_suffices() -> None:
    assert fallen(size=2).run(600).sick() == ["pod-0"]


def test_two_that_differ_since_their_start_convict_nobody_and_are_told_to_a_person() -> None:
    pool = Pool(2)
    pool.mouths["pod-1"] = wrong_on(*NAMES)
    for _ in range(400):
        pool.look()
        assert pool.sick() == []
    told = pool.findings("pod-0") + pool.findings("pod-1")
    assert {(each.reason, each.severity) for each in told} == {("AnswersNotKnown", Severity.SUSPECT)}
    assert "differ in 8 of 8 answers" in told[0].message


def test_one_of_three_that_is_wrong_from_its_start_is_found_by_what_the_others_agree_on() -> None:
    pool = Pool(3)
    pool.mouths["pod-2"] = wrong_on(*NAMES)
    assert pool.run(700).sick() == ["pod-2"]


def test_near_ties_are_struck_out_at_the_start_and_may_fall_either_way_later() -> None:
    pool = Pool(3)
    for uid in pool.engines:
        pool.mouths[uid] = unsure_of(NAMES[0], NAMES[3])
    pool.run(120)
    pool.mouths["pod-0"] = wrong_on(NAMES[0], NAMES[3])
    pool.asked.clear()
    pool.run(3_600)
    assert pool.said() == []
    assert {NAMES[0], NAMES[3]}.isdisjoint(pool.asked["pod-0"])


def test_fewer_than_six_sure_answers_switch_the_detector_off_and_it_says_so() -> None:
    pool = Pool(3)
    for uid in pool.engines:
        pool.mouths[uid] = unsure_of(*NAMES[:3])
    pool.run(120)
    (found,) = pool.findings()
    assert (found.reason, found.severity) == ("AnswersNotKnown", Severity.INFO)
    assert "sure of only 5 of 8 answers" in found.message
    pool.mouths["pod-0"] = wrong_on(*NAMES)
    assert pool.run(1_200).sick() == []


def test_questions_too_long_for_the_engine_are_struck_out() -> None:
    pool = Pool(2)
    long = {"copy-1025", "copy-4096"}
    ask = pool.answer

    def answer(canary: Canary) -> None:
        assert canary.question is not None
        refused = canary.question.name in long
        outcome = (CanaryOutcome.REFUSED_BY_ENGINE, 400) if refused else (CanaryOutcome.ANSWERED, 200)
        pool.outcomes[canary.process.uid] = outcome
        ask(canary)

    pool.answer = answer  # type: ignore[method-assign]
    pool.run(180)
    assert pool.said() == []
    pool.mouths["pod-0"] = wrong_on(*NAMES[:4])
    pool.asked.clear()
    assert pool.run(900).sick() == ["pod-0"]
    assert long.isdisjoint(pool.asked["pod-0"])


def test_an_engine_that_answers_no_question_is_asked_a_few_every_five_minutes_and_never_judged() -> None:
    pool = Pool(2)
    for uid in pool.engines:
        pool.outcomes[uid] = (CanaryOutcome.REFUSED_BY_ENGINE, 401)
    pool.run(1_500)
    assert (pool.said(), pool.sick()) == ([], [])
    assert 4 <= len(pool.asked["pod-0"]) / 8 <= 6


def test_one_question_each_five_minutes_is_all_that_a_well_engine_is_asked() -> None:
    pool = Pool(2).run(120)
    pool.asked.clear()
    pool.run(3_000)
    assert [len(asked) for asked in pool.asked.values()] == [10, 10]
    assert set(pool.asked["pod-0"]) == set(NAMES)


@pytest.mark.parametrize("rank", [Rank(running=16, waiting=9), Rank(running=2, waiting=1)])
def test_an_engine_with_a_queue_is_never_asked(rank: Rank) -> None:
    pool = Pool(2)
    pool.engines["pod-0"].ranks[0] = rank
    pool.run(600)
    assert "pod-0" not in pool.asked
    assert len(pool.asked["pod-1"]) >= 8


def test_few_questions_are_open_at_a_time() -> None:
    pool = Pool(12)
    at_once, by_engine = 0, 0
    for _ in range(60):
        before = {uid: len(asked) for uid, asked in pool.asked.items()}
        pool.look()
        new = {uid: len(asked) - before.get(uid, 0) for uid, asked in pool.asked.items()}
        at_once, by_engine = max(at_once, sum(new.values())), max(by_engine, *new.values())
    assert (at_once, by_engine) == (20, 4)
    assert {len(asked) for asked in pool.asked.values()} == {8}


def test_errors_and_silence_are_no_wrong_answers() -> None:
    pool = Pool(3).run(120)
    pool.outcomes["pod-0"] = (CanaryOutcome.ABANDONED, 0)
    pool.run(1_200)
    pool.outcomes["pod-0"] = (CanaryOutcome.SERVER_ERROR, 500)
    pool.run(1_200)
    assert pool.said() == []


def test_a_clean_burst_clears_the_conviction() -> None:
    pool = fallen().run(600)
    assert pool.sick() == ["pod-0"]
    pool.mouths["pod-0"] = well
    pool.run(600)
    assert (pool.sick(), pool.said(), pool.cleared()) == ([], [], True)


def test_a_convicted_engine_that_answers_nothing_any_more_stays_convicted() -> None:
    pool = fallen().run(600)
    pool.outcomes["pod-0"] = (CanaryOutcome.ABANDONED, 0)
    pool.run(900)
    assert (pool.sick(), pool.cleared()) == (["pod-0"], False)


def counting(per_look: float) -> Callable[[str], str]:
    total = [0.0]

    def page(text: str) -> str:
        total[0] += per_look
        return text + f'vllm:corrupted_requests_total{{engine="0",model_name="dsv4"}} {int(total[0])}\n'

    return page


def test_a_rising_counter_of_nans_asks_for_a_burst_at_once_and_is_no_verdict_alone() -> None:
    pool = Pool(3).run(200)
    pool.asked.clear()
    pool.extra["pod-0"] = counting(0.5)
    pool.run(60)
    assert sorted(pool.asked["pod-0"]) == sorted(NAMES)
    pool.run(600)
    (found,) = pool.findings()
    assert (found.reason, found.severity, pool.sick()) == ("NansFollowRequests", Severity.SUSPECT, [])
    assert "12 requests with values that are no numbers in 120 s" in found.message


def test_nans_and_wrong_answers_are_one_sick_engine_within_two_minutes() -> None:
    pool = Pool(3).run(200)
    pool.extra["pod-0"], pool.mouths["pod-0"] = counting(1.0), wrong_on(*NAMES)
    assert pool.run(125).sick() == ["pod-0"]
    assert pool.said() == ["CorruptedOutput"]


def test_two_nans_ask_for_nothing() -> None:
    pool = Pool(3).run(200)
    pool.extra["pod-0"] = lambda text: text + 'vllm:corrupted_requests_total{engine="0"} 2\n'
    pool.asked.clear()
    pool.run(60)
    assert len(pool.asked.get("pod-0", [])) <= 1
    assert pool.said() == []


def test_a_restart_begins_anew_and_nothing_of_the_old_process_convicts_the_new_one() -> None:
    pool = fallen().run(600)
    assert pool.sick() == ["pod-0"]
    pool.mouths["pod-0"] = well
    reborn = {"started_at": EPOCH + pool.stage.mono, "ready_since": EPOCH + pool.stage.mono, "restarts": 1}
    pool.run(5, **reborn)
    assert pool.sick() == []
    pool.run(900, **reborn)
    assert (pool.sick(), pool.said()) == ([], [])


def test_revisions_are_not_compared_with_each_other() -> None:
    pool = Pool(4)
    for uid in ("pod-2", "pod-3"):
        pool.mouths[uid] = lambda name: Answer(f"other {name}", 9.0)
    changes: dict[str, Any] = {f"pod_{n}": {**BORN, "revision": "r1" if n < 2 else "r2"} for n in range(4)}
    for _ in range(600):
        for engine in pool.engines.values():
            engine.ranks[0].steps += 50
        judged = pool.stage.look({uid: e.page() for uid, e in pool.engines.items()}, **changes)
        for question in judged.questions:
            pool.answer(question)
        assert pool.sick() == []
    assert pool.said("pod-0") == pool.said("pod-2") == []


def test_images_behind_the_same_tag_are_not_compared_with_each_other() -> None:
    pool = Pool(3)
    pool.mouths["pod-2"] = lambda name: Answer(f"other {name}", 9.0)
    changes: dict[str, Any] = {
        f"pod_{n}": {**BORN, "image_id": "vllm@sha256:" + ("a" if n < 2 else "b") * 64} for n in range(3)
    }
    for _ in range(400):
        for engine in pool.engines.values():
            engine.ranks[0].steps += 50
        judged = pool.stage.look({uid: e.page() for uid, e in pool.engines.items()}, **changes)
        for question in judged.questions:
            pool.answer(question)
        assert pool.sick() == []
    assert pool.said("pod-2") == []


def test_questions_are_nobodys_traffic() -> None:
    pool = Pool(2)
    for engine in pool.engines.values():
        engine.ranks[0].running = 0
    fields: dict[str, Any] = {uid.replace("-", "_"): BORN for uid in pool.engines}
    for _ in range(200):
        judged = pool.stage.look({uid: e.page() for uid, e in pool.engines.items()}, **fields)
        for canary in (*judged.probes, *judged.questions):
            rank = pool.engines[canary.process.uid].ranks[0]
            rank.steps, rank.generation, rank.first_tokens = (
                rank.steps + 1,
                rank.generation + 1,
                rank.first_tokens + 1,
            )
            rank.prompt += 4 if canary.question is None else TOKENS[canary.question.name]
        pool.stage.answer_all()
        for question in judged.questions:
            pool.answer(question)
    assert {v.verdict.value for v in judged.verdicts.values()} == {"Idle"}
    assert {v.running for v in judged.verdicts.values()} == {0.0}


def test_our_own_lateness_drops_a_burst_under_way() -> None:
    pool = fallen()
    while not any(p.answers.pair for p in pool.stage.memory.processes.values()):
        pool.look()
    pool.stage.look({uid: e.page() for uid, e in pool.engines.items()}, late_by=60.0)
    assert not any(p.answers.pair for p in pool.stage.memory.processes.values())
    assert pool.run(55).sick() == []
    assert pool.run(600).sick() == ["pod-0"]
