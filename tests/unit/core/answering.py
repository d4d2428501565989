"""A pool of instances that step, and answer questions as their mouths say."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kintsugi.core.finding import Detector, Finding
from kintsugi.core.known_answers import NAMES
from kintsugi.core.snapshot import Answer, Canary, CanaryOutcome, CanaryResult
from tests.unit.core.staging import EPOCH, Engine, Rank, Stage, deployment

BORN = {"started_at": EPOCH - 700.0, "ready_since": EPOCH - 599.0}
"""A process whose warm-up is over in the first pass."""
Mouth = Callable[[str], Answer | None]


def well(name: str) -> Answer:
    return Answer(f"right {name}", 9.0)


def wrong_on(*names: str) -> Mouth:
    return lambda name: Answer("nonsense", 9.0) if name in names else well(name)


def unsure_of(*names: str) -> Mouth:
    return lambda name: Answer(f"right {name}", 0.4) if name in names else well(name)


@dataclass
class Pool:
    """Instances of one pool that step, and answer questions as their mouths say."""

    size: int = 3
    stage: Stage = field(default_factory=lambda: Stage(deployment()))
    mouths: dict[str, Mouth] = field(default_factory=dict)
    asked: dict[str, list[str]] = field(default_factory=dict)
    engines: dict[str, Engine] = field(default_factory=dict)
    extra: dict[str, Callable[[str], str]] = field(default_factory=dict)
    """By instance: what its page becomes."""
    outcomes: dict[str, tuple[CanaryOutcome, int]] = field(default_factory=dict)
    born: dict[str, dict[str, float]] = field(default_factory=dict)
    """By instance: when its process began and became Ready, `BORN` if absent."""
    held: list[Canary] | None = None
    """Where a list: questions stay open, and gather there."""

    def __post_init__(self) -> None:
        for number in range(self.size):
            self.engines[f"pod-{number}"] = Engine([Rank(running=2)])

    def run(self, seconds: float, **changes: object) -> "Pool":
        for _ in range(round(seconds / self.stage.step)):
            self.look(**changes)
        return self

    def look(self, **changes: object) -> None:
        pages = {}
        for uid, engine in self.engines.items():
            engine.ranks[0].steps += 50
            engine.ranks[0].first_tokens += 2
            pages[uid] = self.extra.get(uid, str)(engine.page())
        fields: dict[str, Any] = {
            uid.replace("-", "_"): {**self.born.get(uid, BORN), **dict(changes)} for uid in pages
        }
        judged = self.stage.look(pages, **fields)
        self.stage.answer_all()
        for question in judged.questions:
            self.answer(question)

    def answer(self, canary: Canary) -> None:
        assert canary.question is not None
        uid, name = canary.process.uid, canary.question.name
        self.asked.setdefault(uid, []).append(name)
        if self.held is not None:
            self.held.append(canary)
            return
        outcome, status = self.outcomes.get(uid, (CanaryOutcome.ANSWERED, 200))
        said = self.mouths.get(uid, well)(name) if outcome is CanaryOutcome.ANSWERED else None
        if said is not None and not canary.question.margin:
            said = Answer(said.token)
        self.stage.ended.append(CanaryResult(canary, outcome, self.stage.mono + 0.2, status, said))

    def let_go(self) -> None:
        """What was held is answered, and so is what follows."""
        held, self.held = self.held or [], None
        for canary in held:
            self.answer(canary)

    def running(self, uid: str = "pod-0") -> float | None:
        """Requests of users that run there, as its verdict tells."""
        assert self.stage.last is not None
        return self.stage.last.verdicts[uid].running

    def findings(self, uid: str = "pod-0") -> list[Finding]:
        assert self.stage.last is not None
        found = self.stage.last.verdicts[uid].findings
        return [each for each in found if each.detector is Detector.CORRUPTED]

    def said(self, uid: str = "pod-0") -> list[str]:
        return [each.reason for each in self.findings(uid)]

    def sick(self) -> list[str]:
        assert self.stage.last is not None
        return [uid for uid, verdict in self.stage.last.verdicts.items() if verdict.sick() is not None]

    def cleared(self, uid: str = "pod-0") -> bool:
        assert self.stage.last is not None
        return Detector.CORRUPTED in self.stage.last.verdicts[uid].cleared


def fallen(size: int = 3, wrong: int = 5, calm: float = 120.0) -> Pool:
    """A pool that was well at its start, whose first instance then answers `wrong` of the questions wrong."""
    pool = Pool(size).run(calm)
    pool.mouths["pod-0"] = wrong_on(*NAMES[:wrong])
    return pool
