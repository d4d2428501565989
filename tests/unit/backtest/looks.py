"""Looks at instances of which nothing matters but what a test says."""

from typing import Any

from kintsugi.core.backtest.observation import Observed
from kintsugi.core.snapshot import Failed, Failure, Page
from tests.unit.core.staging import instance

PAGE = "process_start_time_seconds 500\nvllm:num_requests_running 1\n"


def look(
    time: float, uid: str = "pod-a", text: str | None = PAGE, gone: bool = False, **facts: Any
) -> Observed:
    """One look at `uid`; `text` None = no page came."""
    scrape = Page(text, time) if text is not None else Failed(Failure.PENDING, "no page", time)
    assumed = facts.pop("assumed", False)
    return Observed(time, instance(uid, scrape, **facts), gone, assumed)
