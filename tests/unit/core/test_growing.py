import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar

import pytest

from kintsugi.core.detect.growing import (
    Level,
    MemoryState,
    Source,
    forecast_of,
    level_of,
    see_memory,
)
from kintsugi.core.detect.growing_findings import forecast_seconds, growth_findings, memory_percent
from kintsugi.core.finding import Finding, Severity
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Measured
from kintsugi.core.times import Times
from tests.unit.core.memory_shapes import DAY, GIB, HEALTHY, LEAKS, LIMIT, MINUTE, Make, Series

HOUR = 3600.0
LIMIT_BYTES = LIMIT * GIB
EPOCH = 1_790_000_000.0


class Watched:
    """One process from its start on, one sample a minute."""

    def __init__(self, times: Times | None = None, offload: float = 0.0) -> None:
        self.times = times or Times()
        self.state = MemoryState()
        self.offload = offload
        self.mono = 0.0

    def see(self, gib: float | None, limit: float | None = LIMIT, source: Source = Source.ENGINE) -> None:
        """The next minute; None = nothing was read."""
        self.mono += self.times.growth_sample
        level = None if gib is None else Level(gib * GIB, None if limit is None else limit * GIB, source)
        see_memory(self.state, level, self.mono, self.offload * GIB, self.mono, EPOCH + self.mono, self.times)

    def run(self, hours: float, level: Callable[[float], float | None], **more: object) -> "Watched":
        """`level` of the hours since the process's start, in GiB."""
        for _ in range(round(hours * 60)):
            self.see(level((self.mono + self.times.growth_sample) / HOUR), **more)  # type: ignore[arg-type]
        return self

    @property
    def hours(self) -> float:
        return self.mono / HOUR

    def finding(self) -> Finding | None:
        found = growth_findings(self.state, self.mono, EPOCH + self.mono, self.times)
        return found[0] if found else None

    def severity(self) -> Severity | None:
        found = self.finding()
        return found.severity if found else None


def first_sick(series: Iterable[float]) -> int | None:
    """The minute of the verdict."""
    watched = Watched()
    for minute, gib in enumerate(series):
        watched.see(gib)
        if watched.state.sick:
            return minute
    return None


def s20(hours: float) -> float:
    return 22.0 + 8.0 * hours


def test_the_leak_of_s20_is_found_by_hour_four_with_a_forecast_and_a_deadline() -> None:
    watched = Watched()
    while not watched.state.sick:
        watched.see(s20(watched.hours))
        assert watched.hours <= 4.0
    found = watched.finding()
    assert found is not None
    assert (found.severity, found.reason, found.removable) == (Severity.SICK, "MemoryGrows", True)
    truth = (LIMIT - s20(watched.hours)) / 8.0 * HOUR
    left = forecast_seconds(watched.state, watched.mono, watched.times)
    assert left is not None
    assert abs(left - truth) < 300
    assert found.deadline is not None
    assert abs(found.deadline - (EPOCH + watched.mono + truth)) < 300
    assert not found.serves_nothing


def test_a_process_is_not_looked_at_before_three_and_a_half_hours() -> None:
    watched = Watched().run(3.45, lambda t: 50.0 + 3 * t)
    assert watched.state.forecast is None
    watched.run(0.15, lambda t: 50.0 + 3 * t)
    assert watched.state.forecast is not None
    assert watched.severity() is Severity.SUSPECT
    assert forecast_seconds(watched.state, watched.mono, watched.times) is not None


def test_one_look_that_agrees_is_a_suspicion_and_the_second_ten_minutes_later_a_verdict() -> None:
    watched = Watched().run(3.6, s20)
    assert watched.severity() is Severity.SUSPECT
    before = watched.mono
    while watched.severity() is Severity.SUSPECT:
        watched.see(s20(watched.hours))
    assert watched.severity() is Severity.SICK
    assert watched.mono - before <= watched.times.growth_look


def test_far_from_the_limit_nothing_is_said() -> None:
    watched = Watched().run(12, lambda t: 10.0 + 2 * t, limit=80.0)
    assert watched.state.forecast is not None
    assert watched.state.forecast.top < 0.7 * watched.state.forecast.limit
    assert watched.finding() is None


def test_a_rise_that_takes_longer_than_the_horizon_is_only_forecast() -> None:
    watched = Watched().run(12, lambda t: 50.0 + 0.5 * t)
    assert watched.finding() is None
    left = forecast_seconds(watched.state, watched.mono, watched.times)
    assert left is not None
    assert left > Times().growth_horizon


def test_a_flat_high_level_is_well() -> None:
    watched = Watched().run(30, lambda t: 60.0)
    assert watched.finding() is None
    assert memory_percent(watched.state, watched.mono, watched.times) == pytest.approx(100 * 60 / 64)
    assert forecast_seconds(watched.state, watched.mono, watched.times) is None


