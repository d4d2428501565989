"""The article's list, walked on pages of simulated engines and on statuses."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from kintsugi.api.status import DeploymentStatus
from kintsugi.api.structural import structural
from kintsugi.core.advisor.look import traffic_reader
from kintsugi.core.advisor.traffic import PoolTraffic, glance, pool_traffic
from kintsugi.core.explain.case import case_of
from kintsugi.core.explain.diagnosis import LISTS, diagnosed
from kintsugi.core.explain.diagnosis_text import diagnosis_lines
from kintsugi.core.explain.scene import Scene
from kintsugi.core.preflight.registry import names
from kintsugi.core.snapshot import Page
from kintsugi.testing.engine import EngineShape
from tests.unit.advisor.stage import Load, Stage, fixed
from tests.unit.advisor.test_real_engine import traffic as real_traffic
from tests.unit.api.generated import objects
from tests.unit.explain.fleets import condition, deployment, finding, healthy, instance, remediation


@cache
def busy() -> PoolTraffic:
    return Stage(Load(2, fixed(1200, 60)), engines=2).traffic()


@cache
def overflowing() -> PoolTraffic:
    return Stage(Load(3, fixed(4000, 800)), EngineShape(num_gpu_blocks=400)).traffic()


def steps(
    raw: dict[str, Any] | None = None, traffic: PoolTraffic | None = None, **records: Any
) -> dict[str, dict[str, Any]]:
    case = None if raw is None else case_of(raw, **records)
    found = diagnosed(Scene("chat", case, raw, None if traffic is None else {traffic.pool: traffic}))
    json.dumps(found, allow_nan=False)
    assert list(diagnosis_lines(found))
    return {step["step"]: step for each in found["symptoms"] for step in each["steps"]}


def pages(*texts: str, every: float = 10.0) -> PoolTraffic:
    """One engine, whose pages are `texts`."""
    reader = traffic_reader()
    seen = [glance(reader, "main-0", Page(text, 100 + every * n)) for n, text in enumerate(texts)]
    return pool_traffic("main", seen)


def page(**values: float) -> str:
    series = {
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
        "kv": "vllm:kv_cache_usage_perc",
        "tokens": "vllm:generation_tokens_total",
        "steps": "vllm:iteration_tokens_total_count",
        "queries": "vllm:prefix_cache_queries_total",
        "hits": "vllm:prefix_cache_hits_total",
        "preemptions": "vllm:num_preemptions_total",
        "corrupted": "vllm:corrupted_requests_total",
    }
    lines = [f'{series[name]}{{engine="0",model_name="m"}} {value}' for name, value in values.items()]
    return "\n".join([*lines, ""])


def test_nothing_seen_is_unknown_throughout() -> None:
    assert {step["state"] for step in steps().values()} == {"unknown"}
    assert all(step["cure"] for step in steps().values()), "and says how to know"


def test_a_busy_pool_is_told_by_its_pages() -> None:
    found = steps(traffic=busy())
    assert found["stalled"]["state"] == "ok"
    assert found["stalled"]["numbers"]["leastStepsPerSecond"] > 1
    assert found["demand"]["state"] == "ok"
    assert found["demand"]["numbers"]["main.requestsPerSecond"] == pytest.approx(4, rel=0.3)
    assert found["preemptions"]["numbers"]["worstPerSecond"] == 0
    assert found["gpu-utilization"]["state"] == "unknown"


def test_preemptions_of_a_cache_that_overflows_are_counted_per_second() -> None:
    traffic = overflowing()
    found = steps(traffic=traffic)["preemptions"]
    (one,) = traffic.instances
    assert found["numbers"]["worstPerSecond"] == pytest.approx(
        (one.gained("preemptions") or 0) / one.seconds, abs=1e-3
    )
    assert found["numbers"]["worstPerSecond"] > 0
    assert steps(traffic=traffic)["demand"]["state"] == "suspect"


@pytest.mark.parametrize(
    ("rise", "state"), [(299.0, "ok"), (300.0, "ok"), (301.0, "suspect"), (30_000.0, "suspect")]
)
def test_ten_preemptions_a_second_are_the_articles_line(rise: float, state: str) -> None:
    traffic = pages(
        page(running=1, steps=1, preemptions=0), page(running=1, steps=2, preemptions=rise), every=30
    )
    assert steps(traffic=traffic)["preemptions"]["state"] == state


@pytest.mark.parametrize(
    ("queries", "hits", "state"),
    [(20_000, 17_000, "ok"), (20_000, 16_900, "suspect"), (9_999, 0, "unknown"), (20_000, 0, "suspect")],
)
def test_a_hit_rate_is_a_share_of_enough_tokens(queries: float, hits: float, state: str) -> None:
    traffic = pages(
        page(running=1, steps=1, queries=500, hits=500),
        page(running=1, steps=2, queries=500 + queries, hits=500 + hits),
    )
    found = steps(traffic=traffic)["cache-hit-rate"]
    assert found["state"] == state
    assert found["numbers"]["tokensLookedUp"] == queries


def test_the_users_thresholds_count() -> None:
    traffic = pages(
        page(running=1, steps=1, queries=0, hits=0), page(running=1, steps=2, queries=20_000, hits=10_000)
    )
    raw = deployment({}, triggers={"cacheHitRate": {"minPercent": 40}})
    assert steps(raw, traffic)["cache-hit-rate"]["state"] == "ok"


def test_a_window_that_is_too_short_gives_no_rate() -> None:
    traffic = pages(
        page(running=1, steps=1, preemptions=0), page(running=1, steps=2, preemptions=900), every=5
    )
    assert steps(traffic=traffic)["preemptions"]["state"] == "unknown"


def test_a_hung_engine_is_suspect_by_its_pages_and_nothing_else_is_said_of_it() -> None:
    same = page(running=4, waiting=0, kv=0.5, tokens=9, steps=10)
    found = steps(traffic=pages(same, same, same, same))
    assert found["stalled"]["state"] == "suspect"
    assert found["preemptions"]["state"] == "unknown"


@pytest.mark.parametrize(("looks", "state"), [(4, "ok"), (7, "suspect")])
def test_an_engine_that_worked_at_first_and_hangs_at_the_end_of_the_window_is_suspect(
    looks: int, state: str
) -> None:
    early = [page(running=4, kv=0.5, tokens=n, steps=n) for n in range(6)]
    late = [page(running=4, kv=0.5, tokens=9, steps=9)] * looks
    found = steps(traffic=pages(*early, *late))["stalled"]
    assert found["state"] == state


def test_a_real_engine_whose_cache_overflowed_shows_its_preemptions() -> None:
    found = steps(traffic=real_traffic())
    assert found["preemptions"]["numbers"]["worstPerSecond"] == pytest.approx(5 / 75, abs=1e-3)
    assert found["preemptions"]["state"] == "ok", "the article's line is far above what hurts a small cache"
    assert found["orphaned-blocks"]["state"] in ("ok", "unknown")


def test_idle_engines_are_not_called_alive_by_their_pages() -> None:
    same = page(running=0, waiting=0, kv=0.0, steps=10)
    assert steps(traffic=pages(same, same, same, same))["stalled"]["state"] == "unknown"


@pytest.mark.parametrize(("kv", "state"), [(0.0, "ok"), (0.02, "ok"), (0.3, "suspect")])
def test_blocks_held_without_a_request_are_a_leak(kv: float, state: str) -> None:
    idle = page(running=0, waiting=0, kv=kv, steps=10)
    found = steps(traffic=pages(idle, idle, idle))["orphaned-blocks"]
    assert found["state"] == state
    assert found["numbers"]["heldWhileIdlePercent"] == pytest.approx(100 * kv)


@pytest.mark.parametrize(("count", "state"), [(0.0, "ok"), (3.0, "suspect")])
def test_corrupted_requests_are_counted_where_the_engine_counts_them(count: float, state: str) -> None:
    pair = [page(running=1, steps=n, corrupted=count) for n in (1, 2)]
    assert steps(traffic=pages(*pair))["nan"]["state"] == state
    assert steps(traffic=busy())["nan"]["state"] in ("unknown", "ok")


def test_a_healthy_status_answers_what_it_can_and_no_more() -> None:
    raw = healthy()
    raw["status"]["instances"] = [instance(f"chat-{n}", "Healthy", "Progressing") for n in range(3)]
    raw["status"]["pools"] = [{"name": "main", "replicas": 3, "ready": 3}]
    raw["status"]["conditions"].append(condition("Available", "True", "Serving"))
    found = steps(raw)
    assert {name for name, step in found.items() if step["state"] == "ok"} >= {
        *("serving", "stalled", "steps", "errors", "gpu-memory", "out-of-memory", "rope", "precision")
    }
    assert found["cache-hit-rate"]["state"] == "unknown"
    raw["status"]["instances"][0]["verdict"] = "Unknown"
    assert steps(raw)["steps"]["state"] == "unknown"
    assert steps(raw)["stalled"]["state"] == "unknown"


def test_memory_that_nobody_measures_is_not_called_whole() -> None:
    raw = healthy()
    said = "not exported, so not judged: kintsugi_gpu_memory_fragmentation_ratio"
    raw["status"]["conditions"] = [condition("DataFresh", "True", "SeriesMissing", said)]
    assert steps(raw)["gpu-memory"]["state"] == "unknown"
    raw["status"]["conditions"] = [condition("DataFresh", "True", "SeriesMissing", "health of GPUs")]
    assert steps(raw)["gpu-memory"]["state"] == "ok"


def test_a_pool_of_one_is_not_called_fast() -> None:
    raw = healthy()
    raw["status"]["instances"] = [instance("chat-a", "Healthy", "Progressing")]
    assert steps(raw)["steps"]["state"] == "unknown"


@pytest.mark.parametrize(
    ("detector", "reason", "step"),
    [
        ("fragmentation", "Fragmented", "gpu-memory"),
        ("memoryGrowth", "Growing", "host-memory"),
        ("dead", "OOMKilled", "out-of-memory"),
        ("stall", "Stalled", "stalled"),
        ("throughput", "Slow", "steps"),
        ("errors", "Erroring", "errors"),
        ("load", "Saturated", "demand"),
        ("cacheHitRate", "AnyReason", "cache-hit-rate"),
        ("preemptions", "AnyReason", "preemptions"),
        ("gpuUtilization", "AnyReason", "gpu-utilization"),
        ("corruptedOutput", "AnyReason", "known-answers"),
    ],
)
def test_what_a_detector_found_is_told_at_its_step_with_its_cure(
    detector: str, reason: str, step: str
) -> None:
    raw = healthy()
    raw["status"]["instances"][0] |= {
        "verdict": "Sick",
        "findings": [finding(detector, reason, "SICK", "42 of 43")],
    }
    found = steps(raw)[step]
    assert found["state"] == "suspect"
    assert "42 of 43" in found["said"]
    assert found["cure"]
    assert found["truth"]


def test_an_engine_that_was_killed_for_its_memory_is_found_in_its_remediation() -> None:
    record = remediation("chat-old")
    record["status"]["message"] = "restarted 3 times (last end: OOMKilled 137)"
    assert steps(healthy(), remediations=[record])["out-of-memory"]["state"] == "suspect"


def test_what_the_spec_overrides_is_found_by_the_rules() -> None:
    raw = healthy()
    raw["spec"]["engine"] = {"args": {"blockSize": 64}, "extraArgs": ["--dtype=half", "--quantization=awq"]}
    found = steps(raw)
    assert found["precision"]["state"] == "suspect"
    assert found["block-borders"]["state"] == "suspect"
    assert found["rope"]["state"] == "ok"
    assert {"RopeOverridden", "Dtype", "Quantization", "KvCacheDtype", "BlockSize"} <= names()


def test_a_spec_that_cannot_be_read_is_not_called_right() -> None:
    raw = healthy() | {"spec": {"engine": 7}}
    found = steps(raw)
    assert {found[name]["state"] for name in ("rope", "precision", "block-borders")} == {"unknown"}


def test_what_was_not_read_is_said_where_pages_say_ok() -> None:
    traffic = replace(busy(), left_out=("main-9: not Ready",))
    assert "not of 1 that were left out" in steps(traffic=traffic)["preemptions"]["said"]


def test_one_symptom_alone_is_walked() -> None:
    found = diagnosed(Scene("chat"), ("leak",))
    assert [each["symptom"] for each in found["symptoms"]] == ["leak"]
    assert [step["claim"] for step in found["symptoms"][0]["steps"]] == ["A17"] * 4
    assert list(LISTS) == ["leak", "drop", "wrong"]


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(objects(structural(DeploymentStatus)))
def test_any_status_that_a_cluster_can_hold_is_diagnosed(status: Any) -> None:
    found = steps(deployment(status))
    assert len(found) == 17
    assert all(step["said"] for step in found.values())
