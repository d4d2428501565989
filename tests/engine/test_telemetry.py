"""The telemetry inside a real vLLM that serves: what its series say is compared with what is known from outside."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kintsugi.core.page import PageReader
from kintsugi.core.sample import Sample, read_sample
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Page
from kintsugi_engine.contract import COMPACT_MIDDLEWARE, RECORD_PATH
from tests.engine.engine import BLOCK, TELEMETRY, Engine, arguments, start, wait_ready

pytestmark = pytest.mark.timeout(600)

SMALL_POOL = 72
"""Blocks with which requests have to be preempted, the null block among them."""


@pytest.fixture(scope="module")
def engines(
    engine_python: Path, package: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Engine]]:
    """Engines with room, with little, and beside a connector that moves KV; started at the same time."""
    scratch = tmp_path_factory.mktemp("engines")
    little = ("--num-gpu-blocks-override", str(SMALL_POOL), "--max-model-len", "1024", "--max-num-seqs", "8")
    saving = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(scratch / "saved")},
    }
    two = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": [saving, TELEMETRY]},
    }
    words = {
        "roomy": arguments(tiny_llama, "--middleware", COMPACT_MIDDLEWARE),
        "tight": arguments(tiny_llama, *little),
        "beside": arguments(tiny_llama, telemetry=two),
    }
    made = {name: start(engine_python, package, scratch / name, given) for name, given in words.items()}
    try:
        wait_ready(*made.values())
        yield made
    finally:
        for one in made.values():
            one.stop()


@pytest.fixture(scope="module")
def roomy(engines: dict[str, Engine]) -> Engine:
    return engines["roomy"]


@pytest.fixture(scope="module")
def tight(engines: dict[str, Engine]) -> Engine:
    return engines["tight"]


@pytest.fixture(scope="module")
def beside(engines: dict[str, Engine]) -> Engine:
    return engines["beside"]


def until(what: Callable[[], Any], seconds: float = 15.0) -> Any:
    """Ask until the answer is true; returns it, or the last one."""
    deadline = time.monotonic() + seconds
    while not (answer := what()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return answer


def blocks(series: dict[str, float]) -> dict[str, float]:
    states = ("active", "cached_free", "empty_free")
    return {state: series[f'kintsugi_kv_blocks{{state="{state}"}}'] for state in states}


def waste(series: dict[str, float]) -> float | None:
    return series.get('kintsugi_kv_block_waste_ratio{rank="pool"}')


def file_of(engine: Engine) -> dict[str, Any]:
    (path,) = engine.files.glob("pool-*.json")
    return dict(json.loads(path.read_text()))


def idle(engine: Engine) -> bool:
    return blocks(engine.ours())["active"] == 0


def pool_size(engine: Engine) -> int:
    """What vLLM itself says, less the null block."""
    for series in engine.page():
        if series.startswith("vllm:cache_config_info"):
            return int(series.partition('num_gpu_blocks="')[2].partition('"')[0]) - 1
    raise AssertionError("no vllm:cache_config_info")


def many(engine: Engine, prompts: list[str], tokens: int, seen: Callable[[], None]) -> None:
    """Send all at once, and call `seen` until all are answered."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = [pool.submit(engine.complete, prompt, tokens) for prompt in prompts]
        while not all(answer.done() for answer in answers):
            seen()
            time.sleep(0.2)
        assert all(answer.result()["usage"]["completion_tokens"] == tokens for answer in answers)


def test_one_request_wastes_what_a_hand_computation_says(roomy: Engine) -> None:
    roomy.complete("w", 1)
    until(lambda: idle(roomy))
    time.sleep(1.1)
    roomy.complete("x" * 17, 12)
    seen = roomy.ours()
    assert blocks(seen)["active"] == 1
    written = (17, 18)  # the first step writes the prompt; the next one may be under way
    assert waste(seen) in [pytest.approx(1 - tokens / BLOCK) for tokens in written]
    said = 'kintsugi_kv_group_waste_ratio{engine="0",group="0",kind="FullAttention",model_name="tiny",rank="pool"}'
    assert seen[said] == waste(seen)


