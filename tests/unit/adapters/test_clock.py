"""The operator's time: the API server's, carried on by the monotonic clock."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.adapters import clock as clocks
from kintsugi.adapters.clock import SLEW, SystemClock

EPOCH = 1_790_000_000.0


class Machine:
    """A machine's clocks, moved by hand."""

    def __init__(self) -> None:
        self.epoch, self.seconds = EPOCH, 1000.0

    def pass_(self, seconds: float) -> None:
        self.epoch += seconds
        self.seconds += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()
    monkeypatch.setattr(time, "time", lambda: found.epoch)
    monkeypatch.setattr(time, "monotonic", lambda: found.seconds)
    monkeypatch.setattr(clocks, "steady", lambda: found.seconds)
    return found


def test_until_the_api_server_has_said_something_the_machine_s_clock_counts(machine: Machine) -> None:
    clock = SystemClock()
    machine.pass_(5)
    assert (clock.now(), clock.wall(), clock.mono()) == (EPOCH + 5, EPOCH + 5, 1005.0)


@pytest.mark.parametrize("jump", [3600.0, -7200.0, 1e9])
def test_a_jump_of_the_machine_s_clock_moves_nothing(machine: Machine, jump: float) -> None:
    clock = SystemClock()
    clock.heard(EPOCH, 0.1)
    machine.epoch += jump
    machine.pass_(60)
    assert clock.now() == EPOCH + 60
    clock.heard(EPOCH + 60, 0.1)
    assert clock.now() == EPOCH + 60
    assert clock.wall() == EPOCH + jump + 60


@pytest.mark.parametrize("wrong", [3600.0, -3600.0])
def test_a_machine_whose_clock_is_wrong_takes_the_api_server_s_time_at_once(
    machine: Machine, wrong: float
) -> None:
    machine.epoch += wrong
    clock = SystemClock()
    assert clock.now() == EPOCH + wrong
    clock.heard(EPOCH, 0.1)
    assert clock.now() == EPOCH
    machine.pass_(7)
    assert clock.now() == EPOCH + 7


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_an_api_server_whose_clock_jumps_is_neared_slowly(machine: Machine, jump: float) -> None:
    clock = SystemClock()
    clock.heard(EPOCH, 0.1)
    for _ in range(10):
        machine.pass_(10)
        clock.heard(machine.epoch + jump, 0.1)
    passed = clock.now() - EPOCH
    assert passed == pytest.approx(100 + (1 if jump > 0 else -1) * SLEW * 90)
    machine.pass_(3600 / SLEW)
    assert clock.now() == pytest.approx(machine.epoch + jump, abs=1.0)


def test_the_first_answer_counts_however_long_it_took_and_later_ones_only_when_prompt(
    machine: Machine,
) -> None:
    machine.epoch += 600
    clock = SystemClock()
    clock.heard(EPOCH, 12.0)
    assert clock.now() == EPOCH
    machine.pass_(1000)
    clock.heard(EPOCH + 1012, 12.0)
    machine.pass_(1000)
    assert clock.now() == EPOCH + 2000


@pytest.mark.parametrize("nonsense", [0.0, -1e9, 1e18, 253_402_300_799.0])
def test_a_time_that_no_clock_shows_is_not_taken(machine: Machine, nonsense: float) -> None:
    clock = SystemClock()
    clock.heard(nonsense, 0.1)
    assert clock.now() == EPOCH


def test_after_a_pause_that_stopped_every_clock_the_next_answer_is_taken_as_it_is(machine: Machine) -> None:
    clock = SystemClock()
    clock.heard(EPOCH, 0.1)
    clock.begin_anew()
    clock.heard(EPOCH + 300, 0.1)
    assert clock.now() == EPOCH + 300


def test_threads_that_hear_the_first_answers_at_once_leave_no_time_astray(machine: Machine) -> None:
    for _ in range(50):
        machine.epoch = EPOCH + 3600
        clock = SystemClock()
        threads = [threading.Thread(target=clock.heard, args=(EPOCH, 0.1)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert clock.now() == EPOCH


def test_a_difference_is_told_once(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    clock = SystemClock()
    clock.heard(EPOCH, 0.1)
    for _ in range(5):
        machine.pass_(10)
        clock.heard(machine.epoch + 3600, 0.1)
    assert [record.getMessage() for record in caplog.records] == ["our time differs from the API server's"]


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(-1e5, 1e5) | st.none()), min_size=1, max_size=30))
def test_whatever_it_hears_no_duration_is_wrong_by_more_than_the_slew(
    steps: list[tuple[float, float | None]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine()
        patch.setattr(time, "time", lambda: machine.epoch)
        patch.setattr(clocks, "steady", lambda: machine.seconds)
        clock = SystemClock()
        clock.heard(EPOCH, 0.1)
        for seconds, off in steps:
            before = clock.now()
            machine.pass_(seconds)
            assert clock.now() - before == pytest.approx(seconds, abs=SLEW * seconds + 1e-3)
            if off is not None:
                clock.heard(machine.epoch + off, 0.1)
                assert clock.now() - before == pytest.approx(seconds, abs=SLEW * seconds + 1e-3)
