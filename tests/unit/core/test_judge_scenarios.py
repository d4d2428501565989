"""Trouble from the field, as far as it is the judge's: metric scenarios S08-S14, S54 and sick-or-not S15-S19, S26."""

import json
from pathlib import Path
from typing import Any

import pytest

from kintsugi.core.evidence import Memory
from kintsugi.core.finding import Detector, Severity, Verdict
from kintsugi.core.snapshot import CanaryOutcome, Failure
from tests.unit.core.staging import EPOCH, Engine, Rank, Stage, only

NEW = {"started_at": EPOCH, "ready_since": EPOCH}


def busy(rank: Rank, steps: float = 100, tokens: float = 400) -> None:
    """One scrape interval of ordinary work."""
    rank.steps, rank.generation, rank.first_tokens = (
        rank.steps + steps,
        rank.generation + tokens,
        rank.first_tokens + 1,
    )


def test_s08_two_engine_versions_of_one_pool_are_both_healthy() -> None:
    stage = Stage()
    for k in range(6):
        old = (
            f'vllm:gpu_cache_usage_perc{{model_name="dsv4"}} 0.71\nvllm:num_requests_running 3\n'
            f"vllm:iteration_tokens_total_count {900 + k}\nvllm:num_requests_swapped 0\n"
        )
        new = f'vllm:kv_cache_usage_perc{{engine="0"}} 0.69\nvllm:iteration_tokens_total_count{{engine="0"}} {k}\n'
        judged = stage.look({"pod-a": old, "pod-b": new})

    assert judged.verdicts["pod-a"].signals["kv_cache_usage_percent"] == pytest.approx(71)
    assert judged.verdicts["pod-b"].signals["kv_cache_usage_percent"] == pytest.approx(69)
    assert {v.verdict for v in judged.verdicts.values()} == {Verdict.HEALTHY}


def test_s09_a_page_without_known_names_is_unknown_and_says_so() -> None:
    stage = Stage()
    for _ in range(200):
        judged = stage.look(
            {"pod-a": "# HELP other:num_requests_running running\nother:num_requests_running 12\n"}
        )

    verdict = only(judged)
    assert (verdict.verdict, verdict.reason) == (Verdict.UNKNOWN, "Unrecognised")
    assert verdict.running is None
    assert not verdict.fresh
    assert (judged.data_fresh, judged.data_reason) == (False, "MetricsUnavailable")


def test_s10_one_hot_and_one_idle_rank_are_summed_and_reported() -> None:
    stage, engine = Stage(), Engine([Rank(kv=0.02), Rank(running=64, waiting=41, kv=0.97)])
    for _ in range(10):
        busy(engine.ranks[1])
        stage.look({"pod-a": engine.page()}, pod_a={"max_num_seqs": 128})
        stage.answer_all()

    assert stage.last is not None
    verdict = only(stage.last)
    assert verdict.running == 64
    assert verdict.signals["waiting"] == 41
    assert verdict.signals["kv_cache_usage_percent"] == pytest.approx(97)
    assert "RankImbalance" in {f.reason for f in verdict.findings}
    assert verdict.verdict is not Verdict.IDLE


def test_s11_gauges_frozen_at_their_last_busy_value_clear_with_the_first_answer() -> None:
    stage, engine = Stage(), Engine([Rank(running=106, waiting=15, kv=0.904)])
    sent = 0
    for _ in range(120):
        judged = stage.look({"pod-a": engine.page()}, pod_a={"max_num_seqs": 128})
        sent += len(judged.probes)
        assert only(judged).sick() is None
        if judged.probes:
            rank = engine.ranks[0]
            rank.running, rank.waiting, rank.kv = 0, 0, 0.0
            rank.steps += 1
            stage.answer_all()

    assert sent >= 1
    assert only(judged).verdict in (Verdict.IDLE, Verdict.HEALTHY)


def test_an_engine_that_answers_while_its_counters_stand_has_stale_gauges_and_is_never_sick() -> None:
    stage, engine = Stage(), Engine([Rank(running=106, waiting=15, kv=0.904)])
    for _ in range(200):
        judged = stage.look({"pod-a": engine.page()}, pod_a={"max_num_seqs": 128})
        assert only(judged).sick() is None
        stage.answer_all()

    verdict = only(judged)
    assert (verdict.verdict, verdict.reason) == (Verdict.UNKNOWN, "StaleGauges")
    assert verdict.running is None