def test_under_load_blocks_sum_to_the_pool_and_waste_is_what_is_held_less_what_is_written(
    roomy: Engine,
) -> None:
    total = pool_size(roomy)
    samples: list[dict[str, Any]] = []
    ratios: list[float] = []

    def see() -> None:
        series = roomy.ours()
        assert sum(blocks(series).values()) == total
        assert series['kintsugi_kv_orphaned_blocks{rank="pool"}'] == 0
        ratios.append(waste(series) or 0.0)
        samples.append(file_of(roomy))

    prompts = [chr(97 + i) * (40 + 31 * i) for i in range(12)]  # none shares a block with another
    many(roomy, prompts, 400, see)
    busy = [one for one in samples if one["requests"] == len(prompts)]
    assert busy
    for one in busy:
        held, written = one["blocks"]["active"] * BLOCK, one["tokens"]
        assert sum(map(len, prompts)) <= written <= sum(map(len, prompts)) + 400 * len(prompts)
        assert held - BLOCK * len(prompts) <= written <= held
        assert one["waste"] == pytest.approx((held - written) / held)
    assert any(one["waste"] == pytest.approx(ratio) for one in busy for ratio in ratios), (
        "the page is the file's"
    )


def test_blocks_kept_for_reuse_are_free_and_no_waste(roomy: Engine) -> None:
    until(lambda: idle(roomy))
    before = blocks(roomy.ours())
    prompt = "".join(chr(65 + i % 26) for i in range(1500))
    roomy.complete(prompt, 2)
    assert until(lambda: idle(roomy))
    after = roomy.ours()
    assert blocks(after)["cached_free"] == before["cached_free"] + 1500 // BLOCK
    assert waste(after) is None, "nothing is held: there is no share of it, and no 0"
    hits = [number for series, number in roomy.page().items() if "prefix_cache_hits_total" in series]
    time.sleep(1.1)
    roomy.complete(prompt, 20)
    again = roomy.ours()
    assert [number for series, number in roomy.page().items() if "prefix_cache_hits_total" in series] != hits
    assert blocks(again)["active"] == 1500 // BLOCK + 1
    assert waste(again) == pytest.approx(1 - 1501 / (47 * BLOCK), abs=2 / (47 * BLOCK))


def prefill(engine: Engine) -> dict[str, float]:
    seen = engine.ours()
    return {step: seen[f'kintsugi_prefill_tokens{{step="{step}"}}'] for step in ("mixed", "alone")}


def credited(engine: Engine) -> float:
    """Prompt tokens that vLLM says it has computed."""
    page = engine.page()
    total = {name: 0.0 for name in ("vllm:prompt_tokens_total", "vllm:prefix_cache_hits_total")}
    for series, number in page.items():
        name = series.partition("{")[0]
        if name in total:
            total[name] += number
    return total["vllm:prompt_tokens_total"] - total["vllm:prefix_cache_hits_total"]


def test_prompt_tokens_are_counted_by_what_ran_beside_them_and_add_up_to_what_vllm_credits(
    roomy: Engine,
) -> None:
    assert until(lambda: idle(roomy))
    time.sleep(2.5)  # an idle engine tells its last count
    before, known = prefill(roomy), credited(roomy)
    roomy.complete("".join(chr(65 + (7 * i) % 26) for i in range(900)), 1)
    assert until(lambda: prefill(roomy)["alone"] - before["alone"] == 900)
    assert prefill(roomy)["mixed"] == before["mixed"]

    with ThreadPoolExecutor(2) as pool:
        decoding = pool.submit(roomy.complete, "y" * 30, 600)
        time.sleep(0.5)
        prompt = "".join(chr(65 + (11 * i) % 26) for i in range(1100))
        pool.submit(roomy.complete, prompt, 1).result()
        assert not decoding.done(), "it decoded all along"
        decoding.result()
    assert until(lambda: idle(roomy))
    assert until(lambda: prefill(roomy)["mixed"] - before["mixed"] == 1100)
    seen = prefill(roomy)
    assert seen["alone"] - before["alone"] == 930
    assert credited(roomy) - known == 900 + 30 + 1100


