"""What must hold of the detectors of wrong answers and of growing memory, and that every verdict shows its arithmetic."""

import math
import random
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kintsugi.core.finding import Finding, InstanceVerdict, Severity
from kintsugi.core.snapshot import Answer, Canary, CanaryOutcome, CanaryResult, Failure
from tests.property.test_detectors import HISTORIES, SEEDS, Span, move, shape, shuffled
from tests.unit.core.staging import EPOCH, Engine, Rank, Stage, deployment

FAST = {"rehearsal": {"speedUp": 10}}
GIB = 2.0**30
OLD = {"started_at": EPOCH - 700.0, "ready_since": EPOCH - 600.0}
SILENT_ENDINGS = (
    (CanaryOutcome.ABANDONED, 0),
    (CanaryOutcome.SERVER_ERROR, 500),
    (CanaryOutcome.REFUSED_BY_ENGINE, 401),
    (CanaryOutcome.CONNECT_TIMEOUT, 0),
    (CanaryOutcome.ANSWERED, 200),
)


@dataclass(frozen=True)
class Stretch:
    """How three instances answer for a while: 'right', 'wrong', 'unsure' or 'nothing'; what they count and hold."""

    says: tuple[str, ...]
    nans: tuple[int, ...]
    grows: tuple[float, ...]
    passes: int


def three(values: list[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(st.sampled_from(values) for _ in range(3)))


STRETCHES = st.lists(
    st.builds(
        Stretch,
        says=three(["right", "right", "wrong", "unsure", "nothing"]),
        nans=three([0, 0, 0, 2]),
        grows=three([0.0, 0.0, 0.02]),
        passes=st.sampled_from([40, 120, 300]),
    ),
    min_size=1,
    max_size=4,
)


class Trio:
    """Three instances of one revision, passed before the judge."""

    def __init__(self, order: random.Random | None = None) -> None:
        self.stage = Stage(deployment(FAST))
        self.engines = {f"pod-{n}": Engine([Rank(running=2)]) for n in range(3)}
        self.nans = dict.fromkeys(self.engines, 0)
        self.memory = dict.fromkeys(self.engines, 20.0)
        self.order = order

    def look(self, stretch: Stretch) -> dict[str, InstanceVerdict]:
        pages: dict[str, str | Failure] = {}
        uids = sorted(self.engines)
        for place, uid in enumerate(uids):
            rank = self.engines[uid].ranks[0]
            rank.steps, rank.first_tokens = rank.steps + 50, rank.first_tokens + 2
            self.nans[uid] += stretch.nans[place]
            self.memory[uid] = min(63.0, self.memory[uid] + stretch.grows[place])
            pages[uid] = self.engines[uid].page() + (
                f'vllm:corrupted_requests_total{{engine="0"}} {self.nans[uid]}\n'
                f"kintsugi_container_memory_anonymous_bytes {self.memory[uid] * GIB}\n"
                f"kintsugi_container_memory_limit_bytes {64 * GIB}\n"
            )
        if self.order is not None:
            self.order.shuffle(uids)
            pages = {uid: shuffled(str(pages[uid]), self.order) for uid in uids}
        fields: dict[str, Any] = {uid.replace("-", "_"): OLD for uid in uids}
        judged = self.stage.look(pages, 0.0, **fields)
        self.stage.answer_all()
        for asked in judged.questions:
            self.answer(asked, stretch.says[int(asked.process.uid[-1])])
        return {uid: judged.verdicts[uid] for uid in sorted(judged.verdicts)}

    def answer(self, asked: Canary, says: str) -> None:
        assert asked.question is not None
        margin = (9.0 if says != "unsure" else 0.2) if asked.question.margin else None
        outcome, status = (CanaryOutcome.ANSWERED, 200)
        answer = Answer(f"{'wrong' if says == 'wrong' else 'right'} {asked.question.name}", margin)
        if says == "nothing":
            outcome, status = CanaryOutcome.ABANDONED, 0
        told = answer if outcome is CanaryOutcome.ANSWERED else None
        self.stage.ended.append(CanaryResult(asked, outcome, self.stage.mono + 0.1, status, told))


def shown(finding: Finding) -> None:
    """The numbers that convinced are there, and are numbers."""
    assert finding.evidence, finding
    assert finding.message
    for each in finding.evidence:
        assert math.isfinite(each.value), finding
        assert each.signal, finding
        assert each.unit, finding
        assert each.samples >= 0, finding


@settings(max_examples=8, deadline=None)
@given(STRETCHES, SEEDS)
def test_the_order_of_pods_and_of_lines_changes_no_verdict_on_answers_and_memory(
    history: list[Stretch], seed: int
) -> None:
    plain, mixed = Trio(), Trio(random.Random(seed))
    for stretch in history:
        for _ in range(stretch.passes):
            one, other = plain.look(stretch), mixed.look(stretch)
            assert {u: shape(v) for u, v in one.items()} == {u: shape(v) for u, v in other.items()}


@settings(max_examples=12, deadline=None)
@given(STRETCHES)
def test_verdicts_on_answers_and_memory_carry_their_arithmetic(history: list[Stretch]) -> None:
    trio = Trio()
    for stretch in history:
        for _ in range(stretch.passes):
            for verdict in trio.look(stretch).values():
                for finding in verdict.findings:
                    shown(finding)


@settings(max_examples=12, deadline=None)
@given(SEEDS)
def test_questions_without_an_answer_never_make_anybody_sick(seed: int) -> None:
    """Learned answers, and from then on only refusals, errors, silence and bodies without a token."""
    luck, trio = random.Random(seed), Trio()
    well = Stretch(("right",) * 3, (0, 0, 0), (0.0,) * 3, 1)
    for _ in range(40):
        trio.look(well)

    def nothing(asked: Canary, says: str) -> None:
        outcome, status = luck.choice(SILENT_ENDINGS)
        if luck.random() < 0.8:
            trio.stage.ended.append(CanaryResult(asked, outcome, trio.stage.mono + 0.1, status))

    trio.answer = nothing  # type: ignore[method-assign]
    poisoned = Stretch(("nothing",) * 3, (2, 0, 0), (0.0,) * 3, 1)
    for _ in range(400):
        assert [v.name for v in trio.look(poisoned).values() if v.sick() is not None] == []


@settings(max_examples=12, deadline=None)
@given(st.sampled_from([0.0, 1.0, 40.0]), st.sampled_from([0, 1, 20]))
def test_load_alike_on_all_neither_spoils_answers_nor_asks_a_queue(steps: float, waiting: int) -> None:
    trio = Trio()
    well = Stretch(("right",) * 3, (0, 0, 0), (0.0,) * 3, 1)
    for turn in range(300):
        for engine in trio.engines.values():
            engine.ranks[0].waiting = waiting if turn > 60 else 0
            engine.ranks[0].steps += steps
        found = trio.look(well)
        assert [v.name for v in found.values() if v.sick() is not None] == []


@settings(max_examples=15, deadline=None)
@given(HISTORIES)
def test_every_finding_of_every_detector_carries_its_arithmetic(history: list[Span]) -> None:
    stage = Stage(deployment(FAST))
    engines = {f"pod-{n}": Engine([Rank(), Rank()]) for n in range(3)}
    for span in history:
        for _ in range(span.passes):
            for place, engine in enumerate(engines.values()):
                move(engine, span, place)
            judged = stage.look({uid: engine.page() for uid, engine in engines.items()})
            if span.answers:
                stage.answer_all()
            for verdict in judged.verdicts.values():
                for finding in verdict.findings:
                    if finding.severity >= Severity.SUSPECT:
                        shown(finding)
