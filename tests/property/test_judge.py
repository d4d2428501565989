"""What must hold of the judge whatever happens: drawn histories of pages, failures, canaries, restarts and clocks."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kintsugi.core.evidence import Memory
from kintsugi.core.finding import InstanceVerdict, Verdict
from kintsugi.core.snapshot import CanaryOutcome, Failure
from tests.unit.core.staging import Engine, Rank, Stage, deployment

FAST = {"rehearsal": {"speedUp": 10}}
"""Judge's times at a tenth, so that short histories reach every threshold."""


@dataclass(frozen=True)
class Beat:
    """What happens between two passes."""

    steps: int
    running: int
    waiting: int
    kv: float
    fragmentation: float | None
    failure: Failure | None
    answer: CanaryOutcome | None
    ready: bool
    repeated: int


BEATS = st.builds(
    Beat,
    steps=st.sampled_from([0, 0, 0, 1, 40]),
    running=st.sampled_from([0, 1, 16]),
    waiting=st.sampled_from([0, 0, 5]),
    kv=st.sampled_from([0.1, 0.1, 0.1, 0.2]),
    fragmentation=st.sampled_from([None, 0.1, 0.4, 0.4]),
    failure=st.one_of(st.none(), st.none(), st.none(), st.sampled_from(list(Failure))),
    answer=st.one_of(st.none(), st.none(), st.sampled_from(list(CanaryOutcome))),
    ready=st.sampled_from([True, True, True, False]),
    repeated=st.integers(1, 25),
)
HISTORIES = st.lists(BEATS, min_size=1, max_size=12)


def play(history: list[Beat], forget_at: int = -1, blind: bool = False) -> list[InstanceVerdict]:
    """The verdicts on one instance, pass by pass. `forget_at` = the beat before which memory is lost."""
    stage, rank = Stage(deployment(FAST)), Rank()
    engine = Engine([rank])
    verdicts: list[InstanceVerdict] = []
    for index, beat in enumerate(history):
        if index == forget_at:
            stage.memory = Memory()
        for _ in range(beat.repeated):
            verdicts.append(_pass(stage, engine, beat, blind))
    return verdicts


def _pass(stage: Stage, engine: Engine, beat: Beat, blind: bool) -> InstanceVerdict:
    rank = engine.ranks[0]
    rank.steps += beat.steps
    rank.running, rank.waiting, rank.kv = beat.running, beat.waiting, beat.kv
    engine.gpu_fragmentation = {} if beat.fragmentation is None else {"0": beat.fragmentation}
    page = engine.page()
    if blind:
        page = "something_else 1\n" if beat.steps else ""
    shown: str | Failure = beat.failure if beat.failure is not None else page
    if blind and shown is Failure.SILENT:
        shown = Failure.CONNECT_TIMEOUT  # silence has a second witness of its own, the kubelet
    fields: dict[str, Any] = {"ready": True if blind else beat.ready}
    judged = stage.look({"pod-a": shown}, pod_a=fields)
    if beat.answer is not None:
        for canary in judged.probes:
            stage.end(canary, beat.answer)
    (verdict,) = judged.verdicts.values()
    return verdict


@settings(max_examples=25, deadline=None)
@given(HISTORIES)
def test_the_same_history_gives_the_same_verdicts(history: list[Beat]) -> None:
    assert play(history) == play(history)


@settings(max_examples=25, deadline=None)
@given(HISTORIES)
def test_absent_or_unreadable_pages_alone_never_make_anyone_sick_nor_healthy(history: list[Beat]) -> None:
    for verdict in play(history, blind=True):
        assert verdict.verdict not in (Verdict.SICK, Verdict.HEALTHY, Verdict.IDLE, Verdict.SATURATED)


@settings(max_examples=25, deadline=None)
@given(HISTORIES, st.integers(1, 11))
def test_lost_memory_never_hastens_a_verdict(history: list[Beat], forget_at: int) -> None:
    kept, lost = play(history), play(history, forget_at)
    start = sum(beat.repeated for beat in history[:forget_at])
    by_stall = _first_sick(kept, start, removable=False)
    after = _first_sick(lost, start, removable=False)

    # A verdict that comes after the loss needs a whole window of its own: it is never there before 12 passes (60 s
    # at a tenth of the time, two passes a second), and never where the kept memory saw none from its flat span on.
    if after is not None:
        assert after - start >= 11
        assert by_stall is not None or _cleared_between(kept, start, after)


def _first_sick(verdicts: list[InstanceVerdict], start: int, removable: bool) -> int | None:
    for index, verdict in enumerate(verdicts[start:], start):
        finding = verdict.sick()
        if finding is not None and (finding.removable or not removable):
            return index
    return None


def _cleared_between(verdicts: list[InstanceVerdict], start: int, end: int) -> bool:
    """Canaries of the two runs fall at other moments, so the kept run may have heard an answer the other did not."""
    return any(verdict.cleared for verdict in verdicts[start : end + 1])


@settings(max_examples=25, deadline=None)
@given(HISTORIES)
def test_a_removal_is_always_preceded_by_a_withdrawal_and_never_by_stale_data(history: list[Beat]) -> None:
    before: InstanceVerdict | None = None
    for verdict in play(history):
        finding = verdict.sick()
        if finding is not None and finding.removable and finding.reason == "Stalled":
            assert verdict.fresh
            assert before is not None
            assert before.verdict is Verdict.SICK or before.verdict is Verdict.UNKNOWN
        before = verdict
