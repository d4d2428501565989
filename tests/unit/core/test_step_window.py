"""Windows of steps, by hand (slow paper §2)."""

import pytest

from kintsugi.core.detect.step_window import StepWindow
from kintsugi.core.sample import RankSample, Sample
from kintsugi.core.times import Times


def sample(mono: float, **figures: float) -> Sample:
    rank = RankSample("0", running=1.5, kv_usage=0.5, itl_gap=0.0)
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
        "itl_sum": START["itl_sum"] + 80.0,
    }

    measure = filled(START, last).measure(Times())

    assert measure is not None
    assert measure.seconds == pytest.approx(0.01)
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

    assert filled(START, grown(**decodes, prompt_tokens=200.0 * 250)).measure(Times()) is not None
    assert filled(START, grown(**decodes, prompt_tokens=200.0 * 260)).measure(Times()) is None


@pytest.mark.parametrize(
    ("why", "running", "admitted", "known"),
    [
        ("all that run get tokens", 4.2, 0, True),
        ("one of five is in a prefill all along", 5.0, 0, False),
        ("one of five is always in its first step", 5.0, 1_200, True),
        ("of nine, four have just come in and one is in a prefill", 9.0, 4_800, False),
    ],
)
def test_a_prefill_that_is_not_counted_yet_makes_a_window_unknown_where_only_the_engine_counts(
    why: str, running: float, admitted: int, known: bool
) -> None:
    window = StepWindow()
    for k in range(13):
        figures = {
            name: value + by * k / 12
            for (name, value), by in zip(START.items(), (1_200, 0, 0, 4_800, 240), strict=True)
        }
        window.add(sample(5.0 * k, **figures, running=running, first_tokens=admitted * k / 12), 0, Times())

    assert (window.measure(Times()) is not None) is known, why


def counted(mono: float, *ranks: tuple[float | None, float | None]) -> Sample:
    """A page whose telemetry counts prefill step by step; for each rank its figure and age."""
    figures = {name: value + 20.0 * mono for name, value in START.items()}
    made = (
        RankSample(str(n), 8.0, kv_usage=0.5, itl_gap=0.0, mixed_prefill=tokens, count_age=age, **figures)
        for n, (tokens, age) in enumerate(ranks)
    )
    return Sample(mono, tuple(made))


def whole_chunks(pages: int = 13, leap_at: int = 99) -> StepWindow:
    """Steps of 8,000 prompt tokens each; the count leaps by 40 million before one page."""
    window = StepWindow()
    for k in range(pages):
        window.add(counted(5.0 * k, (1e5 + 8e5 * k + 4e7 * (k >= leap_at), 1.0)), 3, Times())
    return window


def test_what_the_telemetry_counts_step_by_step_is_preferred_and_knows_whole_chunks() -> None:
    measure = whole_chunks().measure(Times())

    assert measure is not None
    assert measure.counted
    assert measure.prefill == pytest.approx(8_000)


def test_a_process_is_measured_by_one_way_of_counting() -> None:
    window = StepWindow()
    for k in range(13):
        window.add(counted(5.0 * k, (1e5 + 200.0 * k, 1.0)), 0, Times())

    by_engine, by_steps = window.measure(Times(), counted=False), window.measure(Times(), counted=True)

    assert by_engine is not None
    assert by_steps is not None
    assert (by_engine.counted, by_steps.counted) == (False, True)
    assert by_steps.prefill == pytest.approx(2.0)
    uncounted = StepWindow()
    for k in range(13):
        uncounted.add(counted(5.0 * k, (None, None)), 0, Times())
    assert uncounted.measure(Times(), counted=True) is None


def test_a_count_that_leaps_by_more_than_steps_can_compute_begins_the_window_anew() -> None:
    assert whole_chunks(leap_at=12).measure(Times()) is None
    assert len(whole_chunks(leap_at=5).rows) == 8
    fallen = whole_chunks()
    fallen.add(counted(65.0, (0.0, 1.0)), 0, Times())
    assert len(fallen.rows) == 1
    after = whole_chunks(pages=19, leap_at=6).measure(Times())
    assert after is not None
    assert after.prefill == pytest.approx(8_000)


@pytest.mark.parametrize(
    ("why", "credited", "known"),
    [
        ("the engine computes prompts, and the count stands still", 70.0, False),
        ("the engine computes hardly any", 60.0, True),
    ],
)
def test_a_count_that_stands_still_while_prompts_are_computed_is_not_believed(
    why: str, credited: float, known: bool
) -> None:
    window = StepWindow()
    for k in range(13):
        figures = {name: value + 20.0 * k for name, value in START.items()}
        figures["prompt_tokens"] += (credited + 1.0) * 20.0 * k
        rank = RankSample("0", 8.0, kv_usage=0.5, itl_gap=0.0, mixed_prefill=7e5, count_age=0.5, **figures)
        window.add(Sample(5.0 * k, (rank,)), 0, Times())

    assert (window.measure(Times()) is not None) is known, why


@pytest.mark.parametrize(
    ("why", "ranks"),
    [
        ("the count is old", [(1e6, 11.0)]),
        ("nobody says how old it is", [(1e6, None)]),
        ("one of two ranks does not say how old it is", [(1e6, 1.0), (1e6, None)]),
        ("one of two ranks has an old one", [(1e6, 1.0), (1e6, 60.0)]),
        ("one of two ranks has none", [(1e6, 1.0), (None, 1.0)]),
    ],
)
def test_a_count_that_may_not_be_of_now_is_none(
    why: str, ranks: list[tuple[float | None, float | None]]
) -> None:
    window = StepWindow()
    for k in range(13):
        window.add(counted(5.0 * k, *ranks), 0, Times())

    assert all(row.mixed is None for row in window.rows), why
    measure = window.measure(Times())
    assert measure is not None
    assert not measure.counted


def test_the_counts_of_two_ranks_are_summed() -> None:
    window = StepWindow()

    window.add(counted(0.0, (100.0, 1.0), (20.0, 9.0)), 0, Times())

    assert window.rows[0].mixed == 120.0


def test_few_steps_are_no_excuse_where_requests_ran_all_along() -> None:
    few = grown(steps=30, itl_count=60, itl_sum=90)

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
