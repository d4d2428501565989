"""The page of a simulated engine against pages of a real vLLM 0.32 engine (names, labels, bucket edges)."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kintsugi.testing.engine import EngineShape, SimulatedEngine
from kintsugi_engine import contract
from tests.unit.testing_engine.pages import samples

REAL: dict[str, Any] = json.loads((Path(__file__).parent / "vllm_0_32_families.json").read_text())
SAMPLE = re.compile(r"^([^{ ]+)(?:\{(.*)\})? (\S+)$")
# The real pages were taken at --max-model-len 2048, which decides the edges of the token histograms.
SHAPE = EngineShape(max_model_len=2048, block_size=32, num_gpu_blocks=4095)


def busy(**options: Any) -> SimulatedEngine:
    engine = SimulatedEngine(model_name="tiny", shape=SHAPE, **options)
    for at in range(30):
        engine.submit(at / 10, 40 + at, 5 + at)
    engine.advance(60.0)
    for path in ("/v1/completions", "/v1/chat/completions"):
        engine.http.record(path, "POST", 200, 0.3, 200, 0)
        engine.http.record(path, "POST", 404, 0.01, 90, 80)
    return engine


def families(page: str) -> list[str]:
    return [line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE ")]


@pytest.mark.parametrize("number", range(len(REAL["differences"])))
def test_every_family_of_a_real_page_is_on_ours_and_no_other(number: int) -> None:
    difference = REAL["differences"][number]
    expected = (set(REAL["page"]) | set(difference["with"])) - set(difference["without"])
    kv_metrics = any("kv_block" in name for name in difference["with"])
    connector = any("kv_fetch" in name for name in difference["with"])
    log_stats = "30_disable_log_stats_under_load" not in difference["pages"]
    options: dict[str, Any] = {"kv_cache_metrics": kv_metrics, "telemetry": connector, "log_stats": log_stats}
    no_request_yet = "http_requests_created" in difference["without"]
    engine = SimulatedEngine(model_name="tiny", shape=SHAPE, **options) if no_request_yet else busy(**options)
    ours = set(families(engine.page(100.0)))
    assert {name for name in ours if not name.startswith("kintsugi_")} == expected
    assert any(name.startswith("kintsugi_") for name in ours) is connector


@pytest.mark.parametrize("name", sorted(REAL["families"]))
def test_samples_carry_the_labels_and_bucket_edges_of_the_real_page(name: str) -> None:
    real = REAL["families"][name]
    page = busy(kv_cache_metrics=True).page(100.0)
    block: list[str] = []
    inside = False
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            inside = line.split(" ")[2] == name
            assert not inside or line.split(" ")[3] == real["type"]
        elif inside and not line.startswith("#"):
            block.append(line)
    seen: dict[str, dict[str, list[str]]] = {}
    for line in block:
        found = SAMPLE.match(line)
        assert found, line
        pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2] or "")
        sample = seen.setdefault(found[1], {})
        assert [key for key, _ in pairs] == real["samples"][found[1]]["labels"]
        for key, value in pairs:
            if value not in sample.setdefault(key, []):
                sample[key].append(value)
    assert set(seen) == set(real["samples"])
    for sample_name, sample in seen.items():
        for key, expected in real["samples"][sample_name]["values"].items():
            assert sample[key] == expected


def test_the_page_says_what_the_counters_say() -> None:
    engine = busy()
    counters = engine.counters[0]
    read = samples(engine.page(100.0))
    assert read["vllm:generation_tokens_total"] == counters.generation_tokens == sum(range(5, 35))
    assert read["vllm:prompt_tokens_total"] == counters.prompt_tokens == sum(range(40, 70))
    assert read["vllm:request_success_total|finished_reason=length"] == 30
    assert read["vllm:num_requests_running"] == read["vllm:num_requests_waiting"] == 0
    for name, histogram in (
        ("vllm:iteration_tokens_total", counters.iteration_tokens),
        ("vllm:inter_token_latency_seconds", counters.inter_token_latency),
        ("vllm:time_to_first_token_seconds", counters.time_to_first_token),
        ("vllm:e2e_request_latency_seconds", counters.e2e_latency),
    ):
        assert read[f"{name}_count"] == histogram.count > 0
        assert read[f"{name}_sum"] == pytest.approx(histogram.total)
        assert read[f"{name}_bucket|le=+Inf"] == histogram.count
        below = 0
        for edge, count in zip(histogram.edges, histogram.buckets, strict=False):
            below += count
            assert read[f"{name}_bucket|le={edge}"] == below
    assert read["http_requests_total|handler=/v1/completions|method=POST|status=2xx"] == 1
    assert read["http_requests_total|handler=/v1/completions|method=POST|status=4xx"] == 1


def test_the_page_carries_the_telemetry_series_of_the_contract_per_worker_rank() -> None:
    read = samples(busy(workers=2, fragmentation=0.12).page(100.0))
    assert read[f"{contract.GPU_FRAGMENTATION}|rank=0"] == pytest.approx(0.12)
    assert read[f"{contract.GPU_FRAGMENTATION}|rank=1"] == pytest.approx(0.12)
    for name in (contract.KV_BLOCK_WASTE, contract.KV_ORPHANED_BLOCKS, contract.KV_ORPHANED_BLOCKS_RATIO):
        assert read[name] == 0.0
    assert read[contract.SAMPLE_AGE] > 30.0


def test_block_waste_is_the_unwritten_share_of_held_slots() -> None:
    engine = SimulatedEngine(shape=EngineShape(block_size=256, max_model_len=8192, num_gpu_blocks=100))
    engine.submit(0.0, 40, 500)
    engine.advance(3.0)
    produced = engine.counters[0].generation_tokens
    waste = samples(engine.page(3.0))[contract.KV_BLOCK_WASTE]
    assert waste == pytest.approx(1 - (40 + produced - 1) / 256)


def test_ranks_have_their_own_engine_label_and_stay_within_their_family() -> None:
    engine = SimulatedEngine(ranks=2)
    engine.submit(0.0, 100, 50, rank=1)
    engine.advance(0.5)
    page = engine.page(0.5)
    found = re.findall(
        r'^vllm:num_requests_running\{engine="(\d)",model_name="deepseek-v4"\} (\S+)$', page, re.MULTILINE
    )
    assert found == [("0", "0.0"), ("1", "1.0")]
    names = families(page)
    assert len(names) == len(set(names))


def test_token_edges_follow_the_context_length() -> None:
    engine = SimulatedEngine(shape=EngineShape(max_model_len=1_048_576))
    edges = engine.counters[0].request_prompt_tokens.edges
    assert edges[:4] == (1.0, 2.0, 5.0, 10.0)
    assert edges[-1] == 1_000_000.0


def test_a_model_name_with_quotes_and_percent_signs_is_escaped() -> None:
    name = 'odd "name" 100% \\ x'
    page = SimulatedEngine(model_name=name).page(0.0)
    parsed = {s.labels.get("model_name") for f in text_string_to_metric_families(page) for s in f.samples}
    assert name in parsed


def test_rendering_a_page_takes_at_most_two_milliseconds_of_cpu() -> None:
    engine = busy()
    engine.page(100.0)
    begun = time.process_time()
    for _ in range(50):
        engine.page(100.0)
    assert (time.process_time() - begun) / 50 <= 0.002
