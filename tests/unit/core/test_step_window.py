"""Windows of steps, by hand (slow paper §2)."""

import pytest

from kintsugi.core.detect.step_window import StepWindow
from kintsugi.core.sample import RankSample, Sample
from kintsugi.core.series import Signal
from kintsugi.core.times import Times


def sample(mono: float, **figures: float) -> Sample:
    rank = RankSample("0", running=8.0, kv_usage=0.5, itl_gap=0.0)
    for name, value in figures.items():
        setattr(rank, name, value)
    return Sample(mono, (rank,))


def filled(first: dict[str, float], last: dict[str, float], pages: int = 13) -> StepWindow:
    """A window of evenly spaced pages between two sets of counters."""
    window, times = StepWindow(), Times()
    for k in range(pages):
        part = k / (pages - 1)
        figures = {name: first[name] + part * (last[name] - first[name]) for name in first}
        window.add(sample(5.0 * k, **figures), 0, times)
    return window


START = {"steps": 1e4, "prompt_tokens": 1e6, "prefix_hits": 5e5, "itl_count": 1e5, "itl_sum": 2e3}


def test_duration_decodes_prefill_and_usage_are_ratios_of_sums() -> None:
    last = {
        "steps": START["steps"] + 1_000,
        "prompt_tokens": START["prompt_tokens"] + 1_500,
        "prefix_hits": START["prefix_hits"] + 1_280,
        "itl_count": START["itl_count"] + 8_000,
        "itl_sum": START["itl_sum"] + 400.0,
    }

    measure = filled(START, last).measure(Times())

    assert measure is not None
    assert measure.seconds == pytest.approx(0.05)
    assert measure.decodes == pytest.approx(8.0)
    assert measure.prefill == pytest.approx(220 / 1_000)
    assert measure.kv_usage == pytest.approx(0.5)
    assert measure.wall == pytest.approx(0.06)


def grown(**by: float) -> dict[str, float]:
    return {name: START[name] + by.get(name, 0.0) for name in START}


def test_few_scrapes_a_short_span_or_few_steps_are_unknown() -> None:
    much = grown(steps=1_000, itl_count=8_000, itl_sum=400)

    assert filled(START, much, pages=7).measure(Times()) is None
    assert filled(START, grown(steps=10, itl_count=80, itl_sum=4)).measure(Times()) is None


def test_steps_that_carry_whole_chunks_are_unknown_since_a_prefill_is_counted_when_it_ends() -> None:
    decodes = {"steps": 200.0, "itl_count": 1_600.0, "itl_sum": 80.0}

    assert filled(START, grown(**decodes, prompt_tokens=200.0 * 4_000)).measure(Times()) is not None
    assert filled(START, grown(**decodes, prompt_tokens=200.0 * 4_200)).measure(Times()) is None


def counted(mono: float, ages: dict[str, float], *mixed: float | None) -> Sample:
    """A page whose telemetry counts prefill step by step, one figure for each rank."""
    figures = {name: value + 20.0 * mono for name, value in START.items()}
    ranks = tuple(
        RankSample(str(n), running=8.0, kv_usage=0.5, itl_gap=0.0, mixed_prefill=tokens, **figures)
        for n, tokens in enumerate(mixed)
    )
    return Sample(mono, ranks, telemetry={Signal.SAMPLE_AGE: ages})


def test_what_the_telemetry_counts_step_by_step_is_preferred_and_knows_whole_chunks() -> None:
    window = StepWindow()
    for k in range(13):
        window.add(counted(5.0 * k, {"0": 99.0, "steps": 1.0}, 1e5 + 8_000 * 100.0 * k), 3, Times())

    measure = window.measure(Times())

    assert measure is not None
    assert measure.counted
    assert measure.prefill == pytest.approx(8_000)


@pytest.mark.parametrize(
    ("why", "ages", "mixed"),
    [
        ("the count is old", {"steps": 11.0}, (1e6,)),
        ("nobody says how old it is", {"0": 1.0, "pool": 1.0}, (1e6,)),
        ("one of two ranks does not say how old it is", {"steps": 1.0}, (1e6, 1e6)),
        ("one of two ranks has an old one", {"steps": 1.0, "1/steps": 60.0}, (1e6, 1e6)),
        ("one of two ranks has none", {"steps": 1.0, "1/steps": 1.0}, (1e6, None)),
    ],
)
def test_a_count_that_may_not_be_of_now_is_none(
    why: str, ages: dict[str, float], mixed: tuple[float | None, ...]
) -> None:
    window = StepWindow()
    for k in range(13):
        window.add(counted(5.0 * k, ages, *mixed), 0, Times())

    assert all(row.mixed is None for row in window.rows), why
    measure = window.measure(Times())
    assert measure is not None
    assert not measure.counted


def test_the_counts_of_two_ranks_are_summed() -> None:
    window = StepWindow()

    window.add(counted(0.0, {"steps": 1.0, "1/steps": 9.0}, 100.0, 20.0), 0, Times())

    assert window.rows[0].mixed == 120.0


def test_few_steps_are_no_excuse_where_requests_ran_all_along() -> None:
    few = grown(steps=30, itl_count=60, itl_sum=30)

    assert filled(START, few).measure(Times()) is not None


def test_a_page_without_steps_adds_nothing() -> None:
    window = StepWindow()

    window.add(sample(0.0, prompt_tokens=1.0, itl_count=1.0, itl_sum=1.0), 0, Times())

    assert not window.rows


def test_our_own_canaries_are_taken_off() -> None:
    window = StepWindow()

    window.add(sample(0.0, **START), 7, Times())

    assert window.rows[0].steps == START["steps"] - 7
    assert window.rows[0].computed == START["prompt_tokens"] - START["prefix_hits"] - 28
