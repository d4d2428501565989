"""What the telemetry costs a real vLLM at 16 streams: time inside its hooks (a bar), and throughput with and without."""

import math
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.engine.engine import Engine, arguments, start, wait_ready
from tests.engine.report import put

pytestmark = pytest.mark.timeout(900)

STREAMS: Final = 16
TOKENS: Final = 256
PAIRS: Final = 6
BAR_PERCENT: Final = 1.0
"""Design §11: lost throughput < 1 %."""


@pytest.fixture(scope="module")
def both(
    engine_python: Path, package: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, Engine]]:
    """The same engine with the telemetry and without."""
    scratch = tmp_path_factory.mktemp("cost")
    pair = (
        start(engine_python, package, scratch / "on", arguments(tiny_llama)),
        start(engine_python, None, scratch / "off", arguments(tiny_llama, telemetry=None)),
    )
    try:
        wait_ready(*pair)
        yield pair
    finally:
        for engine in pair:
            engine.stop()


def tokens_per_second(engine: Engine) -> float:
    """One burst of `STREAMS` requests at once."""
    began = time.monotonic()
    with ThreadPoolExecutor(STREAMS) as pool:
        prompts = [chr(97 + i) * 64 for i in range(STREAMS)]
        answers = [pool.submit(engine.complete, prompt, TOKENS) for prompt in prompts]
        assert all(answer.result()["usage"]["completion_tokens"] == TOKENS for answer in answers)
    return STREAMS * TOKENS / (time.monotonic() - began)


def spent(engine: Engine) -> tuple[float, float]:
    """Seconds in the hooks, and in steps, so far."""
    seen = engine.ours()
    return seen["kintsugi_telemetry_hook_seconds_total"], seen["kintsugi_telemetry_step_seconds_total"]


def interval(ratios: list[float]) -> list[float]:
    """95 % of the mean change in percent, by 10,000 resamplings of the pairs."""
    draws = np.random.default_rng(0).choice(np.array(ratios), (10_000, len(ratios))).mean(axis=1)
    return [round(float(edge), 2) for edge in (np.percentile(draws, 2.5), np.percentile(draws, 97.5))]


def test_the_hooks_take_less_than_the_bar_and_throughput_is_reported(both: tuple[Engine, Engine]) -> None:
    on, off = both
    for engine in both:
        tokens_per_second(engine)  # the first burst meets cold caches
    time.sleep(3)
    before = spent(on)
    rates: dict[str, list[float]] = {"on": [], "off": []}
    for index in range(PAIRS):
        order = (("on", on), ("off", off)) if index % 2 else (("off", off), ("on", on))
        for name, engine in order:
            rates[name].append(tokens_per_second(engine))
    time.sleep(3)
    hooks, steps = (after - early for after, early in zip(spent(on), before, strict=True))
    assert steps > PAIRS * STREAMS * TOKENS / max(rates["on"]) * 0.5, "the steps of the bursts were counted"
    share = 100 * hooks / steps
    changes = [100 * (a / b - 1) for a, b in zip(rates["on"], rates["off"], strict=True)]
    throughput = {
        "onMedian": round(statistics.median(rates["on"]), 1),
        "offMedian": round(statistics.median(rates["off"]), 1),
        "ci95Percent": interval(changes),
        "pairs": PAIRS,
    }

    def change(document: dict[str, Any]) -> None:
        document |= {"hookSharePercent": round(share, 3), "throughput": throughput}

    put(change)
    print(f"hooks {share:.3f} % of step time; tokens/s {throughput}")
    assert math.isfinite(share)
    assert share < BAR_PERCENT
