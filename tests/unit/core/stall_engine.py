"""A toy engine for stall tests, in steps of one second: what a real one shows and hides while it works, waits or hangs.

Facts kept from a real engine: gauges are written when a step ends, so they lag and freeze; a request that reaches a
frozen engine shows nowhere; the step counter stands in a prefill without output while KV usage moves.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kintsugi.core.evidence import Memory
from kintsugi.core.finding import Detector, Severity
from kintsugi.core.snapshot import Canary, CanaryOutcome, Failure
from tests.unit.core.staging import Engine, Rank, Stage, deployment

FAULT = 300
"""Second at which faults begin."""
At = Callable[[int], Any]
RankAt = Callable[[int, int], Any]


@dataclass
class Script:
    """One story: what the engine does at every second, and what must come of it."""

    name: str
    must: str
    """none, withdrawn (and given back), removed or advice."""
    steps: RankAt = lambda rank, t: True
    yields: RankAt = lambda rank, t: True
    running: RankAt = lambda rank, t: 4
    waiting: RankAt = lambda rank, t: 0
    ranks: int = 1
    queue: At = lambda t: 0
    """Seconds of stepping before a canary is admitted."""
    readable: At = lambda t: True
    live_page: At = lambda t: True
    api: At = lambda t: True
    code: At = lambda t: 200
    admits: At = lambda t: True
    operator: At = lambda t: True
    kubelet_ready: At = lambda t: True
    forget_at: int = -1
    reset_at: int = -1
    full_kv: bool = False
    ends: int = 1300
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class Asked:
    """A canary inside the engine."""

    canary: Canary
    left: float
    reported: bool = False


@dataclass
class Story:
    """Plays a script and notes what the judge would have done."""

    script: Script
    stage: Stage = field(default_factory=lambda: Stage(deployment()))
    engine: Engine = field(init=False)
    asked: list[Asked] = field(default_factory=list)
    acts: list[tuple[int, str]] = field(default_factory=list)
    canaries: int = 0
    page: str = ""
    missed: float = 0.0

    def __post_init__(self) -> None:
        usage = 0.95 if self.script.full_kv else 0.1
        self.engine = Engine([Rank(kv=usage) for _ in range(self.script.ranks)])

    def play(self) -> list[str]:
        """Run to the end or to the removal; the names of the acts in order."""
        for t in range(1, self.script.ends):
            self._tick(t)
            if t % 5 == 0:
                self._pass(t)
            if self.acts and self.acts[-1][1] == "removed":
                break
        return [act for _, act in self.acts]

    def when(self, act: str) -> int:
        """Seconds from the fault to the first `act`."""
        return next(t for t, name in self.acts if name == act) - FAULT

    def _tick(self, t: int) -> None:
        script = self.script
        if t == script.reset_at:
            self.engine.start += t
            for rank in self.engine.ranks:
                rank.steps = rank.generation = 0
        for index, rank in enumerate(self.engine.ranks):
            mine = [a for a in self.asked if a.canary.rank == str(index) and not a.reported]
            running, waiting = script.running(index, t), script.waiting(index, t)
            if not (running + waiting > 0 or mine) or not script.steps(index, t):
                continue
            if running:
                rank.kv = rank.kv if script.full_kv else round(0.1 + 0.001 * (t % 100), 4)
                rank.steps += 20 * script.yields(index, t)
                rank.generation += 20 * running * script.yields(index, t)
                rank.first_tokens += bool(script.admits(t))
            rank.running, rank.waiting = running, waiting
            for asked in mine:
                self._serve(asked, rank, t)

    def _serve(self, asked: Asked, rank: Rank, t: int) -> None:
        if not self.script.admits(t) or not self.script.api(t) or self.script.code(t) != 200:
            return
        asked.left -= 1
        if asked.left < 0:
            rank.steps, rank.first_tokens, asked.reported = rank.steps + 1, rank.first_tokens + 1, True
            self.stage.end(asked.canary)

    def _pass(self, t: int) -> None:
        script, stage = self.script, self.stage
        if t == script.forget_at:
            stage.memory = Memory()
        if not script.operator(t):
            self.missed += stage.step
            return
        if script.live_page(t) or not self.page:
            self.page = self.engine.page()
        shown: str | Failure = self.page
        if not script.api(t):
            shown = Failure.SILENT
        elif not script.readable(t):
            shown = Failure.CONNECT_TIMEOUT
        fields = {"ready": script.kubelet_ready(t), **script.fields}
        judged = stage.look({"pod-a": shown}, late_by=self.missed, pod_a=fields)
        self.missed = 0.0
        for canary in judged.probes:
            self.canaries += 1
            self._answer_code(canary, t)
            self.asked.append(Asked(canary, script.queue(t)))
        (verdict,) = judged.verdicts.values()
        sick, last = verdict.sick(), self.acts[-1][1] if self.acts else ""
        if sick is not None and last != "withdrawn":
            self.acts.append((t, "withdrawn"))
        if sick is not None and sick.removable:
            self.acts.append((t, "removed"))
        if last == "withdrawn" and Detector.STALLED in verdict.cleared and sick is None:
            self.acts.append((t, "given back"))
        advice = any(f.reason == "Silent" and f.severity is Severity.ADVICE for f in verdict.findings)
        if advice and last != "advice":
            self.acts.append((t, "advice"))

    def _answer_code(self, canary: Canary, t: int) -> None:
        code = self.script.code(t)
        if code == 503:
            self.stage.end(canary, CanaryOutcome.ADMISSION_FULL, 503)
        elif code != 200:
            self.stage.end(canary, CanaryOutcome.REFUSED_BY_ENGINE, code)
            self.asked.append(Asked(canary, 0, reported=True))
