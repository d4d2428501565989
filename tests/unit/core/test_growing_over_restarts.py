"""Growth of memory over a restart of the operator: what a pool for KV offload explains, and what it hides."""

from collections.abc import Callable

import pytest

from kintsugi.core.detect.growing import MemoryState, Source
from tests.unit.core.memory_shapes import GIB, LIMIT
from tests.unit.core.test_growing import HOUR, Watched


def filling(t: float) -> float:
    """A pool of 40 GiB that fills in ten hours, beside 20 GiB that are always there."""
    return 20.0 + min(40.0, 4.0 * t)


def seen_from(hours: float, level: Callable[[float], float], until: float, kept: bool) -> Watched:
    """Watched by an operator that began then; `kept`: it was told what the process had at its start."""
    watched = Watched(offload=40.0)
    watched.mono = hours * HOUR
    if kept:
        watched.state = MemoryState(source=Source.ENGINE, reference=level(0.0) * GIB, from_start=True)
    while watched.hours < until and not watched.state.sick:
        watched.see(level(watched.hours + 1 / 60))
    return watched


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "lost"])
@pytest.mark.parametrize("hours", [1.0, 3.0, 5.2, 7.0])
def test_a_pool_half_filled_when_the_operator_restarts_is_no_leak(hours: float, kept: bool) -> None:
    assert not seen_from(hours, filling, 30.0, kept).state.sick


def test_a_leak_beyond_the_pool_is_found_after_a_restart_where_the_start_is_kept() -> None:
    def leaking(t: float) -> float:
        return 10.0 + min(20.0, 10.0 * t) + 1.0 * t

    def found(hours: float, kept: bool) -> float:
        watched = Watched(offload=20.0)
        watched.mono = hours * HOUR
        if kept:
            watched.state = MemoryState(source=Source.ENGINE, reference=10.0 * GIB, from_start=True)
        while watched.hours < 34 and not watched.state.sick:
            watched.see(leaking(watched.hours + 1 / 60))
        assert watched.state.sick
        return watched.hours

    whole = found(0.0, kept=False)
    assert leaking(found(12.0, kept=True)) < LIMIT
    assert found(12.0, kept=True) <= whole + 0.2


def test_a_pool_that_was_there_from_the_start_hides_no_leak_after_a_restart_where_the_start_is_kept() -> None:
    def leaking(t: float) -> float:
        return 45.0 + 1.5 * t

    assert seen_from(4.0, leaking, 12.0, kept=True).state.sick
    assert not seen_from(4.0, leaking, 12.0, kept=False).state.sick, "nobody knows whether the pool fills"


def test_what_one_source_said_of_the_start_is_not_held_against_another() -> None:
    watched = Watched(offload=40.0)
    watched.mono = 5.0 * HOUR
    watched.state = MemoryState(source=Source.RSS, reference=20.0 * GIB, from_start=True)
    watched.see(45.0)
    assert not watched.state.from_start
    assert watched.state.reference == 45.0 * GIB
