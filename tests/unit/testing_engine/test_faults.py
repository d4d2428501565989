"""Faults as values: how they are written, and what each does to the page and the counters, in simulated time."""

import math
import re

import pytest

from kintsugi.testing.engine import (
    FAULTS,
    CoarseLoad,
    EngineShape,
    FaultError,
    SimulatedEngine,
    parse_fault,
    parse_fault_argument,
)
from kintsugi.testing.engine.faults import (
    CacheMiss,
    CounterReset,
    EngineDead,
    ErrorFrames,
    ForeignPrefix,
    Fragmentation,
    Hang,
    KvPressure,
    MemoryGrowth,
    NanMetrics,
    OldNames,
    OrphanedBlocks,
    SlowStart,
    StaleGauges,
    ThroughputDrop,
    VanishedSeries,
)
from kintsugi_engine import contract
from tests.unit.testing_engine.pages import samples

LOAD = CoarseLoad(requests_per_second=4)
FRAGMENTATION = f"{contract.GPU_FRAGMENTATION}|rank=0"


def read(engine: SimulatedEngine, now: float) -> dict[str, float]:
    return samples(engine.page(now))


# -- how they are written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_every_fault_survives_the_way_over_the_wire(name: str) -> None:
    fault = FAULTS[name](after_seconds=3.0, for_seconds=7.5)
    document = fault.document()
    assert document["fault"] == name
    assert parse_fault({k: list(v) if isinstance(v, tuple) else v for k, v in document.items()}) == fault
    assert parse_fault_argument(f"{name}:afterSeconds=3,forSeconds=7.5") == fault


def test_short_forms_set_the_main_field() -> None:
    assert parse_fault_argument("hang") == Hang()
    assert parse_fault_argument("slowStart=30") == SlowStart(seconds=30)
    assert parse_fault_argument("fragmentation:percent=60,overSeconds=20") == Fragmentation(
        percent=60, over_seconds=20
    )
    assert parse_fault_argument('{"fault": "hang", "rank": 1}') == Hang(rank=1)
    assert parse_fault_argument("vanishedSeries=kintsugi_gpu+vllm:kv") == VanishedSeries(
        series=("kintsugi_gpu", "vllm:kv")
    )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {"fault": "fragmentation", "percent": 200},
            "'fragmentation': field 'percent' must be a number from 0 to 100",
        ),
        ({"fault": "fragmentation", "percent": "a lot"}, "field 'percent'"),
        ({"fault": "fragmentation", "percent": True}, "field 'percent'"),
        ({"fault": "fragmentation", "percent": math.nan}, "field 'percent'"),
        ({"fault": "throughputDrop", "percent": 100}, "field 'percent' must be a number from 0 to 99"),
        ({"fault": "fragmentation", "overSeconds": -1}, "field 'overSeconds'"),
        ({"fault": "hang", "forSeconds": "x"}, "field 'forSeconds'"),
        ({"fault": "hang", "rank": 1.5}, "field 'rank' must be a whole number"),
        ({"fault": "crash", "exitCode": 256}, "field 'exitCode'"),
        ({"fault": "nanMetrics", "series": [""]}, "field 'series'"),
        ({"fault": "foreignPrefix", "prefix": ""}, "field 'prefix'"),
        ({"fault": "memoryGrowth", "allocate": 1}, "field 'allocate' must be true or false"),
        ({"fault": "hang", "percent": 3}, "no field 'percent'"),
        ({"fault": "hangs"}, "field 'fault' must be one of"),
        ({}, "field 'fault'"),
        (["hang"], "JSON object"),
    ],
)
def test_a_wrong_fault_names_its_field(document: object, words: str) -> None:
    with pytest.raises(FaultError, match=re.escape(words)):
        parse_fault(document)


@pytest.mark.parametrize("argument", ["hang=3", "fragmentation:percent", "{nonsense", "crash=lots"])
def test_a_wrong_short_form_is_refused(argument: str) -> None:
    with pytest.raises(FaultError):
        parse_fault_argument(argument)


# -- what they do ------------------------------------------------------------------------------------------------


def test_fragmentation_ramps_to_its_level_and_falls_back_when_cleared() -> None:
    engine = SimulatedEngine(load=LOAD, fragmentation=0.10)
    assert read(engine, 10.0)[FRAGMENTATION] == pytest.approx(0.10)
    engine.inject(Fragmentation(percent=60, over_seconds=20), 10.0)
    assert read(engine, 20.0)[FRAGMENTATION] == pytest.approx(0.35, abs=0.01)
    assert read(engine, 40.0)[FRAGMENTATION] == pytest.approx(0.60)
    engine.inject(Fragmentation(percent=20, over_seconds=10), 40.0)
    assert read(engine, 45.0)[FRAGMENTATION] == pytest.approx(0.40, abs=0.01)
    assert engine.clear(60.0) == ["fragmentation"]
    assert read(engine, 61.0)[FRAGMENTATION] == pytest.approx(0.10)


