"""Which series each detector needs: pages of real engines, renamed and cut ones, and what follows for healing."""

from dataclasses import replace
from pathlib import Path

import pytest

from kintsugi.core.catalog.version import parse_version
from kintsugi.core.detect.growing import MemoryState
from kintsugi.core.evidence import Memory
from kintsugi.core.finding import Detector
from kintsugi.core.judge import judge
from kintsugi.core.metric_contract import NEEDS, ContractState, check, name_in, needed_by, owed, written_of
from kintsugi.core.page import PageReader
from kintsugi.core.sample import Sample, read_sample
from kintsugi.core.series import TABLE, Signal
from kintsugi.core.snapshot import Page
from kintsugi.core.times import Times
from tests.unit.core.staging import Engine, Rank, Stage, deployment, instance, only, snapshot

PAGES = Path(__file__).parent / "pages"
TIMES = Times()
PREFIX = "site_"


def page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def sample(text: str, prefix: str = "") -> Sample:
    read = read_sample(PageReader(prefix=prefix), Page(text, 10.0))
    assert isinstance(read, Sample)
    return read


def lacks_of(
    text: str, image: str = "vllm/vllm-openai:v0.33.0", prefix: str = ""
) -> dict[Detector, tuple[str, ...]]:
    state, seen = ContractState(), sample(text, prefix)
    check(state, seen, TIMES)
    found = owed(
        state,
        len(seen.ranks),
        MemoryState(),
        written_of(deployment().spec),
        instance(image=image),
        10.0,
        TIMES,
    )
    return dict(found.lacking)


@pytest.mark.parametrize("name", ["01_idle.txt", "04_under_load_queueing.txt", "70_deepseek_v4.txt"])
def test_a_real_engine_has_all_that_its_own_page_owes_from_its_start_on(name: str) -> None:
    assert set(lacks_of(page(name))) == {Detector.FRAGMENTED, Detector.GROWING}, "which need our telemetry"


def test_without_log_stats_nothing_is_known_and_nothing_is_judged() -> None:
    stage = Stage()
    for _ in range(300):
        judged = stage.look({"pod-a": page("30_disable_log_stats_under_load.txt")})
    assert (judged.data_fresh, judged.data_reason) == (False, "MetricsUnavailable")
    assert only(judged).sick() is None


RENAMED = {
    "vllm:iteration_tokens_total": (Detector.STALLED, Detector.SLOW, Detector.COLLAPSED),
    "vllm:generation_tokens_total": (Detector.STALLED, Detector.LOAD),
    "vllm:inter_token_latency_seconds": (Detector.SLOW,),
    "vllm:request_success_total": (Detector.ERRORING,),
    "vllm:num_preemptions_total": (Detector.PREEMPTING,),
    "vllm:prefix_cache_hits_total": (Detector.CACHE_HIT,),
    "vllm:kv_cache_usage_perc": (Detector.STALLED, Detector.SLOW, Detector.COLLAPSED),
    "vllm:num_requests_waiting": (Detector.COLLAPSED, Detector.LOAD),
}


@pytest.mark.parametrize("gone", RENAMED)
def test_a_series_that_a_new_version_calls_otherwise_is_named_with_those_that_need_it(gone: str) -> None:
    found = lacks_of(page("04_under_load_queueing.txt").replace(gone, "vllm:called_otherwise"))
    needs = {detector for detector, names in found.items() if gone in names}
    assert needs == set(RENAMED[gone])


def test_older_names_of_the_table_are_as_good() -> None:
    text = page("04_under_load_queueing.txt")
    for new, old in (
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
        ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
        ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    ):
        text = text.replace(new, old)
    assert set(lacks_of(text, "vllm/vllm-openai:v0.11.0")) == {Detector.FRAGMENTED, Detector.GROWING}


def test_a_prefix_of_relabelling_is_read_where_it_is_written() -> None:
    text = page("04_under_load_queueing.txt").replace("vllm:", f"{PREFIX}vllm:")
    plain = read_sample(PageReader(), Page(text, 0.0))
    assert not isinstance(plain, Sample)
    prefixed, bare = sample(text, PREFIX), sample(page("04_under_load_queueing.txt"))
    assert prefixed.ranks == bare.ranks
    assert set(lacks_of(text, prefix=PREFIX)) == {Detector.FRAGMENTED, Detector.GROWING}


def test_the_judge_reads_with_the_prefix_of_the_spec_and_follows_its_change() -> None:
    text = Engine([Rank(running=2)]).page().replace("vllm:", f"{PREFIX}vllm:")
    stage = Stage(deployment(monitoring={"prometheus": {"metricPrefix": PREFIX}}))
    assert stage.look({"pod-a": text}).data_fresh
    stage.deployed = deployment()
    engine = Engine([Rank(running=2)])
    for _ in range(10):
        judged = stage.look({"pod-a": engine.page().replace("vllm:", f"{PREFIX}vllm:")})
    assert "Unrecognised" in judged.data_message


