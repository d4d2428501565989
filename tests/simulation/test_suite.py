"""The suite on itself, small: it passes on what is right, and a detector that is planted to be wrong makes it fail."""

import random
from dataclasses import replace
from typing import get_args

import pytest

from kintsugi.api.healing import ADVICE_ONLY, Trigger
from kintsugi.core.times import Times
from kintsugi.testing.simulation import mishaps
from kintsugi.testing.simulation.kinds import KINDS
from kintsugi.testing.simulation.suite import (
    INTERVALS,
    Count,
    Frozen,
    Job,
    Size,
    Tally,
    chance_of,
    jobs,
    run,
    too_many,
)
from kintsugi.testing.simulation.temper import draw_temper
from kintsugi.testing.simulation.trial import Trial
from kintsugi.testing.simulation.world import World, deployment

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


def test_healthy_pools_are_looked_at_at_every_interval_and_the_hours_of_each_are_told() -> None:
    jobs_of_minutes = [Job(f"tiny/interval/{n}", seconds=900) for n in range(8)]
    tally = run(jobs_of_minutes, processes=1)

    assert set(tally.by_interval) <= set(INTERVALS)
    assert len(tally.by_interval) > 1
    assert sum(tally.by_interval.values()) == pytest.approx(tally.hours, abs=0.5 * len(jobs_of_minutes))


def test_two_faults_that_begin_side_by_side_are_told_apart_and_neither_is_called_healthy() -> None:
    tally = Job("tiny/beside", ("fragmentation", "orphanedBlocks"), victims=2).do()

    assert lines(tally) == []
    assert {name: count.within_bar for name, count in tally.faults.items()} == {
        "fragmentation": 2,
        "orphanedBlocks": 2,
    }


def test_too_few_hours_or_runs_a_miss_and_a_false_removal_all_fail_the_suite() -> None:
    good = Tally(hours=10, faults={"slow": Count(100, 100, 99)})
    assert good.failures(Size(10, 100)) == []

    assert "healthy hours" in good.failures(Size(11, 100))[0]
    assert "runs came about" in good.failures(Size(10, 200))[0]
    assert "found" in replace(good, faults={"slow": Count(100, 95, 95)}).failures(Size(10, 100))[0]
    assert "within the bar" in replace(good, faults={"slow": Count(100, 100, 95)}).failures(Size(10, 100))[0]
    assert "healthy instance" in replace(good, false=["x"]).failures(Size(10, 100))[0]


def test_of_500_runs_five_may_be_missed_and_of_60_as_many_as_chance_alone_would_explain() -> None:
    assert [too_many(misses, 500) for misses in (5, 6)] == [False, True]
    assert [too_many(misses, 60) for misses in (0, 3, 4)] == [False, False, True]
    assert chance_of(1, 60) == pytest.approx(1 - 0.99**60)


def test_misses_that_no_kind_fails_by_fail_the_suite_together() -> None:
    kinds = {f"kind{n}": Count(60, 60, 57) for n in range(12)}

    assert Tally(faults=kinds).failures(Size(0, 60)) == [
        "all kinds together: 684 of 720 within the bar, fewer than 99 %"
    ]


def test_what_is_written_for_machines_has_the_agreed_form() -> None:
    report = Tally(hours=7.25, false=["x"], faults={"slow": Count(3, 2, 1, [7.0, 9.0])}).report(5)

    assert report == {
        "healthyInstanceHours": 7.2,
        "falseRecreations": 1,
        "seed": 5,
        "faults": {"slow": {"runs": 3, "found": 2, "withinBar": 1}},
    }


@pytest.mark.parametrize("kinds", [("growing",), ("collapsed", "corrupted", "orphanedBlocks")])
def test_every_detector_that_acts_finds_its_fault(kinds: tuple[str, ...]) -> None:
    tally = Job("tiny/collapsed", kinds).do()

    assert lines(tally) == []
    assert [count.within_bar for count in tally.faults.values()] == [1] * len(kinds)


def test_each_detector_that_may_act_has_a_kind_of_fault() -> None:
    simulated = {kind.detector.value for kind in KINDS.values()}

    assert set(get_args(Trigger)) - ADVICE_ONLY - simulated == {"rankDivergence"}, "which is advice, too"


def test_copies_of_a_warm_pool_go_their_own_ways_and_share_what_never_changes() -> None:
    luck = random.Random("copies")
    temper = draw_temper(luck, size=1)
    warm = Trial(World(temper, deployment(1), luck))
    warm.run(60)
    frozen = Frozen.of(warm)

    one, other = frozen.copy(), frozen.copy()
    one.run(60)

    assert (warm.world.t, one.world.t, other.world.t) == (60, 120, 60)
    assert one.world.deployed is other.world.deployed is warm.world.deployed
    other.run(60)
    assert one.last is not None
    assert other.last is not None
    assert one.last.verdicts == other.last.verdicts


def test_two_processes_come_to_what_one_does() -> None:
    work = [Job(f"tiny/both/{n}", seconds=120) for n in range(2)]

    one, two = run(work, processes=1), run(work, processes=2)
    assert one.hours == pytest.approx(two.hours)


PAUSES = Job("planted/5", seconds=1.5 * HOURS)
"""A pool of two; with the rate of the test below its engines stand still for minutes, and go on by themselves."""
CLIMBERS = Job("planted/25", seconds=1.6 * HOURS)
"""A pool in which fragmentation climbs over 12 %, and stays below the default line."""
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

    tally = Job("tiny/rank", ("hangOfOneRank",), victims=2, times=never).do()

    assert "0 of 2 found" in lines(tally)[0]
