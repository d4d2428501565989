"""What is kept over a restart of the operator belongs to one process, one build and one set of questions, or is nothing."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kintsugi.core.detect.growing import Source
from kintsugi.core.evidence import Memory
from kintsugi.core.known_answers import NAMES
from kintsugi.core.learned import from_learned, learned, worth_writing
from kintsugi.core.snapshot import Answer, ProcessKey
from kintsugi.core.times import Times
from tests.unit.core.answering import BORN, Pool, fallen, unsure_of, wrong_on
from tests.unit.core.staging import EPOCH

Json = dict[str, Any]


def restarted(pool: Pool, change: Callable[[Json], None] | None = None) -> Pool:
    """The pool under a new operator, which reads what the old one would have written, after `change`."""
    value = json.loads(json.dumps(learned(pool.stage.memory), allow_nan=False))
    if change is not None:
        change(value)
    pool.stage.memory = from_learned(value)
    pool.asked.clear()
    return pool


def test_an_engine_asked_before_the_operators_restart_is_not_asked_for_its_start_again() -> None:
    pool = restarted(Pool(3).run(300)).run(400)
    assert all(len(asked) <= 3 for asked in pool.asked.values()), "one question in five minutes"
    assert pool.said() == []


def test_one_of_two_that_turned_wrong_is_found_though_the_operator_restarted_after_that() -> None:
    pool = restarted(fallen(2)).run(900)
    assert pool.sick() == ["pod-0"]


def test_without_what_was_kept_the_same_two_only_differ() -> None:
    pool = fallen(2)
    pool.stage.memory = Memory()
    pool.run(900)
    assert (pool.sick(), pool.said()) == ([], ["AnswersNotKnown"])


def test_bursts_before_a_restart_count_for_nothing_after_it() -> None:
    pool = fallen()
    while not any(p.answers.pair for p in pool.stage.memory.processes.values()):
        pool.look()
    assert restarted(pool).run(55).sick() == []
    assert pool.run(600).sick() == ["pod-0"]


def test_near_ties_and_refused_questions_stay_struck_out() -> None:
    pool = Pool(3)
    for uid in pool.engines:
        pool.mouths[uid] = unsure_of(*NAMES[:2])
    restarted(pool.run(300)).run(3_600)
    assert {name for asked in pool.asked.values() for name in asked} == set(NAMES[2:])


def engine_starts_again(pool: Pool) -> None:
    """In the same container: its pod and its container are the same, and its page says another start."""
    pool.engines["pod-0"].start += 500.0


def engine_counts_anew(pool: Pool) -> None:
    pool.engines["pod-0"].ranks[0].steps = 10.0


def page_says_nothing_of_the_process(pool: Pool) -> None:
    words = ("process_start_time_seconds", "vllm:iteration_tokens_total", "vllm:generation_tokens_total")
    pool.extra["pod-0"] = lambda page: "".join(f"{e}\n" for e in page.splitlines() if not e.startswith(words))


@pytest.mark.parametrize("other", [engine_starts_again, engine_counts_anew, page_says_nothing_of_the_process])
def test_an_engine_that_is_not_surely_the_same_process_gets_nothing_of_it(
    other: Callable[[Pool], None],
) -> None:
    pool = Pool(2).run(300)
    other(restarted(pool))
    pool.look()
    first = {key.uid: p.answers.complete() for key, p in pool.stage.memory.processes.items()}
    assert first == {"pod-0": False, "pod-1": True}


def test_a_new_container_or_pod_gets_nothing_of_the_old_one() -> None:
    pool = restarted(Pool(2).run(300))
    reborn = {**BORN, "started_at": EPOCH + pool.stage.mono}
    pool.look(**reborn)
    assert not any(p.answers.first for p in pool.stage.memory.processes.values())


def test_a_restart_before_the_first_page_loses_nothing() -> None:
    pool = restarted(restarted(Pool(2).run(300)))
    assert len(pool.stage.memory.kept) == 2
    pool.look()
    assert all(p.answers.complete() for p in pool.stage.memory.processes.values())


def set_at(*path: Any, to: Any) -> Callable[[Json], None]:
    def change(value: Json) -> None:
        for step in path[:-1]:
            value = value[step]
        value[path[-1]] = to

    return change


FIRST = ("processes", 0, "answers", "first")
BAD_ANSWERS: dict[str, Callable[[Json], None]] = {
    "another version": set_at("version", to=1),
    "a version that is no number": set_at("version", to="2"),
    "other questions": set_at("questions", to="0123"),
    "no questions": set_at("questions", to=None),
    "no list of processes": set_at("processes", to={"0": 1}),
    "a mark of another shape": set_at("processes", 0, "mark", to=[1.0]),
    "a mark of words": set_at("processes", 0, "mark", to=["a", "b", "c"]),
    "an integer beyond floats": set_at("processes", 0, "mark", to=[10**400, None, None]),
    "no answers": set_at("processes", 0, "answers", to=None),
    "answers of nobody's question": set_at(*FIRST, to={"copy-1": ["x", 9.0]}),
    "an answer that is a number": set_at(*FIRST, "copy-13", to=7),
    "an answer without its token": set_at(*FIRST, "copy-13", to=["", 9.0]),
    "a margin that is no number": set_at(*FIRST, "copy-13", to=["x", "9"]),
    "a margin that is NaN": set_at(*FIRST, "copy-13", to=["x", float("nan")]),
    "a page for a token": set_at(*FIRST, "copy-13", to=["x" * 65, 9.0]),
    "a question told and refused": set_at("processes", 0, "answers", "refused", to=["copy-13"]),
    "refused ones that are no names": set_at("processes", 0, "answers", "refused", to=[3]),
    "nothing told": set_at(*FIRST, to={}),
}


@pytest.mark.parametrize("change", BAD_ANSWERS.values(), ids=list(BAD_ANSWERS))
def test_answers_that_can_not_be_read_whole_are_asked_for_again(change: Callable[[Json], None]) -> None:
    pool = restarted(Pool(2).run(300), change)
    pool.look()
    (first,) = [p for key, p in pool.stage.memory.processes.items() if key.uid == "pod-0"]
    assert not first.answers.complete()
    assert pool.run(600).sick() == []


@pytest.mark.parametrize(
    "said", [None, 3, [], ["ENGINE"], ["ENGINE", "x"], ["ENGINE", -1.0], ["CGROUP", 1e9], [["ENGINE"], 1e9]]
)
def test_memory_of_a_start_that_can_not_be_read_is_none(said: object) -> None:
    process = {"uid": "a", "startedAt": 1.0, "mark": [1.0, 1.0, 1.0], "memory": said}
    (kept,) = from_learned({"version": 2, "processes": [process]}).kept.values()
    assert kept.memory is None


def test_memory_of_a_start_is_kept_with_who_said_it() -> None:
    process = {"uid": "a", "startedAt": 1.0, "mark": [1.0, 1.0, 1.0], "memory": ["RSS", 2e9]}
    (kept,) = from_learned({"version": 2, "processes": [process]}).kept.values()
    assert kept.memory == (Source.RSS, 2e9)


def test_a_token_as_long_as_a_page_and_a_margin_without_end_are_not_kept() -> None:
    for odd in (Answer("x" * 10_000, 9.0), Answer("x", float("inf"))):
        pool = Pool(1)
        pool.mouths["pod-0"] = lambda name, odd=odd: odd  # type: ignore[misc]
        pool.run(300)
        assert len(json.dumps(learned(pool.stage.memory), allow_nan=False)) < 2_000
        assert not worth_writing(from_learned(learned(pool.stage.memory)), pool.stage.memory, Times())


def test_answers_wait_with_their_write_for_what_the_process_shows_next() -> None:
    pool = Pool(2).run(300)
    assert not worth_writing(Memory(), pool.stage.memory, Times())
    pool.run(1_600)
    assert worth_writing(Memory(), pool.stage.memory, Times())
    assert not worth_writing(from_learned(learned(pool.stage.memory)), pool.stage.memory, Times())


def test_a_wrong_engine_kept_as_wrong_from_its_start_is_still_judged_by_its_siblings() -> None:
    pool = Pool(3)
    pool.mouths["pod-0"] = wrong_on(*NAMES)
    assert restarted(pool.run(120)).run(900).sick() == ["pod-0"]


def test_a_thousand_instances_fit_into_a_config_map() -> None:
    pool = Pool(1).run(300)
    (process,) = pool.stage.memory.processes.values()
    pool.stage.memory.processes = {
        ProcessKey(f"0a5d2d1c-6b3e-4d51-9d2f-{n:012d}", EPOCH + n): process for n in range(1_000)
    }
    assert len(json.dumps(learned(pool.stage.memory), separators=(",", ":"))) < 800_000
