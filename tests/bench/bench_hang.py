"""Bars of a hang with `/health` 200: withdrawn within 90 s (idle 150 s), removed within 320 s (idle 370 s), p95."""

import random
from collections.abc import Callable

import pytest

from tests.unit.core.stall_engine import FAULT, Script, Story

HANGS = 60


def played(luck: random.Random, running: int, waiting: int, lost: float) -> Story:
    """One engine that hangs at a random moment of a minute, with a share of the scrapes lost."""
    fault = FAULT + luck.random() * 60
    gone = {5 * k for k in range(300) if luck.random() < lost}
    steps: Callable[[int, int], bool] = lambda rank, t: t < fault
    script = Script(
        "hang",
        "removed",
        steps=steps,
        running=lambda rank, t: running,
        waiting=lambda rank, t: waiting,
        queue=lambda t: 400 if waiting else 0,
        readable=lambda t: t not in gone,
    )
    story = Story(script)
    story.play()
    story.acts = [(round(t - fault + FAULT), act) for t, act in story.acts]
    return story


@pytest.mark.parametrize("lost", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(
    ("name", "running", "waiting", "withdrawn", "removed"),
    [("load", 4, 0, 90, 320), ("idle", 0, 0, 150, 370), ("saturated", 16, 180, 90, 320)],
)
def test_a_hang_is_withdrawn_and_removed_in_time(
    name: str, running: int, waiting: int, withdrawn: int, removed: int, lost: float
) -> None:
    luck = random.Random(7)
    stories = [played(luck, running, waiting, lost) for _ in range(HANGS)]

    out = sorted(story.when("withdrawn") for story in stories)
    gone = sorted(story.when("removed") for story in stories)
    at = int(0.95 * HANGS)
    print(
        f"\n{name}, {lost:.0%} of the scrapes lost: withdrawn p50 {out[HANGS // 2]} p95 {out[at]} s, ", end=""
    )
    print(f"removed p50 {gone[HANGS // 2]} p95 {gone[at]} s")
    assert out[at] <= withdrawn
    assert gone[at] <= removed or lost > 0.1