@pytest.mark.parametrize(
    ("signal", "version", "told"),
    [
        (Signal.KV_USAGE, "0.33.0", "vllm:kv_cache_usage_perc"),
        (Signal.KV_USAGE, "0.11.0", "vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc"),
        (Signal.KV_USAGE, "", "vllm:kv_cache_usage_perc"),
        (Signal.STEPS, "0.33.0", "vllm:iteration_tokens_total"),
        (
            Signal.ITL_BUCKET,
            "0.12.0",
            "vllm:inter_token_latency_seconds or vllm:time_per_output_token_seconds",
        ),
    ],
)
def test_a_series_is_told_by_its_name_in_that_version(signal: Signal, version: str, told: str) -> None:
    assert name_in(signal, parse_version(version)) == told


def test_every_needed_signal_stands_in_the_one_table_of_names() -> None:
    needed = {signal for signals in NEEDS.values() for signal in signals}
    assert needed <= set(TABLE)
    assert needed_by(Signal.ITL_SUM) == (Detector.SLOW,)


def whole() -> Engine:
    return Engine([Rank(running=2)], gpu_fragmentation={"0": 0.1}, orphaned=0.0)


def without(text: str, name: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.startswith(name))


def test_data_fresh_names_the_series_and_the_triggers_that_only_observe() -> None:
    stage = Stage()
    judged = stage.look({"pod-a": without(whole().page(), "vllm:iteration_tokens_total")})
    assert (judged.data_fresh, judged.data_reason) == (True, "SeriesMissing")
    assert "vllm:iteration_tokens_total" in judged.data_message
    assert "only observed for it: " in judged.data_message
    assert {"stall", "throughput"} <= {detector.value for detector in only(judged).lacking}
    assert "--disable-log-stats" in judged.data_message


def test_triggers_that_never_act_are_not_said_to_be_held_back() -> None:
    judged = Stage().look({"pod-a": without(whole().page(), "vllm:num_preemptions_total")})
    assert "vllm:num_preemptions_total" in judged.data_message
    assert "preemptions" not in judged.data_message.partition("only observed")[2]


def test_one_page_without_a_series_proves_nothing_and_a_gap_of_evidence_does() -> None:
    stage, engine = Stage(), whole()
    stage.look({"pod-a": engine.page()})
    for _ in range(12):  # looked at once a minute
        stage.look({"pod-a": engine.page()})
    seen = []
    for _ in range(24):
        cut = without(engine.page(), "vllm:kv_cache_usage_perc")
        seen.append(Detector.STALLED in only(stage.look({"pod-a": cut})).lacking)
    assert not any(seen[:6])
    assert seen[-1]
    assert Detector.STALLED not in only(stage.look({"pod-a": engine.page()})).lacking, (
        "and is there again at once"
    )


def test_a_new_process_owes_everything_anew() -> None:
    stage = Stage()
    stage.look({"pod-a": whole().page()})
    cut = without(whole().page(), "vllm:kv_cache_usage_perc")
    judged = stage.look({"pod-a": cut}, pod_a={"started_at": 1_790_000_003.0})
    assert Detector.STALLED in only(judged).lacking


def test_one_source_of_fragmentation_is_enough_to_act_on() -> None:
    engine = Engine([Rank(running=2)], gpu_fragmentation={"0": 0.1})
    verdict = only(Stage().look({"pod-a": engine.page()}))
    assert "kintsugi_kv_orphaned_blocks_ratio" in verdict.missing
    assert Detector.FRAGMENTED not in verdict.lacking


def test_memory_that_nobody_tells_is_named_and_so_is_a_limit_that_is_not_set() -> None:
    untold = only(Stage().look({"pod-a": whole().page()}))
    assert untold.lacking[Detector.GROWING] == ("kintsugi_container_memory_anonymous_bytes",)
    unlimited = only(
        Stage().look({"pod-a": whole().page() + "kintsugi_container_memory_anonymous_bytes 1e9\n"})
    )
    assert "resources.limits.memory" in unlimited.lacking[Detector.GROWING][0]
    text = whole().page() + "kintsugi_container_memory_anonymous_bytes 1e9\n"
    told = only(Stage().look({"pod-a": text}, pod_a={"memory_limit": 2.0**36}))
    assert Detector.GROWING not in told.lacking
    assert "memory" not in " ".join(told.missing)


def test_a_silent_prometheus_server_is_said_in_data_fresh() -> None:
    shot = snapshot([instance("pod-a", Page(whole().page(), 5.0))], 5.0, deployment())
    judged = judge(
        replace(shot, unmeasured="the Prometheus server http://p gives no answer"), TIMES, Memory()
    )
    assert judged.data_reason == "SeriesMissing"
    assert "http://p gives no answer" in judged.data_message
