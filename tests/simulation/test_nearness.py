"""The 99 % quantile of what healthy engines lose, as the suite tells it."""

import math
from collections.abc import Mapping

import pytest

from kintsugi.core.evidence import Memory, new_process
from kintsugi.core.snapshot import ProcessKey
from kintsugi.core.times import Times
from kintsugi.testing.simulation.nearness import Nearness, quantile


def memory_of(lost: Mapping[str, float | None], started: float = 0.0) -> Memory:
    """One process a pod, with this D; None where it is Unknown."""
    memory = Memory()
    for uid, known in lost.items():
        key = ProcessKey(uid, started)
        process = memory.processes[key] = new_process(key, 0.0, Times())
        process.slow.own = process.slow.dif = known
    return memory


def percent(lost: float) -> float:
    return 100 * (1 - math.exp(-lost))


def test_the_worst_instance_of_a_pool_counts_once_a_minute_whatever_stands_between() -> None:
    near = Nearness()
    for minute in range(100):
        near.note(
            60.0 * minute, memory_of({"calm": 0.05, "lossy": 0.5 if minute >= 90 else 0.1, "mute": None})
        )
        near.note(60.0 * minute + 30, memory_of({"calm": 3.0}))

    assert near.worst() == pytest.approx(percent(0.5))


def test_an_instance_has_a_quantile_once_an_hour_is_known_and_its_restarts_add_up() -> None:
    near = Nearness()
    for minute in range(59):
        near.note(60.0 * minute, memory_of({"young": 0.1}, started=float(minute // 30)))

    assert near.worst() is None
    near.note(60.0 * 59, memory_of({"young": 0.1}, started=2.0))
    assert near.worst() == pytest.approx(percent(0.1))


def test_a_quantile_lies_between_two_values_in_proportion() -> None:
    assert quantile([0.0, 10.0], 0.99) == pytest.approx(9.9)
    assert quantile([5.0, 1.0, 3.0], 0.5) == pytest.approx(3.0)