def test_fragmentation_of_one_worker_leaves_its_sisters_alone() -> None:
    engine = SimulatedEngine(load=LOAD, workers=4, fragmentation=0.10)
    engine.inject(Fragmentation(percent=70, rank=2), 0.0)
    page = read(engine, 5.0)
    levels = [page[f"{contract.GPU_FRAGMENTATION}|rank={rank}"] for rank in range(4)]
    assert levels == pytest.approx([0.10, 0.10, 0.70, 0.10])


def test_compacting_ends_the_fragmentation() -> None:
    engine = SimulatedEngine(load=LOAD, fragmentation=0.10)
    engine.inject(Fragmentation(percent=70), 0.0)
    assert read(engine, 5.0)[FRAGMENTATION] == pytest.approx(0.70)
    engine.compact(5.0)
    assert read(engine, 6.0)[FRAGMENTATION] == pytest.approx(0.10)


def test_an_idle_engine_keeps_its_last_telemetry_sample_and_says_how_old_it_is() -> None:
    engine = SimulatedEngine(fragmentation=0.10)
    engine.submit(0.0, 10, 50)
    engine.advance(10.0)
    engine.page(10.0)
    engine.inject(Fragmentation(percent=70), 10.0)
    page = read(engine, 100.0)
    assert page[FRAGMENTATION] == pytest.approx(0.10)
    assert page[contract.SAMPLE_AGE] == pytest.approx(100.0, abs=3.0)


def test_a_throughput_drop_stretches_the_step_by_its_share() -> None:
    engine = SimulatedEngine(load=LOAD)
    means = []
    for begin, end in ((0.0, 200.0), (200.0, 400.0)):
        latency = engine.counters[0].inter_token_latency
        before = (latency.total, latency.count)
        for step in range(1, 41):
            engine.advance(begin + (end - begin) * step / 40)
        means.append((latency.total - before[0]) / (latency.count - before[1]))
        engine.inject(ThroughputDrop(percent=60), end)
    # Equal work would be 2.5; the slower step also makes the batch larger.
    assert 2.4 < means[1] / means[0] < 4.0


def test_a_creeping_throughput_drop_grows_over_its_time() -> None:
    engine = SimulatedEngine()
    engine.inject(ThroughputDrop(percent=50, over_seconds=100), 0.0)
    engine.advance(50.0)
    assert engine.ranks[0].step_factor == pytest.approx(1 / 0.75)
    engine.advance(200.0)
    assert engine.ranks[0].step_factor == pytest.approx(2.0)


def test_a_hang_freezes_every_counter_and_gauge_and_swallows_what_comes() -> None:
    engine = SimulatedEngine()
    for _ in range(3):
        engine.submit(0.0, 100, 400)
    engine.advance(1.0)
    engine.inject(Hang(), 1.0)
    before = {k: v for k, v in read(engine, 1.0).items() if k.startswith("vllm:")}
    engine.submit(5.0, 100, 10)
    engine.submit(6.0, 100, 10)
    after = {k: v for k, v in read(engine, 300.0).items() if k.startswith("vllm:")}
    assert before == after
    assert (after["vllm:num_requests_running"], after["vllm:num_requests_waiting"]) == (3.0, 0.0)
    assert engine.in_flight == 5
    engine.clear(300.0, "hang")
    engine.advance(400.0)
    assert engine.counters[0].finished["length"] == 5


def test_an_idle_hang_shows_nothing_running_with_requests_inside() -> None:
    engine = SimulatedEngine()
    engine.inject(Hang(), 1.0)
    engine.submit(5.0, 4, 1)
    page = read(engine, 60.0)
    assert (page["vllm:num_requests_running"], page["vllm:num_requests_waiting"]) == (0.0, 0.0)
    assert page["vllm:iteration_tokens_total_count"] == 0.0


def test_one_rank_can_hang_alone() -> None:
    engine = SimulatedEngine(ranks=2)
    engine.inject(Hang(rank=1), 0.0)
    tickets = [engine.submit(1.0, 10, 5, rank=rank) for rank in (0, 1)]
    engine.advance(10.0)
    assert [engine.produced(ticket) for ticket in tickets] == [5, 0]


