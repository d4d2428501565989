"""The telemetry in engines of other shapes: several KV groups, tensor and data parallel, a release that is not known."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kintsugi.core.page import PageReader
from kintsugi.core.sample import Sample, read_sample
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Page
from tests.engine.engine import BLOCK, Engine, arguments, start, wait_ready

pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).parent
WINDOW = 64


@pytest.fixture(scope="module")
def tiny_windowed(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Gemma: half of its layers see a window of 64 tokens only."""
    folder = tmp_path_factory.mktemp("tiny-windowed")
    command = [str(engine_python), str(HERE / "tiny_llama.py"), str(folder), "windowed"]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    return folder


@pytest.fixture(scope="module")
def first_two(
    engine_python: Path,
    package: Path,
    tiny_llama: Path,
    tiny_windowed: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Engine]]:
    scratch = tmp_path_factory.mktemp("first-two")
    unknown = [str(HERE / "unknown_release.py")]
    made = {
        "windowed": start(engine_python, package, scratch / "windowed", arguments(tiny_windowed)),
        "unknown": start(engine_python, package, scratch / "unknown", arguments(tiny_llama), server=unknown),
    }
    yield from served(made)


@pytest.fixture(scope="module")
def parallel(
    engine_python: Path, package: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Engine]]:
    """Two engines in one server, each of two workers: every rank is a process of its own."""
    scratch = tmp_path_factory.mktemp("parallel")
    words = arguments(tiny_llama, "--data-parallel-size", "2", "--tensor-parallel-size", "2")
    yield from served({"both": start(engine_python, package, scratch / "both", words)})


def served(made: dict[str, Engine]) -> Iterator[dict[str, Engine]]:
    try:
        wait_ready(*made.values())
        yield made
    finally:
        for one in made.values():
            one.stop()


def until(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := what()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return answer


def named(engine: Engine, name: str) -> dict[str, float]:
    return {series: number for series, number in engine.page().items() if series.startswith(name)}


def test_each_kv_group_counts_with_its_own_window(first_two: dict[str, Engine]) -> None:
    engine = first_two["windowed"]
    time.sleep(1.1)
    engine.complete("x" * 500, 20)
    groups = named(engine, "kintsugi_kv_group_waste_ratio")
    kinds = {kind: number for series, number in groups.items() for kind in ("FullAttention", "SlidingWindow")
             if f'kind="{kind}"' in series}  # fmt: skip
    assert set(kinds) == {"FullAttention", "SlidingWindow"}, groups
    assert kinds["FullAttention"] in [pytest.approx(1 - n / (16 * BLOCK)) for n in (500, 501)]
    # In the window's group all 16 blocks of the chunk are held while it is computed, and those of the window after it.
    assert kinds["SlidingWindow"] in [
        pytest.approx(unwritten / (held * BLOCK)) for unwritten in (11, 12) for held in (2, 3, 16)
    ]
    total = sum(named(engine, "kintsugi_kv_blocks").values())
    (config,) = named(engine, "vllm:cache_config_info")
    assert total == int(config.partition('num_gpu_blocks="')[2].partition('"')[0]) - 1
    assert set(named(engine, "kintsugi_kv_orphaned_blocks").values()) == {0.0}


def test_a_release_that_is_not_known_is_not_measured_and_serves(first_two: dict[str, Engine]) -> None:
    engine = first_two["unknown"]
    answer = engine.complete("x" * 40, 20)
    assert answer["usage"]["completion_tokens"] == 20
    page = named(engine, "kintsugi_")
    (info,) = named(engine, "kintsugi_telemetry_info")
    assert 'state="off"' in info
    assert "0.99.0" in info
    assert not [
        series for series in page if series.startswith(("kintsugi_kv", "kintsugi_sample", "kintsugi_gpu"))
    ]
    log = engine.log.read_text()
    assert "Kintsugi telemetry is off: vLLM 0.99.0+cpu is not known" in log
    assert "Serving goes on without it" in log


def test_every_data_parallel_rank_tells_its_own_pool(parallel: dict[str, Engine]) -> None:
    engine = parallel["both"]
    for _ in range(4):  # spread over both ranks; eight processes share the cores, and a step is slow
        engine.complete("x" * 100, 8)
    until(lambda: len(named(engine, "kintsugi_kv_blocks")) == 6)
    pools = named(engine, "kintsugi_kv_blocks")
    assert len(pools) == 6, named(engine, "kintsugi_")
    for rank in ("0", "1"):
        assert sum(number for series, number in pools.items() if f'engine="{rank}"' in series) > 0
    assert len(list(engine.files.glob("pool-*.json"))) == 2
    sample = read_sample(PageReader(), Page(engine.get("/metrics"), 1.0))
    assert isinstance(sample, Sample)
    assert set(sample.telemetry[Signal.ORPHANED_RATIO]) == {"pool", "1/pool"}
    assert set(sample.telemetry[Signal.SAMPLE_AGE]) == {"pool", "1/pool"}
    # Ranks of a dense model don't wait for each other: vLLM tells each that it is alone.
    assert all(rank.mixed_prefill is not None and rank.count_age is not None for rank in sample.ranks)
