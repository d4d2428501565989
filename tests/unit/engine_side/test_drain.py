"""The wait before the end: over when nothing runs, when nothing moves, or at the deadline."""

from collections.abc import Iterator

from kintsugi_engine.drain import Look, drained, look
from kintsugi_engine.page import sums


class Time:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def mono(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def ended(looks: Iterator[Look | None], deadline: float = 60.0) -> tuple[str, float]:
    """(why, seconds waited)."""
    time = Time()
    why = drained(lambda: next(looks), deadline, time.mono, time.wait)
    return why, time.now - 100.0


def working(steps: int, per_look: float = 1.0) -> Iterator[Look | None]:
    yield from (Look(2.0, number * per_look) for number in range(steps))


def test_an_engine_that_the_operator_drained_is_not_waited_for() -> None:
    assert ended(iter([Look(0.0, 900.0)])) == ("nothing runs", 0.0)


def test_streams_that_go_on_are_waited_for_to_their_end() -> None:
    looks = iter([*working(30), Look(0.0, 30.0)])
    assert ended(looks) == ("nothing runs", 15.0)


def test_an_engine_without_a_step_for_ten_seconds_is_not_waited_for_any_longer() -> None:
    assert ended(iter([Look(2.0, 7.0)] * 100)) == ("no step for 10 s", 10.0)


def test_a_server_that_is_silent_counts_as_one_that_does_not_move() -> None:
    assert ended(iter([Look(2.0, 7.0), *[Look(None, None)] * 100])) == ("no step for 10 s", 10.0)


def test_a_step_now_and_then_keeps_the_wait_up_to_the_deadline() -> None:
    slow = iter([Look(1.0, number // 15) for number in range(1000)])
    assert ended(slow, deadline=60.0) == ("the deadline of 60 s", 60.0)


def test_a_server_that_is_gone_ends_the_wait() -> None:
    assert ended(iter([Look(1.0, 1.0), None])) == ("no server answers any more", 0.5)


def test_a_port_where_nobody_listens_is_a_server_that_is_gone() -> None:
    assert look("http://127.0.0.1:9") is None


def test_loads_of_all_ranks_are_added_and_series_without_a_number_are_left_out() -> None:
    page = '# HELP a\na{engine="0"} 2\na{engine="1"} 3.0\nb NaN\nab 7\n'
    assert sums(page, ("a", "b", "c")) == {"a": 5.0}
