"""`kintsugi-engine drain`, for preStop: returns when nothing runs any more, when nothing moves, or at the deadline.

The signal to end comes after preStop. An engine that gets it with streams in flight cuts them or hangs, so the wait
comes first. Where the operator drained before, nothing runs and there is nothing to wait for. Exit code 0 always: the
pod ends in any case, and a failing hook would only hide why.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kintsugi_engine.contract import ENGINE_PORT
from kintsugi_engine.page import RUNNING, STEPS, WAITING, fetch, sums

STILL_SECONDS: Final = 10.0
"""Without a step for so long while something runs, the engine hangs: waiting would save no stream."""
POLL_SECONDS: Final = 0.5
PAGE_SECONDS: Final = 2.0
"""How long the page may take; a silent server is one that doesn't move."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the engine; None where the page doesn't say."""

    load: float | None
    steps: float | None


def look(url: str) -> Look | None:
    """None where no server is there any more. One that is silent, or has no such series, says nothing."""
    try:
        found = sums(fetch(f"{url}/metrics", PAGE_SECONDS), (RUNNING, WAITING, STEPS))
    except OSError as error:
        refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
        return None if refused else Look(None, None)
    load = found.get(RUNNING)
    return Look(None if load is None else load + found.get(WAITING, 0.0), found.get(STEPS))


def drained(
    looks: Callable[[], Look | None],
    deadline: float,
    mono: Callable[[], float],
    wait: Callable[[float], None],
) -> str:
    """Wait; returns why the wait is over. `deadline`: seconds from now."""
    began = moved = mono()
    steps: float | None = None
    while True:
        seen = looks()
        now = mono()
        if seen is None:
            return "no server answers any more"
        if seen.load == 0:
            return "nothing runs"
        if seen.steps is not None and seen.steps != steps:
            steps, moved = seen.steps, now
        if now - moved >= STILL_SECONDS:
            return f"no step for {STILL_SECONDS:g} s"
        if now - began >= deadline:
            return f"the deadline of {deadline:g} s"
        wait(min(POLL_SECONDS, max(0.0, began + deadline - now)))


def main(words: Sequence[str]) -> int:
    """Exit code 0."""
    parser = argparse.ArgumentParser(prog="kintsugi-engine drain", allow_abbrev=False)
    parser.add_argument("--url", default=f"http://127.0.0.1:{ENGINE_PORT}")
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds to wait at most")
    parser.add_argument(
        "--least", type=float, default=5.0, help="seconds to wait at least, until no endpoint is left"
    )
    options = parser.parse_args(words)
    began = time.monotonic()
    time.sleep(min(options.least, options.deadline))
    left = options.deadline - (time.monotonic() - began)
    why = drained(lambda: look(options.url), max(0.0, left), time.monotonic, time.sleep)
    print(f"kintsugi-engine drain: {why} ({time.monotonic() - began:.1f} s)", flush=True)
    return 0
