"""From pages to traffic: what counts, from when on, and who is left out and why."""

from pathlib import Path

import pytest

from kintsugi.core.advisor.histogram import Histogram, histogram
from kintsugi.core.advisor.look import read_look, traffic_reader
from kintsugi.core.advisor.traffic import Glance, glance, pool_traffic
from kintsugi.core.reading import Unreadable
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Page
from kintsugi.testing.engine import SimulatedEngine
from kintsugi.testing.engine.faults import CounterReset, Hang
from tests.unit.advisor.stage import Load, Stage, fixed

REAL = Path(__file__).parents[1] / "core" / "pages"


def real(name: str, mono: float) -> Glance:
    text = (REAL / f"{name}.txt").read_text(encoding="utf-8")
    return glance(traffic_reader(), "e-0", Page(text, mono))


def busy(seconds: float = 60.0) -> tuple[SimulatedEngine, list[Glance]]:
    """An engine with eight long requests running, and a look every 5 s."""
    engine, reader = SimulatedEngine(), traffic_reader()
    for _ in range(8):
        engine.submit(0.0, 500, 100_000)
    looks = [
        glance(reader, "e-0", Page(engine.page(t), t))
        for t in (5.0 * n for n in range(1, int(seconds / 5) + 1))
    ]
    return engine, looks


def test_two_real_pages_give_the_requests_between_them() -> None:
    traffic = pool_traffic("main", [real("01_idle", 0.0), real("04_under_load_queueing", 60.0)])
    assert traffic.left_out == ()
    assert traffic.requests == 58
    prompts = traffic.histogram(Signal.PROMPT_LENGTHS)
    assert prompts is not None
    assert prompts.count == 58
    assert prompts.mean == pytest.approx(5640 / 58)
    assert prompts.quantile(0.5) == pytest.approx(50 + 50 * (29 - 2) / 56)
    (last,) = traffic.instances[0].looks[-1:]
    assert (last.facts.memory_utilization, last.facts.block_tokens) == (0.92, 32)
    assert [m.waiting for m in traffic.moments()][-1] == 24


def test_a_real_preemption_is_seen_on_real_pages() -> None:
    look = read_look(
        traffic_reader(), Page((REAL / "22_small_kv_during_preemption.txt").read_text(encoding="utf-8"), 0.0)
    )
    assert not isinstance(look, Unreadable)
    assert look.sample.total("preemptions") == 5
    assert look.sample.kv_max() == pytest.approx(0.986, abs=0.001)


def test_a_page_without_engine_series_names_the_flag_that_does_it() -> None:
    traffic = pool_traffic("main", [real("30_disable_log_stats_under_load", t) for t in (0.0, 5.0)])
    assert traffic.instances == ()
    assert "--disable-log-stats" in traffic.left_out[0]


def test_what_came_before_a_restart_does_not_count() -> None:
    engine, looks = busy()
    engine.inject(CounterReset(), 60.0)
    reader = traffic_reader()
    looks += [glance(reader, "e-0", Page(engine.page(t), t)) for t in (65.0, 70.0, 75.0)]
    traffic = pool_traffic("main", looks)
    assert traffic.instances[0].seconds == 10.0
    assert traffic.looks == 3


def test_an_instance_that_has_just_restarted_is_left_out_and_said_so() -> None:
    engine, looks = busy()
    engine.inject(CounterReset(), 60.0)
    looks.append(glance(traffic_reader(), "e-0", Page(engine.page(65.0), 65.0)))
    assert pool_traffic("main", looks).left_out == ("e-0: restarted just now: one page since",)


def test_gauges_of_a_hung_engine_are_no_traffic() -> None:
    engine, _ = busy()
    engine.inject(Hang(), 60.0)
    reader = traffic_reader()
    looks = [glance(reader, "e-0", Page(engine.page(t), t)) for t in (65.0, 70.0, 75.0)]
    traffic = pool_traffic("main", looks)
    assert traffic.instances == ()
    assert "no engine step" in traffic.left_out[0]


def test_an_idle_engine_is_traffic_of_nothing_and_not_left_out() -> None:
    engine, reader = SimulatedEngine(), traffic_reader()
    looks = [glance(reader, "e-0", Page(engine.page(t), t)) for t in (5.0, 10.0, 15.0)]
    traffic = pool_traffic("main", looks)
    assert traffic.left_out == ()
    assert traffic.requests == 0


def test_an_instance_not_seen_of_late_is_left_out() -> None:
    _, old = busy(30.0)
    _, new = busy(300.0)
    new = [Glance("e-1", each.mono, each.look) for each in new]
    traffic = pool_traffic("main", old + new)
    assert [i.name for i in traffic.instances] == ["e-1"]
    assert traffic.left_out == ("e-0: its last readable page is 270 s older than the pool's newest",)


def test_the_window_counts_back_from_the_newest_page() -> None:
    _, looks = busy(300.0)
    assert pool_traffic("main", looks, window=60.0).seconds == 60.0


def test_the_order_of_pages_does_not_matter_and_a_page_twice_counts_once() -> None:
    _, looks = busy()
    straight = pool_traffic("main", looks)
    assert pool_traffic("main", [*reversed(looks), looks[3]]) == straight


def test_kv_blocks_on_the_page_are_shared_out_over_the_ranks() -> None:
    engine = SimulatedEngine(ranks=4)
    look = read_look(
        traffic_reader(), Page(engine.page(1.0).replace('num_gpu_blocks="4097"', 'num_gpu_blocks="400"'), 1.0)
    )
    assert not isinstance(look, Unreadable)
    assert look.facts.blocks == pytest.approx(100.0)


def test_arrivals_are_what_ended_and_what_piled_up() -> None:
    stage = Stage(Load(6.0, fixed(500, 300)))
    stage.shape = type(stage.shape)(max_num_seqs=16)
    traffic = stage.traffic()
    assert traffic.arrived == pytest.approx(6.0 * 120, rel=0.05)
    assert traffic.requests < 0.5 * traffic.arrived


def test_a_histogram_without_observations_has_no_mean_and_no_quantile() -> None:
    empty = Histogram()
    assert (empty.mean, empty.quantile(0.5), empty.share_above(3.0)) == (None, None, None)


def test_the_open_bucket_reaches_one_step_further_than_its_edge() -> None:
    found = histogram({1.0: 0.0, 2.0: 5.0, float("inf"): 10.0}, 20.0)
    assert found.counts == {(0.0, 1.0): 0.0, (1.0, 2.0): 5.0, (2.0, 4.0): 5.0}
    assert found.quantile(0.75) == 3.0
    assert found.share_above(3.0) == pytest.approx(0.25)


def test_a_histogram_that_falls_between_two_pages_gives_nothing_negative() -> None:
    found = histogram({1.0: 7.0, 2.0: 4.0, float("inf"): 10.0}, 20.0)
    assert all(count >= 0 for count in found.counts.values())
