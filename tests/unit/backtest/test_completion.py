"""What is known of a pod of which only the page speaks, and what is assumed to the side that delays a verdict."""

import pytest

from kintsugi.core.backtest.completion import SURELY_SERVING, completed, placed, process_start
from kintsugi.core.backtest.observation import Observed
from tests.unit.backtest.looks import look

POOLS = {"short": 16, "short-long": None}


def page(start: float) -> str:
    return f"vllm:num_requests_running 1\nprocess_start_time_seconds {start}\n"


def run(*looks: Observed) -> list[Observed]:
    return list(completed(looks, {"short": 16}, "chat"))


def bare(time: float, text: str | None) -> Observed:
    return look(time, text=text, assumed=True, started_at=None, ready=False, ready_since=None, pool="")


def test_a_young_process_is_ready_since_its_first_page() -> None:
    (seen,) = run(bare(1000.0, page(900.0)))
    assert (seen.instance.started_at, seen.instance.ready_since) == (900.0, 1000.0)
    assert seen.instance.ready


def test_a_process_that_ran_for_hours_is_past_its_warm_up() -> None:
    start = 100_000.0 - SURELY_SERVING - 1
    (seen,) = run(bare(100_000.0, page(start)))
    assert seen.instance.ready_since == start


def test_another_start_is_another_process_that_warms_up_again() -> None:
    first, second, third = run(
        bare(1000.0, page(900.0)), bare(1005.0, page(1003.0)), bare(1010.0, page(1003.0))
    )
    assert first.instance.process != second.instance.process
    assert second.instance.process == third.instance.process
    assert (second.instance.ready_since, second.instance.restarts) == (1005.0, 1)


def test_a_page_without_its_start_is_one_process_since_it_was_first_seen() -> None:
    text = "vllm:num_requests_running 1\n"
    first, second = run(bare(1000.0, text), bare(1005.0, text))
    assert first.instance.process == second.instance.process
    assert first.instance.ready_since == 1000.0


def test_before_its_first_page_nothing_is_known_of_it() -> None:
    (seen,) = run(bare(1000.0, None))
    assert seen.instance.started_at is None
    assert not seen.instance.ready


def test_the_pod_s_own_facts_are_left_as_they_are() -> None:
    told = look(1000.0, text=page(900.0), started_at=800.0, ready=False)
    assert run(told) == [told]


@pytest.mark.parametrize(
    ("name", "pool", "where"),
    [
        ("chat-short-75d119bfc9-2jwts", "", ("short", "75d119bfc9")),
        ("chat-short-long-75d119bfc9-2jwts", "", ("short-long", "75d119bfc9")),
        ("chat-short-long-75d119bfc9-2jwts", "short-long", ("short-long", "75d119bfc9")),
        ("other-0", "", ("", "")),
        ("other-0", "short", ("short", "")),
    ],
)
def test_a_pod_s_name_says_its_pool(name: str, pool: str, where: tuple[str, str]) -> None:
    assert placed(name, pool, POOLS, "chat") == where


def test_where_there_is_one_pool_everything_belongs_to_it() -> None:
    assert placed("vllm-0", "", {"main": None}, "chat") == ("main", "")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("process_start_time_seconds 5.5\nx 1\n", 5.5),
        ("x 1\nprocess_start_time_seconds 1.7e+09\n", 1.7e9),
        ("x 1\n", None),
        ("# HELP process_start_time_seconds x\n", None),
        ("process_start_time_seconds soon\n", None),
        ("process_start_time_seconds 1.7e9 1767226900000\n", 1.7e9),
        ('process_start_time_seconds{job="a b"} 1.7e9', 1.7e9),
        ("process_start_time_seconds_created 5\nprocess_start_time_seconds 7\n", 7.0),
        ("process_start_time_seconds NaN\n", None),
        ("process_start_time_seconds inf\n", None),
        ("process_start_time_seconds 1e300\n", None),
        ("", None),
    ],
)
def test_a_process_s_start_is_read_off_its_page(text: str, start: float | None) -> None:
    assert process_start(text) == start