def test_faults_begin_and_end_at_their_own_times() -> None:
    engine = SimulatedEngine()
    engine.inject(Hang(after_seconds=10.0, for_seconds=20.0), 0.0)
    assert engine.wake_at == 10.0
    early = engine.submit(5.0, 10, 2)
    late = engine.submit(15.0, 10, 2)
    engine.advance(29.0)
    assert (engine.produced(early), engine.produced(late)) == (2, 0)
    engine.advance(31.0)
    assert engine.produced(late) == 2
    assert late.sequence.first_token_at is not None
    assert late.sequence.first_token_at > 30.0


@pytest.mark.parametrize("cleared", [True, False])
def test_stale_gauges_stay_at_their_last_busy_value_until_a_canary(cleared: bool) -> None:
    engine = SimulatedEngine()
    tickets = [engine.submit(0.0, 100, 4000) for _ in range(20)]
    engine.advance(5.0)
    engine.inject(StaleGauges(cleared_by_canary=cleared), 5.0)
    busy = read(engine, 5.0)["vllm:num_requests_running"]
    for ticket in tickets:
        engine.abort(ticket, 5.0)
    engine.advance(6.0)
    frozen = read(engine, 600.0)
    assert frozen["vllm:num_requests_running"] == busy == 20.0
    assert frozen["vllm:kv_cache_usage_perc"] > 0
    assert engine.counters[0].running == 0  # the truth
    canary = engine.submit(600.0, 4, 1)
    after = read(engine, 601.0)
    assert engine.produced(canary) == 1
    assert after["vllm:num_requests_running"] == (0.0 if cleared else 20.0)


def test_stale_gauges_of_an_engine_that_never_worked_take_the_given_values() -> None:
    engine = SimulatedEngine()
    engine.inject(StaleGauges(), 0.0)
    page = read(engine, 5.0)
    assert page["vllm:num_requests_running"] == 106.0
    assert page["vllm:num_requests_waiting"] == 15.0
    assert page["vllm:kv_cache_usage_perc"] == pytest.approx(0.904)


def test_orphaned_blocks_leak_from_the_pool_and_are_told_by_the_telemetry() -> None:
    engine = SimulatedEngine(load=LOAD, shape=EngineShape(num_gpu_blocks=1000))
    engine.inject(OrphanedBlocks(percent=40, over_seconds=100), 0.0)
    page = read(engine, 50.0)
    assert page[contract.KV_ORPHANED_BLOCKS] == pytest.approx(200, abs=2)
    assert page[contract.KV_ORPHANED_BLOCKS_RATIO] == pytest.approx(0.2, abs=0.01)
    assert page["vllm:kv_cache_usage_perc"] >= 0.2


def test_kv_pressure_makes_requests_wait_with_slots_free() -> None:
    engine = SimulatedEngine(shape=EngineShape(num_gpu_blocks=100, block_size=16, max_model_len=1600))
    engine.inject(KvPressure(percent=90), 0.0)
    for _ in range(4):
        engine.submit(1.0, 100, 20)
    engine.advance(1.1)
    assert (engine.counters[0].running, engine.counters[0].waiting) == (1, 3)
    assert contract.KV_ORPHANED_BLOCKS not in {k for k, v in read(engine, 1.2).items() if v}


def test_cache_misses_take_the_prefix_hits_away() -> None:
    engine = SimulatedEngine()
    engine.submit(0.0, 1000, 2, cached_tokens=768)
    engine.inject(CacheMiss(), 1.0)
    engine.submit(1.0, 1000, 2, cached_tokens=768)
    engine.advance(5.0)
    assert (engine.counters[0].prefix_queries, engine.counters[0].prefix_hits) == (2000, 768)


def test_resident_memory_grows_at_its_pace() -> None:
    engine = SimulatedEngine()
    before = read(engine, 0.0)["process_resident_memory_bytes"]
    engine.inject(MemoryGrowth(bytes_per_second=1e6), 0.0)
    assert read(engine, 100.0)["process_resident_memory_bytes"] - before == pytest.approx(1e8)


def test_the_containers_memory_is_flat_until_it_grows_and_ends_at_its_limit() -> None:
    engine = SimulatedEngine()
    used = f"{contract.CONTAINER_MEMORY_ANONYMOUS}|source=cgroup"
    shared = f"{contract.CONTAINER_MEMORY_SHARED}|source=cgroup"
    limit = f"{contract.CONTAINER_MEMORY_LIMIT}|source=cgroup"
    calm = read(engine, 0.0)
    assert read(engine, 3600.0)[used] == calm[used] == 24 * 2**30
    assert (calm[used] + calm[shared]) / calm[limit] < 0.7, "one that is well is far from its limit"
    engine.inject(MemoryGrowth(bytes_per_second=2**20), 3600.0)
    assert read(engine, 3700.0)[used] - calm[used] == 100 * 2**20
    late = read(engine, 1e6)
    assert late[used] + late[shared] == late[limit]
    engine.clear(1e6, "memoryGrowth")
    assert read(engine, 1e6)[used] == calm[used]


