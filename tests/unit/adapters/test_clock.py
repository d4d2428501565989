"""The operator's time: the API server's, carried on by the monotonic clock."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    return found


def test_until_the_api_server_has_said_something_the_machine_s_clock_counts(machine: Machine) -> None:
    clock = SystemClock()
    machine.pass_(5)
    assert (clock.now(), clock.wall(), clock.mono()) == (EPOCH + 5, EPOCH + 5, 1005.0)


@pytest.mark.parametrize("jump", [3600.0, -7200.0, 1e9])
def test_a_jump_of_the_machine_s_clock_moves_nothing(machine: Machine, jump: float) -> None:
    clock = SystemClock()
    clock.heard(EPOCH)
    machine.epoch += jump
    machine.pass_(60)
    assert clock.now() == EPOCH + 60
    clock.heard(EPOCH + 60)
    assert clock.now() == EPOCH + 60
    assert clock.wall() == EPOCH + jump + 60


@pytest.mark.parametrize("wrong", [3600.0, -3600.0])
def test_a_machine_whose_clock_is_wrong_takes_the_api_server_s_time_at_once(
    machine: Machine, wrong: float
) -> None:
    machine.epoch += wrong
    clock = SystemClock()
    assert clock.now() == EPOCH + wrong
    clock.heard(EPOCH)
    assert clock.now() == EPOCH
    machine.pass_(7)
    assert clock.now() == EPOCH + 7


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_an_api_server_whose_clock_jumps_is_neared_slowly(machine: Machine, jump: float) -> None:
    clock = SystemClock()
    clock.heard(EPOCH)
    for _ in range(10):
        machine.pass_(10)
        clock.heard(machine.epoch + jump)
    passed = clock.now() - EPOCH
    assert passed == pytest.approx(100 + (1 if jump > 0 else -1) * SLEW * 90)
    machine.pass_(3600 / SLEW)
    assert clock.now() == pytest.approx(machine.epoch + jump, abs=1.0)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(-1e5, 1e5) | st.none()), min_size=1, max_size=30))
def test_whatever_it_hears_no_duration_is_wrong_by_more_than_the_slew(
    steps: list[tuple[float, float | None]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine()
        patch.setattr(time, "time", lambda: machine.epoch)
        patch.setattr(time, "monotonic", lambda: machine.seconds)
        clock = SystemClock()
        clock.heard(EPOCH)
        for seconds, off in steps:
            before = clock.now()
            machine.pass_(seconds)
            assert clock.now() - before == pytest.approx(seconds, abs=SLEW * seconds + 1e-3)
            if off is not None:
                clock.heard(machine.epoch + off)
                assert clock.now() - before == pytest.approx(seconds, abs=SLEW * seconds + 1e-3)
