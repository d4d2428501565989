"""A canary of the past is proved unanswered, or it says nothing."""

from kintsugi.core.backtest.asked import Asked
from kintsugi.core.snapshot import Canary, CanaryOutcome, CanaryResult, Instance, Page
from tests.unit.core.staging import EPOCH, Engine, Rank, Stage, instance

UID = "pod-a"


class Past:
    """One engine of the past under the judge, with the canaries as a replay treats them."""

    def __init__(self, infer: bool = True) -> None:
        self.stage, self.asked = Stage(), Asked(infer)
        self.engine = Engine([Rank(running=0, steps=1000)])
        self.seen: list[CanaryResult] = []

    def look(self, **rank: float) -> list[Canary]:
        for name, value in rank.items():
            setattr(self.engine.ranks[0], name, value)
        page = self.engine.page()
        self.stage.mono += self.stage.step
        here: tuple[Instance, ...] = (instance(UID, Page(page, self.stage.mono)),)
        ended = self.asked.results(here, self.stage.memory, self.stage.mono).get(UID, ())
        self.stage.mono -= self.stage.step
        self.seen += ended
        self.stage.ended = list(ended)
        judgement = self.stage.look({UID: page})
        self.asked.note(judgement.probes, self.stage.memory)
        return list(judgement.probes)

    def flat(self, seconds: float, **rank: float) -> str:
        """The verdict after so many seconds without a step."""
        for _ in range(int(seconds / self.stage.step)):
            self.look(**rank)
        assert self.stage.last is not None
        return self.stage.last.verdicts[UID].verdict.value

    def start(self) -> None:
        self.look(steps=1000, running=2)
        self.look(steps=1010, running=2)


def test_an_engine_with_work_and_no_step_answered_no_canary() -> None:
    past = Past()
    past.start()
    assert past.flat(100.0, running=2) == "Sick"
    assert past.seen == []
    assert past.asked.wanted[UID] >= 3


def test_without_inference_no_canary_says_anything() -> None:
    past = Past(infer=False)
    past.start()
    assert past.flat(400.0, running=2) == "Suspect"
    assert {result.outcome for result in past.seen} == {CanaryOutcome.NOT_SENT}


def test_an_idle_engine_was_asked_nothing() -> None:
    past = Past()
    past.start()
    assert past.flat(600.0, running=0) in ("Idle", "Healthy", "Unknown")
    assert past.seen
    assert {result.outcome for result in past.seen} == {CanaryOutcome.NOT_SENT}
    assert UID not in past.asked.wanted


def test_canaries_end_without_a_word_once_the_work_is_gone() -> None:
    past = Past()
    past.start()
    past.flat(50.0, running=2)
    assert past.flat(300.0, running=0) != "Sick"
    assert {result.outcome for result in past.seen} == {CanaryOutcome.NOT_SENT}


def test_a_step_ends_the_span_and_every_canary_of_it() -> None:
    past = Past()
    past.start()
    past.flat(50.0, running=2)
    past.look(steps=1020)
    assert past.flat(45.0, running=2) != "Sick"
    assert EPOCH > 0
