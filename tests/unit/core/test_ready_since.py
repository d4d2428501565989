"""Since when a process is Ready: by what was seen of it, where that says less than the kubelet's clock."""

from typing import Any

import pytest

from kintsugi.core.evidence import Memory
from kintsugi.core.times import Times
from tests.unit.core.staging import EPOCH, instance

TIMES = Times()
BORN: dict[str, Any] = {"started_at": EPOCH}


def age(memory: Memory, mono: float, now: float, ready_since: float) -> float:
    seen = instance("a", ready=True, ready_since=ready_since, **BORN)
    process = memory.process(seen, mono, now, TIMES)
    assert process is not None
    return process.age(mono)


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
def test_one_that_was_seen_not_ready_is_as_young_as_that_however_far_ahead_our_clock_is(ahead: float) -> None:
    memory = Memory()
    memory.process(instance("a", ready=False, ready_since=None, **BORN), 100.0, EPOCH + ahead, TIMES)
    assert age(memory, 105.0, EPOCH + ahead + 5, ready_since=EPOCH + 3) == pytest.approx(
        5.0 if ahead else 2.0
    )


def test_one_that_is_ready_at_first_sight_is_as_old_as_the_kubelet_says() -> None:
    assert age(Memory(), 100.0, EPOCH + 900, ready_since=EPOCH) == 900.0


def test_one_that_will_be_ready_only_later_by_our_clock_is_ready_now() -> None:
    assert age(Memory(), 100.0, EPOCH, ready_since=EPOCH + 3600) == 0.0
