"""The series on a page: as vLLM's own labels go, the newest sample alone, nothing for what is not measured."""

import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from kintsugi.core.page import PageReader
from kintsugi.core.sample import Sample, read_sample
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Page
from kintsugi_engine import clock
from kintsugi_engine.telemetry.exporter import Exporter
from kintsugi_engine.telemetry.rankfile import RankFile


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def exporter(registry: CollectorRegistry) -> Exporter:
    def gauge(**made: Any) -> Gauge:
        return Gauge(**made, registry=registry)

    def counter(name: str, text: str, labelnames: list[str]) -> Counter:
        return Counter(name, text, labelnames=labelnames, registry=registry)

    engines = {0: ["tiny", "0"], 1: ["tiny", "1"]}
    return Exporter(gauge, counter, ["model_name", "engine"], engines, "abc")  # type: ignore[arg-type]


def lines(registry: CollectorRegistry, *names: str) -> dict[str, float]:
    found = {}
    for line in generate_latest(registry).decode().splitlines():
        if not line.startswith("#") and (not names or line.startswith(names)):
            series, _, number = line.rpartition(" ")
            found[series.replace(',model_name="tiny"', "")] = float(number)
    return found


def pool(at: float, **more: Any) -> dict[str, Any]:
    return {
        "at": at,
        "mono": at,
        "blocks": {"active": 2, "cached_free": 3, "empty_free": 5},
        "waste": 0.25,
        "groups": {"0": {"kind": "FullAttention", "blockSize": 32, "waste": 0.25}},
        "orphaned": 1,
        "preempted": 0,
        "hookSeconds": 0.5,
        "stepSeconds": 100.0,
        **more,
    }


def allocator(at: float, fragmentation: float | None) -> dict[str, Any]:
    kinds = {"allocated": 10, "reserved": 20, "inactive_split": 3}
    return {"at": at, "mono": at, "worker": "4", "bytes": kinds, "fragmentation": fragmentation}


def test_a_sample_of_the_pool_becomes_series(exporter: Exporter, registry: CollectorRegistry) -> None:
    exporter.take(1, pool(time.time() - 2))
    seen = lines(registry, "kintsugi_kv", "kintsugi_preempted")
    assert (
        seen
        == {
            'kintsugi_kv_blocks{engine="1",state="active"}': 2,
            'kintsugi_kv_blocks{engine="1",state="cached_free"}': 3,
            'kintsugi_kv_blocks{engine="1",state="empty_free"}': 5,
            'kintsugi_kv_block_waste_ratio{engine="1",rank="pool"}': 0.25,
            'kintsugi_kv_group_waste_ratio{engine="1",group="0",kind="FullAttention",rank="pool"}': 0.25,
            'kintsugi_kv_orphaned_blocks{engine="1",rank="pool"}': 1,
            'kintsugi_kv_orphaned_blocks_ratio{engine="1",rank="pool"}': 0.1,
            'kintsugi_preempted_requests{engine="1"}': 0,
        }
        | {}
    )
    (age,) = lines(registry, "kintsugi_sample_age").values()
    assert age == pytest.approx(2, abs=0.5)


def test_no_name_begins_as_vllms_own(exporter: Exporter, registry: CollectorRegistry) -> None:
    exporter.take(0, pool(1.0))
    assert lines(registry)
    assert all(series.startswith("kintsugi_") for series in lines(registry))


def test_what_is_not_measured_has_no_series_and_loses_the_one_it_had(
    exporter: Exporter, registry: CollectorRegistry
) -> None:
    exporter.take(0, allocator(1.0, 0.5))
    assert lines(registry, "kintsugi_gpu_memory_fragmentation") == {
        'kintsugi_gpu_memory_fragmentation_ratio{engine="0",rank="4"}': 0.5
    }
    exporter.take(0, allocator(2.0, None))
    exporter.take(0, pool(2.0, waste=None))
    assert lines(registry, "kintsugi_gpu_memory_fragmentation", "kintsugi_kv_block_waste") == {}
    assert len(lines(registry, "kintsugi_gpu_memory_bytes")) == 3


def test_the_newest_sample_counts_however_it_came(
    exporter: Exporter, registry: CollectorRegistry, tmp_path: Path
) -> None:
    now = time.time()
    exporter.take(0, pool(now, waste=0.1))
    RankFile(tmp_path, "abc", "pool", "0").write({**pool(now - 5, waste=0.9), "engine": "0"})
    RankFile(tmp_path, "abc_dp1", "pool", "1").write({**pool(now - 5, waste=0.7), "engine": "1"})
    RankFile(tmp_path, "other", "pool", "0").write({**pool(now + 5, waste=0.8), "engine": "0"})
    exporter.refresh(tmp_path)
    assert list(lines(registry, "kintsugi_kv_block_waste").values()) == [0.1, 0.7]


def test_an_engine_that_is_not_this_servers_is_not_shown(
    exporter: Exporter, registry: CollectorRegistry, tmp_path: Path
) -> None:
    RankFile(tmp_path, "abc", "pool", "7").write({**pool(1.0), "engine": "7"})
    exporter.refresh(tmp_path)
    assert lines(registry, "kintsugi_kv") == {}


def test_ages_grow_while_nothing_new_comes(
    exporter: Exporter, registry: CollectorRegistry, tmp_path: Path
) -> None:
    exporter.take(0, pool(time.time()))
    time.sleep(0.2)
    exporter.refresh(tmp_path)
    (age,) = lines(registry, "kintsugi_sample_age").values()
    assert 0.2 <= age < 2