def test_nan_metrics_turn_gauges_or_the_named_series_to_nan() -> None:
    engine = SimulatedEngine(load=LOAD)
    engine.inject(NanMetrics(), 10.0)
    page = read(engine, 20.0)
    assert math.isnan(page["vllm:num_requests_running"])
    assert math.isnan(page["vllm:kv_cache_usage_perc"])
    assert page["vllm:generation_tokens_total"] > 0
    engine.inject(NanMetrics(series=("vllm:inter_token_latency_seconds_sum",)), 20.0)
    page = read(engine, 30.0)
    assert math.isnan(page["vllm:inter_token_latency_seconds_sum"])
    assert page["vllm:num_requests_running"] >= 0


def test_vanished_series_leave_no_trace() -> None:
    engine = SimulatedEngine(load=LOAD)
    engine.inject(VanishedSeries(series=("kintsugi_", "vllm:inter_token")), 0.0)
    text = engine.page(5.0)
    assert "kintsugi_" not in text
    assert "inter_token" not in text
    assert "vllm:num_requests_running" in text


def test_old_names_are_those_of_an_older_engine() -> None:
    engine = SimulatedEngine(load=LOAD)
    engine.inject(OldNames(), 0.0)
    text = engine.page(30.0)
    page = samples(text, hide=("model_name",))
    assert "engine=" not in text
    assert page["vllm:gpu_cache_usage_perc"] >= 0
    assert page["vllm:num_requests_swapped"] == 0.0
    assert page["vllm:cpu_cache_usage_perc"] == 0.0
    assert page["vllm:time_per_output_token_seconds_count"] == engine.counters[0].inter_token_latency.count
    assert not any("inter_token" in name or "kv_cache_usage" in name for name in page)


def test_a_foreign_prefix_leaves_no_known_name() -> None:
    engine = SimulatedEngine(telemetry=False)
    engine.inject(ForeignPrefix(prefix="other:"), 0.0)
    text = engine.page(1.0)
    assert "vllm:" not in text
    assert "other:num_requests_running" in text
    assert "process_resident_memory_bytes" in text


@pytest.mark.parametrize("same_start", [True, False])
def test_a_counter_reset_happens_once_and_moves_the_start_time(same_start: bool) -> None:
    engine = SimulatedEngine(load=LOAD, epoch=1000.0)
    engine.advance(100.0)
    before = engine.counters[0].generation_tokens
    engine.inject(CounterReset(same_start=same_start), 100.0)
    page = read(engine, 110.0)
    assert 0 < page["vllm:generation_tokens_total"] < before / 2
    assert page["process_start_time_seconds"] == (1000.0 if same_start else 1100.0)
    engine.inject(Hang(), 120.0)  # any other change does not reset again
    assert read(engine, 121.0)["vllm:generation_tokens_total"] > page["vllm:generation_tokens_total"]


def test_error_frames_end_their_share_of_requests_by_error() -> None:
    engine = SimulatedEngine(seed=2)
    engine.inject(ErrorFrames(percent=50, after_tokens=3), 0.0)
    tickets = [engine.submit(float(at), 10, 20) for at in range(100)]
    page = read(engine, 200.0)
    errors = page["vllm:request_success_total|finished_reason=error"]
    assert 30 <= errors <= 70
    assert errors + page["vllm:request_success_total|finished_reason=length"] == 100
    assert {engine.produced(ticket) for ticket in tickets} == {3, 20}


def test_a_dead_engine_makes_no_step() -> None:
    engine = SimulatedEngine()
    engine.inject(EngineDead(), 0.0)
    ticket = engine.submit(0.0, 10, 5)
    engine.advance(10.0)
    assert engine.produced(ticket) == 0


def test_a_second_fault_of_the_same_name_replaces_the_first() -> None:
    engine = SimulatedEngine()
    engine.inject(ThroughputDrop(percent=50), 0.0)
    engine.inject(ThroughputDrop(percent=75), 1.0)
    assert engine.ranks[0].step_factor == pytest.approx(4.0)
    assert engine.clear(2.0, "throughputDrop") == ["throughputDrop"]
    assert engine.ranks[0].step_factor == 1.0
    assert engine.clear(3.0, "throughputDrop") == []
