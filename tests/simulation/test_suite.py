"""The suite on itself, small: it passes on what is right, and a detector that is planted to be wrong makes it fail."""

from dataclasses import replace

import pytest

from kintsugi.core.times import Times
from kintsugi.testing.simulation import mishaps
from kintsugi.testing.simulation.suite import Count, Job, Size, Tally, jobs, run

HOURS = 3_600.0
DEFAULTS = Times()


def lines(tally: Tally) -> list[str]:
    """What misses its bar, with no demand on the amount of work."""
    return tally.failures(Size(0, 0))


def test_a_healthy_pool_loses_nobody_and_its_hours_are_counted() -> None:
    tally = Job("tiny/healthy", seconds=0.7 * HOURS).do()

    assert lines(tally) == []
    assert tally.hours > 0.6


def test_the_same_seed_gives_the_same_story() -> None:
    first, second = (Job("tiny/again", seconds=0.2 * HOURS).do() for _ in range(2))

    assert first == second


def test_a_hung_rank_is_found_within_its_bar() -> None:
    tally = Job("tiny/rank", ("hangOfOneRank",)).do()

    assert lines(tally) == []
    (count,) = tally.faults.values()
    assert (count.runs, count.found, count.within_bar) == (1, 1, 1)
    assert 60 <= count.delays[0] <= 90


def test_work_is_split_so_that_hours_and_runs_come_about() -> None:
    work = jobs(Size(300, 7), seed=5)
    healthy = [job for job in work if not job.kinds]
    by_kind = {name: sum(j.victims for j in work if name in j.kinds) for name in ("slow", "hangOfOneRank")}

    assert len({job.seed for job in work}) == len(work)
    assert len(healthy) * 12 * 4 >= 300
    assert by_kind == {"slow": 7, "hangOfOneRank": 7}


def test_too_few_hours_or_runs_a_miss_and_a_false_removal_all_fail_the_suite() -> None:
    good = Tally(hours=10, faults={"slow": Count(100, 100, 99)})
    assert good.failures(Size(10, 100)) == []

    assert "healthy hours" in good.failures(Size(11, 100))[0]
    assert "runs came about" in good.failures(Size(10, 200))[0]
    assert "found" in replace(good, faults={"slow": Count(100, 98, 98)}).failures(Size(10, 100))[0]
    assert "within the bar" in replace(good, faults={"slow": Count(100, 100, 98)}).failures(Size(10, 100))[0]
    assert "healthy instance" in replace(good, false=["x"]).failures(Size(10, 100))[0]


def test_two_processes_come_to_what_one_does() -> None:
    work = [Job(f"tiny/both/{n}", seconds=120) for n in range(2)]

    one, two = run(work, processes=1), run(work, processes=2)
    assert one.hours == pytest.approx(two.hours)


PAUSES = Job("planted/5", seconds=1.5 * HOURS)
"""A pool of two; with the rate of the test below its engines stand still for minutes, and go on by themselves."""
CLIMBERS = Job("planted/3", seconds=1.6 * HOURS)
"""A pool in which fragmentation climbs to 14 %, and stays there."""
LOW_LINE = {"healing": {"triggers": {"fragmentation": {"thresholdPercent": 12}}}}


def test_a_removal_time_planted_at_half_of_the_default_fails_the_suite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mishaps, "LONG_PAUSES_PER_HOUR", 4.0)
    assert lines(PAUSES.do()) == []

    halved = replace(PAUSES, times=replace(DEFAULTS, stall_remove=DEFAULTS.stall_remove / 2)).do()

    assert any("stall/Stalled" in line and "planted/5" in line for line in lines(halved))


def test_a_fragmentation_line_planted_at_half_of_the_default_fails_the_suite() -> None:
    assert lines(CLIMBERS.do()) == []

    halved = replace(CLIMBERS, spec=LOW_LINE).do()

    assert any("fragmentation/Fragmented" in line for line in lines(halved))


def test_a_detector_planted_blind_fails_the_suite() -> None:
    never = replace(DEFAULTS, stall_withdraw=3_600.0, stall_remove=3_600.0)

    tally = Job("tiny/rank", ("hangOfOneRank",), times=never).do()

    assert "0 of 1 found" in lines(tally)[0]