def test_the_working_set_alone_gives_advice_and_never_more() -> None:
    watched = Watched().run(5, s20, source=Source.WORKING_SET)
    found = watched.finding()
    assert found is not None
    assert (found.severity, found.reason, found.removable) == (Severity.ADVICE, "WorkingSetGrows", False)


def test_resident_memory_told_by_prometheus_counts_as_the_engines_own() -> None:
    assert Watched().run(4, s20, source=Source.RSS).severity() is Severity.SICK


def test_a_linear_fill_that_kv_offload_explains_is_well() -> None:
    def fill(t: float) -> float:
        return 21.0 + min(30.0, 10.0 * max(0.0, t - 2))  # ends at 80 % of 64 GiB

    assert Watched(offload=30.0).run(12, fill).finding() is None
    told = Watched()
    assert any(told.run(1 / 6, fill).severity() is not None for _ in range(60))


def test_offload_that_was_there_from_the_start_hides_no_leak() -> None:
    watched = Watched(offload=30.0).run(4, lambda t: 32.0 + s20(t) - 22.0)
    assert watched.severity() is Severity.SICK


def test_a_leak_beyond_the_filled_offload_pool_is_found() -> None:
    watched = Watched(offload=20.0)
    while not watched.state.sick and watched.hours < 12:
        watched.see(15.0 + 6.0 * watched.hours)
    assert watched.state.sick
    assert 15.0 + 6.0 * watched.hours < LIMIT


def test_a_raised_limit_starts_the_watch_again() -> None:
    watched = Watched().run(4, s20)
    assert watched.severity() is Severity.SICK
    watched.run(0.5, s20, limit=128.0)
    assert watched.finding() is None
    assert watched.state.forecast is None


def test_a_limit_rounded_to_pages_is_the_same_limit() -> None:
    watched = Watched().run(3.9, s20)
    watched.see(s20(watched.hours), limit=LIMIT - 4096 / GIB)
    assert watched.severity() is Severity.SICK


def test_without_a_limit_there_is_no_forecast() -> None:
    watched = Watched().run(8, s20, limit=None)
    assert watched.state.forecast is None
    assert memory_percent(watched.state, watched.mono, watched.times) is None


def test_two_buckets_without_a_sample_start_the_watch_again() -> None:
    def leak(t: float) -> float:
        return 30.0 + 4.5 * t

    watched = Watched().run(3.0, leak).run(1.0, lambda t: None).run(0.4, leak)
    assert watched.state.forecast is None
    watched.run(1.0, leak)
    assert watched.state.forecast is None, "a whole window of its own is needed"
    watched.run(0.8, leak)
    assert watched.severity() is Severity.SICK


def test_one_bucket_without_a_sample_does_not_matter() -> None:
    watched = Watched().run(2.6, s20).run(0.25, lambda t: None).run(1.15, s20)
    assert watched.severity() is Severity.SICK


def test_a_verdict_becomes_unknown_when_nothing_is_said_of_the_memory_any_more() -> None:
    watched = Watched().run(4, s20).run(0.2, lambda t: None)
    found = watched.finding()
    assert found is not None
    assert (found.severity, found.reason) == (Severity.SUSPECT, "GrowthUnknown")
    assert not watched.state.cleared
    assert memory_percent(watched.state, watched.mono, watched.times) is None


def test_a_verdict_ends_after_two_looks_in_a_row_without_growth() -> None:
    watched = Watched().run(4, s20)
    assert watched.severity() is Severity.SICK
    watched.run(1 / 6, lambda t: 30.0)
    assert watched.severity() is Severity.SICK, "the first look still sees the slope or is only one"
    watched.run(1.5, lambda t: 30.0)
    assert watched.finding() is None
    assert watched.state.cleared


def test_a_single_step_is_no_slope() -> None:
    watched = Watched()
    for _ in range(12 * 60):
        watched.see(40.0 if watched.hours < 8 else 58.0)
        assert not watched.state.sick


def test_a_sawtooth_that_comes_back_is_well_though_its_peaks_are_near_the_limit() -> None:
    watched = Watched()
    for _ in range(48 * 60):
        watched.see(40.0 + 19.0 * (watched.hours / 0.7 % 1))
        assert watched.finding() is None


def test_a_lesser_source_does_not_push_out_a_better_one() -> None:
    watched = Watched().run(3.5, s20)
    watched.see(90.0, source=Source.WORKING_SET)
    assert watched.state.source is Source.ENGINE
    watched.run(0.5, s20)
    assert watched.severity() is Severity.SICK