def test_the_operator_reads_the_page(roomy: Engine) -> None:
    sample = read_sample(PageReader(), Page(roomy.get("/metrics"), time.monotonic()))
    assert isinstance(sample, Sample)
    assert set(sample.telemetry[Signal.ORPHANED_RATIO]) == {"pool"}
    assert sample.telemetry[Signal.SAMPLE_AGE]["pool"] < 10
    assert sample.whole.mixed_prefill is not None
    assert (sample.ranks[0].count_age or 99.0) < 10
    assert Signal.GPU_FRAGMENTATION not in sample.telemetry, "there is no GPU here: absent, not 0"
    assert sample.telemetry[Signal.MEMORY_ANONYMOUS]


def test_a_stopped_engine_still_tells_what_it_last_knew_and_since_when(roomy: Engine) -> None:
    core = roomy.core()
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(roomy.complete, chr(97 + i) * 50, 800) for i in range(4)]
        assert until(lambda: file_of(roomy)["requests"] == 4)
        os.kill(core, signal.SIGSTOP)
        try:
            time.sleep(1.5)
            known = file_of(roomy)
            assert until(lambda: roomy.ours()['kintsugi_sample_age_seconds{rank="pool"}'] > 5)
            assert roomy.get("/health") == ""
            assert file_of(roomy) == known
            assert blocks(roomy.ours()) == known["blocks"]
            (record,) = json.loads(roomy.get(RECORD_PATH))["ranks"]
            assert record.pop("age") == pytest.approx(time.time() - known["at"], abs=2.5)
            assert record == known, "the API process of a hung engine tells what its rank wrote last"
            age = roomy.ours()['kintsugi_sample_age_seconds{rank="pool"}']
            assert age == pytest.approx(time.time() - known["at"], abs=2.5)
        finally:
            os.kill(core, signal.SIGCONT)
        assert all(answer.result()["usage"]["completion_tokens"] == 800 for answer in answers)
    assert until(lambda: roomy.ours()['kintsugi_sample_age_seconds{rank="pool"}'] < 4)


def test_an_idle_engine_is_looked_at_all_the_same(roomy: Engine) -> None:
    assert until(lambda: idle(roomy))
    first = file_of(roomy)["at"]
    assert until(lambda: file_of(roomy)["at"] > first)
    assert roomy.ours()['kintsugi_sample_age_seconds{rank="pool"}'] < 6


def test_preemption_shows_while_it_lasts(tight: Engine) -> None:
    seen: list[dict[str, float]] = []
    many(tight, [chr(97 + i) * 200 for i in range(8)], 500, lambda: seen.append(tight.ours()))
    assert pool_size(tight) == SMALL_POOL - 1
    assert all(sum(blocks(one).values()) == SMALL_POOL - 1 for one in seen)
    waiting = [one["kintsugi_preempted_requests"] for one in seen]
    assert max(waiting) >= 1
    assert max(blocks(one)["active"] for one in seen) >= 0.8 * SMALL_POOL
    preempted = [number for series, number in tight.page().items() if "num_preemptions_total" in series]
    assert preempted[0] >= max(waiting)
    assert until(lambda: idle(tight))
    assert tight.ours()["kintsugi_preempted_requests"] == 0
    assert tight.ours()['kintsugi_kv_orphaned_blocks{rank="pool"}'] == 0


def test_it_measures_beside_a_connector_that_moves_kv(beside: Engine) -> None:
    time.sleep(1.1)
    beside.complete("x" * 200, 12)
    saved = beside.log.parent.parent / "saved"
    assert list(saved.rglob("*.safetensors")), "the other connector has saved what it was given"
    seen = beside.ours()
    assert sum(blocks(seen).values()) == pool_size(beside)
    assert blocks(seen)["active"] == 7
    assert waste(seen) in [pytest.approx(1 - tokens / (7 * BLOCK)) for tokens in (200, 201)]
    assert until(lambda: idle(beside))
    assert beside.ours()['kintsugi_kv_orphaned_blocks{rank="pool"}'] == 0
