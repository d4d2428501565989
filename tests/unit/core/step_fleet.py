"""A pool of engines whose steps cost what they hold, for tests of `slow`: counters that move as a real engine's do.

The true cost is not of the model's form (it saturates with the batch), so that fitting it is no tautology. Drawn from a
seeded generator.
"""

import random
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kintsugi.core.snapshot import Failure
from tests.frozen import Frozen
from tests.unit.core.staging import Engine, Rank, Stage

TRAINING = 4_200.0
"""Ten minutes of warm-up are over before the first pass; then model and baselines need an hour."""


@dataclass
class Worker:
    """One instance of the pool and what befalls it."""

    uid: str
    engine: Engine = field(default_factory=Engine)
    factor: float = 1.0
    """How many times longer its steps take than they should."""
    prompt_factor: float = 1.0
    acceptance: float = 1.0
    """Tokens per decode and step (speculative decoding)."""
    level: float = 1.0
    """Its own speed, from its build."""
    load: float = 12.0
    lost: bool = False
    """Its pages can't be read."""
    part: float = 0.0
    """Of a step that is under way."""

    def work(self, seconds: float, share: float, luck: random.Random) -> None:
        """Let it work for `seconds` at `share` of its usual load."""
        rank = self.engine.ranks[0]
        batch = max(1.0, self.load * share * luck.uniform(0.9, 1.1))
        prefill = 40.0 * self.prompt_factor * luck.uniform(0.7, 1.3)
        cost = 0.011 + 0.006 * (1 - 2.718 ** (-batch / 8)) + 0.0002 * batch + 2.2e-5 * prefill
        step = cost * self.factor * self.level * luck.uniform(0.97, 1.03)
        self.part += seconds / step
        steps = int(self.part)
        self.part -= steps
        rank.running, rank.kv = round(batch), min(0.9, 0.02 * batch)
        rank.steps += steps
        rank.itl_count += round(steps * batch)
        rank.itl_sum += steps * batch * step
        rank.generation += steps * batch * self.acceptance
        rank.prompt += steps * prefill * 10
        rank.hits += steps * prefill * 9
        rank.queries += steps * prefill * 10
        if rank.mixed_prefill is not None:
            rank.mixed_prefill += steps * prefill
        rank.first_tokens += max(1, round(steps * prefill / 500))


@dataclass
class StepFleet:
    """A pool, passed before the judge every five seconds."""

    stage: Stage
    workers: list[Worker]
    seed: int = 11
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fields of the pods, by UID with underscores."""
    luck: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.luck = random.Random(self.seed)

    def run(self, seconds: float) -> list[tuple[float, dict[str, str]]]:
        """Play on; (monotonic time, verdict by UID) of every pass."""
        seen = []
        for _ in range(round(seconds / self.stage.step)):
            seen.append(self.look())
        return seen

    def look(self, late_by: float = 0.0) -> tuple[float, dict[str, str]]:
        """One pass."""
        share = self.luck.uniform(0.8, 1.2)
        pages: dict[str, str | Failure] = {}
        for worker in self.workers:
            worker.work(self.stage.step + late_by, share, self.luck)
            pages[worker.uid] = Failure.CONNECT_TIMEOUT if worker.lost else worker.engine.page()
        judged = self.stage.look(pages, late_by, **self.changes)
        self.stage.answer_all()
        return self.stage.mono, {uid: verdict.verdict.value for uid, verdict in judged.verdicts.items()}


def fleet(size: int, stage: Stage | None = None) -> StepFleet:
    """A pool of `size` workers that differ a little in speed."""
    workers = [Worker(f"pod-{n}", Engine([Rank()]), level=1.0 + 0.03 * n) for n in range(size)]
    return StepFleet(stage or Stage(), workers)


@cache
def _trained(size: int) -> Frozen[StepFleet]:
    made = fleet(size)
    made.run(TRAINING)
    return Frozen.of(made)


def trained(size: int) -> StepFleet:
    """A pool whose model and baselines are learned; each caller gets one of its own."""
    return _trained(size).copy()
