"""Bar: one 60 KB page in at most 1 ms, at least 30 times faster than prometheus_client's parser in the same run."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from kintsugi.core.page import PageReader
from kintsugi.core.sample import read_sample
from kintsugi.core.snapshot import Page
from tests.bench.figures import note

PAGE = Path(__file__).parents[1] / "unit" / "core" / "pages" / "22_small_kv_during_preemption.txt"


def median_ms(work: Callable[[], object], times: int) -> float:
    """Median duration of `work` in milliseconds."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return 1000 * statistics.median(taken)


def test_a_page_is_read_within_a_millisecond_and_thirty_times_faster() -> None:
    text, reader = PAGE.read_text(), PageReader()
    reader.read(text)

    ours = median_ms(lambda: reader.read(text), 200)
    sampled = median_ms(lambda: read_sample(reader, Page(text, 0.0)), 200)
    theirs = median_ms(lambda: list(text_string_to_metric_families(text)), 15)
    fresh = median_ms(lambda: PageReader().read(text), 20)

    print(
        f"\npage of {len(text) / 1000:.0f} KB: {ours:.3f} ms read, {sampled:.3f} ms as typed sample, ", end=""
    )
    print(
        f"{fresh:.2f} ms never seen before, prometheus_client {theirs:.1f} ms: {theirs / ours:.0f} times faster"
    )
    note("pageRead", {"ms": sampled, "ratioToPrometheusClient": theirs / ours})
    assert sampled <= 1.0
    assert theirs / ours >= 30