def test_several_pages_a_minute_count_as_one_sample() -> None:
    watched = Watched()
    for second in range(0, 14_500, 5):
        level = Level(s20(second / HOUR) * GIB, LIMIT_BYTES, Source.ENGINE)
        see_memory(watched.state, level, float(second), 0.0, float(second), EPOCH, watched.times)
    assert watched.state.forecast is not None
    assert watched.state.forecast.samples <= 14_500 / 60 + 1
    assert watched.state.sick


def test_a_rehearsal_shortens_every_time_alike() -> None:
    times = Times().sped_up(60.0)
    watched = Watched(times)
    while not watched.state.sick and watched.mono < 4 * 60:
        watched.see(s20(60.0 * watched.mono / HOUR))
    assert watched.state.sick
    assert 3.5 * 60 <= watched.mono <= 4 * 60


def test_losing_the_memory_only_ever_delays() -> None:
    whole = Watched().run(4, s20)
    assert whole.state.sick
    later = Watched()
    later.mono = 3.9 * HOUR
    later.run(0.3, s20)
    assert not later.state.sick


class TestTheForecast:
    def test_the_slope_is_the_median_of_the_pairs(self) -> None:
        found = forecast_of([0.0, 10.0, 20.0, 30.0, 40.0, 1000.0], 80.0, 100.0, 10.0, 1e9)
        assert found.slope == pytest.approx(1.0)
        assert found.seconds == pytest.approx(20.0)
        assert found.counts

    def test_a_falling_floor_never_reaches_the_limit(self) -> None:
        found = forecast_of([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 99.0, 100.0, 10.0, 1e9)
        assert math.isinf(found.seconds)
        assert not found.counts

    def test_a_peak_above_the_limit_is_reached_now(self) -> None:
        assert forecast_of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 120.0, 100.0, 10.0, 60.0).seconds == 0.0

    def test_without_data_there_is_no_slope(self) -> None:
        assert not forecast_of([None] * 6, 99.0, 100.0, 10.0, 1e9).counts


class TestTheLevel:
    page: ClassVar = {
        Signal.MEMORY_ANONYMOUS: {"0": 10 * GIB, "1": 11 * GIB},
        Signal.MEMORY_SHARED: {"0": 2 * GIB},
        Signal.MEMORY_LIMIT: {"0": 32 * GIB},
    }
    said = Measured(mono=100.0, memory_rss=9 * GIB, memory_working_set=20 * GIB)

    def test_the_engines_own_word_comes_first_and_shared_memory_counts(self) -> None:
        assert level_of(self.page, self.said, 64 * GIB, 100.0) == Level(13 * GIB, 32 * GIB, Source.ENGINE)

    def test_the_pods_limit_fills_in(self) -> None:
        page = {Signal.MEMORY_ANONYMOUS: {"0": 10 * GIB}}
        assert level_of(page, None, 64 * GIB, 0.0) == Level(10 * GIB, 64 * GIB, Source.ENGINE)
        assert level_of(page, None, None, 0.0) == Level(10 * GIB, None, Source.ENGINE)

    def test_then_resident_memory_and_then_the_working_set(self) -> None:
        assert level_of({}, self.said, 64 * GIB, 100.0) == Level(9 * GIB, 64 * GIB, Source.RSS)
        less = replace(self.said, memory_rss=None)
        assert level_of({}, less, 64 * GIB, 100.0) == Level(20 * GIB, 64 * GIB, Source.WORKING_SET)

    def test_an_old_word_is_none(self) -> None:
        assert level_of({}, self.said, 64 * GIB, 100.0 + 181.0) is None

    def test_nothing_said_is_nothing_known_and_never_zero(self) -> None:
        assert level_of({}, None, 64 * GIB, 0.0) is None
        assert level_of({Signal.MEMORY_ANONYMOUS: {"0": 0.0}}, None, 64 * GIB, 0.0) is None


SERIES = 6
"""Of each shape and in this suite; the rates that the defaults were chosen by need thousands of hours."""


@pytest.mark.parametrize("shape", HEALTHY)
def test_healthy_shapes_are_left_alone(shape: str) -> None:
    wrong = [
        seed for seed in range(SERIES) if first_sick(HEALTHY[shape](Make(seed, 2 * DAY)).levels) is not None
    ]
    assert len(wrong) <= (1 if shape == "daily" else 0), wrong


@pytest.mark.parametrize("shape", LEAKS)
def test_leaks_are_found_before_the_limit(shape: str) -> None:
    caught, leads = 0, []
    deadly = 0
    for seed in range(SERIES):
        series: Series = LEAKS[shape](Make(seed, 7 * DAY))
        if series.dies is None:
            continue
        deadly += 1
        found = first_sick(series.levels)
        if found is not None:
            caught += 1
            leads.append((series.dies - found) / MINUTE)
    assert deadly >= SERIES - 2
    assert caught >= deadly - 1
    assert sorted(leads)[len(leads) // 2] >= 0.5, "hours of warning"
