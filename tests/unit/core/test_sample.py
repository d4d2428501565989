"""Typed samples: what ranks add up to, what is absent and stays absent, what is a restart (S08, S09, S10, S12, S13)."""

from pathlib import Path

import pytest

from kintsugi.core.page import PageReader
from kintsugi.core.reading import Absent, Unreadable, Value
from kintsugi.core.sample import Sample, fell, missing_ranks, read_sample
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Page
from tests.unit.core.staging import Engine, Rank

PAGES = Path(__file__).parent / "pages"


def read(text: str, mono: float = 0.0) -> Sample:
    sample = read_sample(PageReader(), Page(text, mono))
    assert isinstance(sample, Sample)
    return sample


def test_old_and_new_names_give_the_same_signals() -> None:
    old = read(
        'vllm:gpu_cache_usage_perc{model_name="dsv4"} 0.71\n'
        'vllm:num_requests_swapped{model_name="dsv4"} 0\n'
        'vllm:time_per_output_token_seconds_count{model_name="dsv4"} 900\n'
        'vllm:gpu_prefix_cache_hits_total{model_name="dsv4"} 5\n'
    )
    new = read(
        'vllm:kv_cache_usage_perc{engine="0"} 0.69\n'
        'vllm:inter_token_latency_seconds_count{engine="0"} 880\n'
        'vllm:prefix_cache_hits_total{engine="0"} 6\n'
    )

    assert old.reading(Signal.KV_USAGE) == Value(0.71)
    assert new.reading(Signal.KV_USAGE) == Value(0.69)
    assert old.reading(Signal.ITL_COUNT) == Value(900)
    assert new.reading(Signal.ITL_COUNT) == Value(880)
    assert old.reading(Signal.SWAPPED) == Value(0)
    swapped = new.reading(Signal.SWAPPED)
    assert isinstance(swapped, Absent)
    assert "not applicable" in swapped.reason


def test_the_newest_name_wins_where_an_engine_shows_both() -> None:
    sample = read('vllm:gpu_cache_usage_perc 0.2\nvllm:kv_cache_usage_perc{engine="0"} 0.3\n')
    turned = read('vllm:kv_cache_usage_perc{engine="0"} 0.3\nvllm:gpu_cache_usage_perc 0.2\n')

    assert sample.kv_max() == turned.kv_max() == 0.3


def test_loads_are_summed_and_of_ratios_the_worst_and_the_mean_are_kept() -> None:
    sample = read(Engine([Rank(kv=0.02), Rank(running=64, waiting=41, kv=0.97)]).page())

    assert sample.reading(Signal.RUNNING) == Value(64)
    assert sample.reading(Signal.WAITING) == Value(41)
    assert sample.reading(Signal.KV_USAGE) == Value(0.97)
    assert sample.kv_mean() == pytest.approx(0.495)


@pytest.mark.parametrize(
    "text",
    [
        "# HELP other:num_requests_running running\nother:num_requests_running 12\nprocess_resident_memory_bytes 2e10\n",
        "",
        "<html>502 Bad Gateway</html>\n",
        (PAGES / "30_disable_log_stats_under_load.txt").read_text(),
    ],
    ids=["other prefix", "empty", "html", "statistics off"],
)
def test_a_page_without_one_known_name_is_unrecognised_and_not_zeros(text: str) -> None:
    sample = read_sample(PageReader(), Page(text, 0.0))

    assert isinstance(sample, Unreadable)
    assert sample.reason.startswith("Unrecognised")


def test_nan_and_infinity_are_absent() -> None:
    sample = read(
        "vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\nvllm:kv_cache_usage_perc 0.5\n"
    )

    assert isinstance(sample.reading(Signal.RUNNING), Absent)
    assert isinstance(sample.reading(Signal.WAITING), Absent)
    assert sample.ranks[0].load() is None


def test_a_real_page_under_load_reads_as_the_engine_said() -> None:
    sample = read((PAGES / "04_under_load_queueing.txt").read_text())

    assert sample.reading(Signal.STEPS) == Value(1036)
    assert sample.total("itl_count") == 7831
    assert sample.total("itl_gap") == 0
    assert sample.max_concurrency == 64.0
    assert sample.moves_by_itself


def test_long_gaps_count_with_the_lower_edge_of_their_bucket() -> None:
    engine = Engine([Rank(itl_count=100, long_gaps=4)])

    assert read(engine.page()).total("itl_gap") == pytest.approx(20.0)


def test_a_falling_counter_or_a_new_start_time_is_a_restart() -> None:
    engine = Engine([Rank(prompt=9.1e6, preemptions=412)])
    before = read(engine.page())
    engine.ranks[0].prompt, engine.ranks[0].preemptions = 57, 0
    fallen = read(engine.page())
    engine.start += 1e5
    restarted = read(engine.page())

    assert fell(before, before) is None
    assert fell(before, fallen) == "prompt_tokens of rank 0"
    assert fell(fallen, restarted) == "process_start_time_seconds"


def test_a_sum_whose_parts_are_added_in_another_order_is_no_restart() -> None:
    first, second = Engine([Rank(itl_sum=0.1 + 0.2 + 0.3)]), Engine([Rank(itl_sum=0.3 + 0.2 + 0.1)])
    assert first.ranks[0].itl_sum > second.ranks[0].itl_sum

    assert fell(read(first.page()), read(second.page())) is None


def test_a_rank_that_vanishes_is_named() -> None:
    sample = read(Engine([Rank()]).page())

    assert missing_ranks({"0", "1"}, sample) == ("1",)


def test_fragmentation_of_several_workers_is_kept_apart() -> None:
    sample = read(Engine(gpu_fragmentation={"0": 0.1, "1": 0.4}).page())

    assert sample.telemetry[Signal.GPU_FRAGMENTATION] == {"0": 0.1, "1": 0.4}
    assert sample.reading(Signal.GPU_FRAGMENTATION) == Value(0.4)


def test_a_page_with_hundreds_of_ranks_is_not_believed() -> None:
    text = "".join(f'vllm:num_requests_running{{engine="{n}"}} 1\n' for n in range(300))

    assert isinstance(read_sample(PageReader(), Page(text, 0.0)), Unreadable)