def test_the_cost_is_counted_up(exporter: Exporter, registry: CollectorRegistry) -> None:
    exporter.take(0, pool(1.0))
    exporter.take(0, pool(2.0, hookSeconds=0.7))
    assert lines(registry, "kintsugi_telemetry_hook_seconds_total") == {
        'kintsugi_telemetry_hook_seconds_total{engine="0"}': pytest.approx(0.7)
    }


def test_an_engine_that_is_off_says_so(exporter: Exporter, registry: CollectorRegistry) -> None:
    exporter.say("off", "vLLM 0.99 is not known", "0.99")
    assert lines(registry, "kintsugi_telemetry_info") == {
        'kintsugi_telemetry_info{engine_version="0.99",reason="vLLM 0.99 is not known",state="off"}': 1
    }


def test_the_operator_finds_each_value_by_the_age_of_its_own_sample(
    exporter: Exporter, registry: CollectorRegistry
) -> None:
    now = time.time()
    exporter.take(0, pool(now - 40))
    exporter.take(0, {**allocator(now, 0.5), "worker": "0"})
    text = 'vllm:num_requests_running{engine="0",model_name="tiny"} 1\n' + generate_latest(registry).decode()
    sample = read_sample(PageReader(), Page(text, 1.0))
    assert isinstance(sample, Sample)
    assert sample.telemetry[Signal.GPU_FRAGMENTATION] == {"0": 0.5}
    assert sample.telemetry[Signal.ORPHANED_RATIO] == {"pool": 0.1}
    assert sample.telemetry[Signal.SAMPLE_AGE]["0"] < 5
    assert sample.telemetry[Signal.SAMPLE_AGE]["pool"] == pytest.approx(40, abs=5)


def test_what_is_counted_step_by_step_has_an_age_of_its_own(
    exporter: Exporter, registry: CollectorRegistry
) -> None:
    now = time.time()
    exporter.take(1, pool(now - 20, prefill={"mixed": 700, "alone": 64}))
    exporter.take(1, {"at": now - 1, "mono": now - 1, "prefill": {"mixed": 900, "alone": 64}})
    exporter.take(1, {"at": now - 3, "mono": now - 3, "prefill": {"mixed": 800, "alone": 64}})

    assert lines(registry, "kintsugi_prefill_tokens") == {
        'kintsugi_prefill_tokens{engine="1",step="mixed"}': 900,
        'kintsugi_prefill_tokens{engine="1",step="alone"}': 64,
    }
    assert lines(registry, "kintsugi_sample_age") == {
        'kintsugi_sample_age_seconds{engine="1",rank="pool"}': pytest.approx(20, abs=0.5),
        'kintsugi_sample_age_seconds{engine="1",rank="steps"}': pytest.approx(1, abs=0.5),
    }


def test_the_operator_reads_the_count(exporter: Exporter, registry: CollectorRegistry) -> None:
    for engine in (0, 1):
        exporter.take(engine, pool(time.time(), prefill={"mixed": 10 + engine, "alone": 1}))
    page = generate_latest(registry).decode() + 'vllm:num_requests_running{engine="0"} 1\n'

    sample = read_sample(PageReader(), Page(page, 1.0))

    assert isinstance(sample, Sample)
    assert sample.whole.mixed_prefill == 21
    assert [rank.count_age for rank in sample.ranks] == [pytest.approx(0, abs=0.5)] * 2
    assert set(sample.telemetry[Signal.SAMPLE_AGE]) == {"pool", "1/pool"}


def test_a_clock_that_is_set_back_keeps_no_sample_away_and_makes_none_young(
    exporter: Exporter, registry: CollectorRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, mono = [5_000.0], [100.0]
    monkeypatch.setattr(clock, "wall", lambda: wall[0])
    monkeypatch.setattr(clock, "mono", lambda: mono[0])
    exporter.take(0, {"at": 5_000.0, "mono": 70.0, "prefill": {"mixed": 1, "alone": 0}})
    wall[0] -= 1_200.0
    mono[0] += 30.0
    exporter.refresh(tmp_path)
    age = 'kintsugi_sample_age_seconds{engine="0",rank="steps"}'
    assert lines(registry, "kintsugi_sample_age")[age] == pytest.approx(30.0)

    exporter.take(0, {"at": 3_800.0, "mono": 100.0, "prefill": {"mixed": 9, "alone": 0}})

    assert lines(registry, "kintsugi_prefill")['kintsugi_prefill_tokens{engine="0",step="mixed"}'] == 9
    assert lines(registry, "kintsugi_sample_age")[age] == pytest.approx(0.0)


def test_a_file_that_something_else_wrote_keeps_no_age_from_growing(
    exporter: Exporter, registry: CollectorRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mono = [100.0]
    monkeypatch.setattr(clock, "mono", lambda: mono[0])
    exporter.take(0, pool(time.time()))
    RankFile(tmp_path, "abc", "pool", "0").write({"engine": "0", "at": time.time(), "prefill": {"mixed": 1}})
    mono[0] += 300.0

    with pytest.raises(KeyError):
        exporter.refresh(tmp_path)

    (age,) = lines(registry, "kintsugi_sample_age").values()
    assert age >= 300.0
