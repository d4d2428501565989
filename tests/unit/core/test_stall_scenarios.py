"""Twenty-eight stories of engines that stand still, or only look like it (hang paper §1.4), at full length."""

import pytest

from tests.unit.core.staging import Stage, deployment
from tests.unit.core.stall_engine import FAULT, At, RankAt, Script, Story


def within(start: int, end: int) -> At:
    """False from `start` to `end`."""
    return lambda t: not start <= t < end


def pause(seconds: int) -> RankAt:
    """No step for `seconds` from the fault on."""
    return lambda rank, t: not FAULT <= t < FAULT + seconds


def hang(rank: int, t: int) -> bool:
    return t < FAULT


def hang_at(second: int) -> RankAt:
    """No step from `second` on."""
    return lambda rank, t: t < second


UNCHUNKED = {"chunked_prefill": False}
STORIES = [
    Script("hang under load", "removed", steps=hang),
    Script("hang while idle", "removed", steps=hang, running=lambda r, t: 0),
    Script(
        "hang while saturated",
        "removed",
        steps=hang,
        running=lambda r, t: 16,
        waiting=lambda r, t: 180,
        queue=lambda t: 400,
    ),
    Script(
        "saturated and healthy, half the scrapes lost, canaries would queue for 400 s",
        "none",
        running=lambda r, t: 16,
        waiting=lambda r, t: 180,
        queue=lambda t: 400,
        readable=lambda t: (t // 5) % 2 == 0,
    ),
    Script(
        "three minutes of lost scrapes at an idle engine",
        "none",
        running=lambda r, t: 0,
        readable=within(FAULT, FAULT + 180),
    ),
    Script(
        "three minutes of lost scrapes with a 50 s pause inside",
        "none",
        readable=within(FAULT, FAULT + 180),
        steps=lambda r, t: not FAULT + 60 <= t < FAULT + 110,
    ),
    Script(
        "a chunked 90 s prefill alone: steps stand, KV usage moves",
        "none",
        yields=lambda r, t: not FAULT <= t < FAULT + 90,
    ),
    Script("an un-chunked 200 s prefill under load", "none", steps=pause(200), fields=UNCHUNKED),
    Script(
        "an un-chunked 200 s prefill that reaches an idle engine",
        "none",
        running=lambda r, t: 1 if t >= FAULT + 200 else 0,
        steps=pause(200),
        fields=UNCHUNKED,
    ),
    Script(
        "an un-chunked 400 s prefill where the longest legal one takes 420 s",
        "none",
        steps=pause(400),
        fields={**UNCHUNKED, "longest_prompt": 420_000},
    ),
    Script("an un-chunked engine hangs under load", "removed", steps=hang, fields=UNCHUNKED),
    Script("a 45 s compile pause under load", "none", steps=pause(45)),
    Script("a 150 s pause under load that ends by itself", "given back", steps=pause(150)),
    Script("a 90 s adapter load at an idle engine", "given back", running=lambda r, t: 0, steps=pause(90)),
    Script(
        "gauges stale after all clients left, canary answered (S11)",
        "none",
        running=lambda r, t: 106 if t < FAULT else 0,
        fields={"max_num_seqs": 128},
    ),
    Script("one of two busy ranks hangs", "removed", ranks=2, steps=lambda r, t: r == 0 or t < FAULT),
    Script(
        "one of two ranks hangs while idle",
        "removed",
        ranks=2,
        steps=lambda r, t: r == 0 or t < FAULT,
        running=lambda r, t: 4 if r == 0 else 0,
    ),
    Script(
        "the scheduler is live-locked: 0 running, 6 waiting (S17)",
        "removed",
        running=lambda r, t: 4 if t < FAULT else 0,
        waiting=lambda r, t: 0 if t < FAULT else 6,
        yields=lambda r, t: t < FAULT,
        admits=lambda t: t < FAULT,
    ),
    Script(
        "running requests go on, nobody is admitted, KV is free",
        "removed",
        waiting=lambda r, t: 0 if t < FAULT else 3,
        admits=lambda t: t < FAULT,
        ends=1500,
    ),
    Script(
        "the head of the queue waits for KV",
        "none",
        waiting=lambda r, t: 0 if t < FAULT else 3,
        admits=lambda t: t < FAULT or t > FAULT + 500,
        full_kv=True,
    ),
    Script(
        "the API server hangs, the engine steps on, the kubelet says NotReady",
        "removed",
        api=lambda t: t < FAULT,
        kubelet_ready=lambda t: t < FAULT + 60,
    ),
    Script("the operator is cut off, the kubelet says Ready", "advice", api=lambda t: t < FAULT),
    Script(
        "the operator is frozen for 90 s in the middle of an idle canary",
        "none",
        running=lambda r, t: 0,
        steps=pause(8),
        operator=within(FAULT + 1, FAULT + 91),
    ),
    Script(
        "the page repeats itself while a saturated engine lets canaries queue",
        "none",
        running=lambda r, t: 16,
        waiting=lambda r, t: 60,
        queue=lambda t: 400,
        live_page=lambda t: t < FAULT,
    ),
    Script("canaries get 401 at an idle engine", "none", running=lambda r, t: 0, code=lambda t: 401),
    Script(
        "admission is full (503) and the engine hangs",
        "removed",
        steps=hang,
        code=lambda t: 503 if t >= FAULT else 200,
    ),
    Script("an operator restart, then a 100 s pause", "given back", forget_at=200, steps=pause(100)),
    Script("a counter reset at the start of a flat span", "none", reset_at=FAULT + 40, steps=pause(70)),
]


def test_the_papers_stories_are_all_here() -> None:
    assert len(STORIES) == 28
    assert len({script.name for script in STORIES}) == 28


@pytest.mark.parametrize(
    "script", STORIES, ids=[f"{number} {script.name}" for number, script in enumerate(STORIES, 1)]
)
def test_each_story_ends_as_it_must(script: Script) -> None:
    story = Story(script)

    acts = story.play()

    last = acts[-1] if acts else "none"
    # "given back" promises that nobody is removed; not withdrawing at all keeps that promise too.
    assert last == script.must or (script.must == "given back" and last == "none"), story.acts


def test_a_hang_under_load_is_withdrawn_within_90_s_and_removed_within_320_s() -> None:
    for offset in range(5):
        story = Story(Script("hang", "removed", steps=hang_at(FAULT + offset)))
        story.play()
        assert story.when("withdrawn") - offset <= 70
        assert 295 <= story.when("removed") - offset <= 320  # counted from the last page before the hang


def test_a_hang_while_idle_is_withdrawn_within_150_s_and_removed_within_370_s() -> None:
    for offset in range(0, 60, 10):
        script = Script("hang", "removed", steps=hang_at(FAULT + offset), running=lambda r, t: 0)
        story = Story(script)
        story.play()
        assert story.when("withdrawn") - offset <= 150
        assert story.when("removed") - offset <= 370


def test_a_saturated_engine_that_steps_gets_no_canary_at_all() -> None:
    script = Script("busy", "none", running=lambda r, t: 16, waiting=lambda r, t: 180, ends=600)
    story = Story(script)

    story.play()

    assert story.canaries == 0


def test_an_idle_engine_gets_one_canary_a_minute() -> None:
    story = Story(Script("idle", "none", running=lambda r, t: 0, ends=660))

    story.play()

    assert 9 <= story.canaries <= 11


def test_a_rehearsal_finds_the_same_hang_thirty_times_faster() -> None:
    fast = deployment({"rehearsal": {"speedUp": 30}})
    stage = Stage(fast)
    story = Story(Script("hang", "removed", steps=hang), stage)

    acts = story.play()

    assert acts[-1] == "removed"
    assert stage.times.stall_remove == pytest.approx(10.0)
    assert story.when("withdrawn") <= 70  # seconds of the script, which are thirtieths here
