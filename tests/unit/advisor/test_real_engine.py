"""A real vLLM 0.32 engine whose small KV cache overflowed: its own pages, cut down to the series that are read here."""

from pathlib import Path

import pytest

from kintsugi.core.advisor.advice import Suggestion
from kintsugi.core.advisor.advise import advise
from kintsugi.core.advisor.look import traffic_reader
from kintsugi.core.advisor.sequences import sequences
from kintsugi.core.advisor.traffic import PoolTraffic, glance, pool_traffic
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import Page
from tests.unit.advisor.stage import settings

PAGES = sorted((Path(__file__).parent / "pages").glob("*.txt"))
EVERY = 15.0
"""The pages bear no times; an even distance is assumed."""


def traffic() -> PoolTraffic:
    reader = traffic_reader()
    return pool_traffic(
        "main",
        [
            glance(reader, "e-0", Page(page.read_text(encoding="utf-8"), EVERY * look))
            for look, page in enumerate(PAGES)
        ],
    )


def test_the_pages_are_of_one_process_and_tell_requests_lengths_and_preemptions() -> None:
    seen = traffic()
    assert seen.left_out == ()
    assert seen.looks == 6
    assert seen.requests == 26
    assert seen.gained("preemptions") == 5
    prompts = seen.histogram(Signal.PROMPT_LENGTHS)
    assert prompts is not None
    assert prompts.mean == pytest.approx(16_200 / 26)


def test_the_engine_is_advised_to_run_as_many_requests_as_its_cache_held() -> None:
    found = sequences(settings(sequences=64), traffic())
    assert isinstance(found, Suggestion)
    # five running requests held 98.6 % of the blocks: 0.9 / 0.197
    assert (found.current, found.suggested) == (64, 4)
    assert "5 preemptions beside 26 finished requests" in found.why
    assert found.confidence == "low"


def test_all_advice_on_it_is_made_without_a_complaint_about_its_pages() -> None:
    advice = advise([settings(sequences=64, batched=2048)], {"main": traffic()})
    assert {each.path.rsplit(".", 1)[-1] for each in advice.suggestions} >= {"maxNumSeqs"}
    assert not any("not on the page" in each.why for each in advice.missing), advice.missing