def test_s12_a_counter_reset_gives_no_negative_rate_and_no_hit_rate_until_it_is_warm() -> None:
    stage, rank = Stage(), Rank(running=2, queries=9.10e6, hits=8.74e6, preemptions=412)
    engine = Engine([rank], start=1.7000e9)
    for _ in range(12):
        busy(rank)
        before = only(stage.look({"pod-a": engine.page()}))
    engine.start, rank.queries, rank.hits, rank.preemptions, rank.steps = 1.7001e9, 57, 0, 0, 5
    after = only(stage.look({"pod-a": engine.page()}))
    rank.queries, rank.hits, rank.preemptions = 2.2e6, 1.9e6, 3
    for _ in range(10):
        busy(rank)
        later = only(stage.look({"pod-a": engine.page()}))

    assert before.signals["cache_hit_percent"] == pytest.approx(96, abs=0.1)
    assert "cache_hit_percent" not in after.signals
    assert "preemptions_per_second" not in after.signals
    assert not after.findings
    assert later.signals["cache_hit_percent"] == pytest.approx(86.4, abs=0.1)


def test_s12_a_reset_takes_every_clock_back_to_zero() -> None:
    stage, engine = Stage(), Engine([Rank(running=3)])
    for _ in range(12):
        stage.look({"pod-a": engine.page()})
    engine.ranks[0].steps = 7

    verdict = only(stage.look({"pod-a": engine.page()}))
    for _ in range(100):
        last = only(stage.look({"pod-a": engine.page()}))

    assert verdict.signals["flat_seconds"] == 0
    assert last.sick() is None  # a new process: its warm-up begins


def test_s13_no_traffic_is_idle_with_valid_json_and_no_ratio_from_nothing() -> None:
    stage, engine = Stage(), Engine()
    for _ in range(180):
        page = engine.page() + "vllm:num_preemptions_total NaN\n"
        judged = stage.look({"pod-a": page})
        if judged.probes:
            engine.ranks[0].steps += 1
        stage.answer_all()

    verdict = only(judged)
    assert (verdict.verdict, verdict.reason) == (Verdict.IDLE, "NoRequests")
    assert "cache_hit_percent" not in verdict.signals
    json.dumps(dict(verdict.signals), allow_nan=False)


def test_s14_metrics_broken_on_one_of_four_while_it_answers_is_unknown_for_half_an_hour() -> None:
    stage, engines = Stage(), [Engine([Rank(running=2)]) for _ in range(3)]
    for _ in range(360):
        pages: dict[str, str | Failure] = {"pod-x": Failure.HTTP_ERROR}
        for n, engine in enumerate(engines):
            busy(engine.ranks[0])
            pages[f"pod-{n}"] = engine.page()
        judged = stage.look(pages)
        stage.answer_all()

    verdict = judged.verdicts["pod-x"]
    assert (verdict.verdict, verdict.reason) == (Verdict.UNKNOWN, "MetricsUnavailable")
    assert not verdict.findings
    assert (judged.data_fresh, judged.data_reason) == (False, "MetricsUnavailable")
    assert "pod-x" in judged.data_message


def test_s15_alive_but_frozen_is_sick_and_shows_its_evidence() -> None:
    stage, engine = Stage(), Engine([Rank(running=3, waiting=9)])
    for k in range(70):
        engine.ranks[0].waiting = 9 + k // 4
        verdict = only(stage.look({"pod-a": engine.page()}))

    finding = verdict.sick()
    assert finding is not None
    assert (finding.reason, finding.removable, finding.serves_nothing) == ("Stalled", True, True)
    shown = {e.signal: e.value for e in finding.evidence}
    assert shown["canaries unanswered"] >= 3
    assert shown["running"] == 3
    assert verdict.last_progress_seconds is None


def test_s16_busy_at_its_limit_is_saturated_and_gets_advice() -> None:
    stage, rank = Stage(), Rank(running=256, waiting=180, kv=0.8)
    engine = Engine([rank])
    for k in range(24):
        busy(rank, steps=190, tokens=26_000)
        shown: str | Failure = Failure.CONNECT_TIMEOUT if k % 2 else engine.page()
        judged = stage.look({"pod-a": shown}, pod_a={"max_num_seqs": 256})
        assert not judged.probes

    verdict = only(judged)
    assert verdict.verdict is Verdict.SATURATED
    assert [(f.detector, f.severity) for f in verdict.findings] == [(Detector.LOAD, Severity.ADVICE)]


@pytest.mark.parametrize("labelled", [True, False])
def test_s17_nobody_admitted_though_kv_is_empty_is_sick_with_or_without_the_label(labelled: bool) -> None:
    stage, engine = Stage(), Engine([Rank(running=0, waiting=6)])
    extra = 'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 6\n' if labelled else ""
    for _ in range(130):
        verdict = only(stage.look({"pod-a": engine.page() + extra}))

    finding = verdict.sick()
    assert finding is not None
    assert finding.removable
    assert verdict.running == 0


def test_s18_one_giant_prefill_is_progress_and_gets_advice() -> None:
    stage, rank = Stage(), Rank(running=9, kv=0.05)
    engine = Engine([rank])
    for _ in range(13):
        rank.steps, rank.kv = rank.steps + 10, rank.kv + 0.02
        verdict = only(stage.look({"pod-a": engine.page()}))

    assert verdict.verdict is Verdict.HEALTHY
    assert [f.reason for f in verdict.findings] == ["LongPrefillBlocks"]
    assert not stage.sent


def test_s19_the_first_requests_of_a_process_judge_nobody() -> None:
    stage, engine = Stage(), Engine([Rank(running=1)])
    for k in range(100):
        if k > 6:  # the first request compiles for 31 s
            busy(engine.ranks[0])
        verdict = only(stage.look({"pod-a": engine.page()}, pod_a=NEW))
        assert verdict.verdict in (Verdict.HEALTHY, Verdict.UNKNOWN)
        assert not verdict.findings


def test_a_hang_in_the_warm_up_is_found_after_it() -> None:
    stage, engine = Stage(), Engine([Rank(running=1)])
    sick_at = None
    for _ in range(150):
        verdict = only(stage.look({"pod-a": engine.page()}, pod_a=NEW))
        if verdict.sick() and sick_at is None:
            sick_at = stage.mono

    assert sick_at == pytest.approx(665, abs=10)


def test_s26_when_every_source_fails_nobody_is_sick_however_long_it_lasts() -> None:
    stage, engines = Stage(), {f"pod-{n}": Engine([Rank(running=4)]) for n in range(6)}
    for _ in range(20):
        for engine in engines.values():
            busy(engine.ranks[0])
        stage.look({uid: engine.page() for uid, engine in engines.items()})
    for _ in range(720):
        judged = stage.look(dict.fromkeys(engines, Failure.CONNECT_TIMEOUT))
        for canary in judged.probes:
            stage.end(canary, CanaryOutcome.CONNECT_TIMEOUT, 0)
        assert all(v.sick() is None for v in judged.verdicts.values())

    assert {v.verdict for v in judged.verdicts.values()} == {Verdict.UNKNOWN}
    assert not judged.data_fresh


def test_s26_silence_of_most_siblings_at_once_is_our_path_and_not_their_sickness() -> None:
    stage, engines = Stage(), {f"pod-{n}": Engine([Rank(running=4)]) for n in range(6)}
    stage.look({uid: engine.page() for uid, engine in engines.items()})
    gone: dict[str, Any] = {uid.replace("-", "_"): {"ready": False} for uid in engines}
    for _ in range(200):
        judged = stage.look(dict.fromkeys(engines, Failure.SILENT), **gone)
        assert all(v.sick() is None for v in judged.verdicts.values())


def test_s54_without_the_telemetry_fragmentation_is_absent_and_named() -> None:
    stage, rank = Stage(), Rank(running=200, kv=0.667)
    engine = Engine([rank])
    for _ in range(400):
        busy(rank)
        judged = stage.look({"pod-a": engine.page()}, pod_a={"max_num_seqs": 256})

    verdict = only(judged)
    assert "fragmentation_percent" not in verdict.signals
    assert "kintsugi_gpu_memory_fragmentation_ratio" in verdict.missing
    assert judged.data_reason == "SeriesMissing"
    assert "kintsugi_gpu_memory_fragmentation_ratio" in judged.data_message


def test_s54_block_waste_is_shown_and_never_judged() -> None:
    stage, rank = Stage(), Rank(running=200, kv=0.667)
    engine = Engine([rank], gpu_fragmentation={"0": 0.1}, orphaned=0.0, block_waste=0.84)
    for _ in range(500):
        busy(rank)
        verdict = only(stage.look({"pod-a": engine.page()}, pod_a={"max_num_seqs": 256}))

    assert verdict.verdict is Verdict.HEALTHY
    assert not verdict.findings


def test_pages_of_a_real_idle_engine_are_judged_idle() -> None:
    pages = Path(__file__).parent / "pages"
    text, stage = (pages / "01_idle.txt").read_text(), Stage()
    cpu = next(line for line in text.splitlines() if line.startswith("process_cpu_seconds_total"))
    for k in range(40):
        page = text.replace(cpu, f"process_cpu_seconds_total {20 + k}")
        verdict = only(stage.look({"pod-a": page}))
        stage.answer_all()

    # Its counters stand although it answers: on this recorded page they can do nothing else.
    assert verdict.reason == "StaleGauges"
    assert verdict.sick() is None


def test_kv_usage_alone_is_progress_for_ten_minutes_only() -> None:
    stage, rank = Stage(), Rank(running=1, kv=0.30)
    engine = Engine([rank])
    sick_at = None
    for k in range(150):
        rank.kv = 0.30 if k % 2 else 0.35
        verdict = only(stage.look({"pod-a": engine.page()}))
        if verdict.sick() and sick_at is None:
            sick_at = stage.mono

    assert sick_at == pytest.approx(665, abs=6)


def test_an_answer_just_before_the_removal_gives_the_instance_back() -> None:
    stage, engine = Stage(), Engine([Rank(running=3)])
    for _ in range(60):
        verdict = only(stage.look({"pod-a": engine.page()}))
    assert verdict.sick() is not None
    engine.ranks[0].steps += 1
    stage.end(stage.sent[0])

    verdict = only(stage.look({"pod-a": engine.page()}))

    assert verdict.sick() is None
    assert Detector.STALLED in verdict.cleared


def test_an_operator_restart_in_a_flat_span_begins_at_zero() -> None:
    stage, engine = Stage(), Engine([Rank(running=3)])
    for _ in range(50):
        stage.look({"pod-a": engine.page()})
    stage.memory = Memory()
    restarted = stage.mono
    sick_at = None
    for _ in range(20):
        if only(stage.look({"pod-a": engine.page()})).sick() and sick_at is None:
            sick_at = stage.mono

    assert sick_at is not None
    assert sick_at - restarted >= 60


def test_a_sleeping_engine_gets_no_canary_and_no_verdict() -> None:
    stage, engine = Stage(), Engine([Rank(running=1, awake=0)])
    for _ in range(120):
        judged = stage.look({"pod-a": engine.page()})
        assert not judged.probes

    assert (only(judged).verdict, only(judged).reason) == (Verdict.IDLE, "Asleep")


def test_our_own_late_loop_is_nobodys_sickness() -> None:
    stage, engine = Stage(), Engine([Rank(running=3)])
    for k in range(200):
        verdict = only(stage.look({"pod-a": engine.page()}, late_by=4.0 if k % 8 == 7 else 0.0))
        assert verdict.sick() is None

    assert Detector.STALLED not in verdict.cleared


def test_a_jump_of_the_wall_clock_hastens_no_stall() -> None:
    stage, engine = Stage(), Engine([Rank(running=3)])
    for _ in range(5):
        stage.look({"pod-a": engine.page()})
    stage.clock_jump = 36_000.0

    assert only(stage.look({"pod-a": engine.page()})).sick() is None


def test_a_hung_engine_without_process_series_is_found_too() -> None:
    stage, engine = Stage(), Engine([Rank(running=3), Rank()], cpu=None)
    for _ in range(70):
        verdict = only(stage.look({"pod-a": engine.page()}))

    finding = verdict.sick()
    assert finding is not None
    assert "rank 0" in finding.message
