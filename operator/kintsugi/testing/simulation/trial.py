"""Run the judge over a simulated pool, pass by pass, and note what it would have had done."""

import random
from dataclasses import dataclass, field

from kintsugi.core.evidence import Memory
from kintsugi.core.finding import Finding, InstanceVerdict, Verdict
from kintsugi.core.judge import Judgement, judge
from kintsugi.core.times import Times, effective_times
from kintsugi.testing.simulation.world import World, up_hours

LATE_PER_HOUR = 0.02
"""Our own loop stood still for 4 to 120 s."""
OPERATOR_RESTARTS_PER_HOUR = 1 / 72


@dataclass(frozen=True, slots=True)
class Act:
    """One verdict Sick: the first of its process and detector, and the first that would also remove."""

    t: float
    pod: str
    finding: Finding
    removes: bool


@dataclass
class Trial:
    """The judge over one world. `trouble`: the operator itself is late and restarted now and then."""

    world: World
    trouble: bool = False
    times: Times | None = None
    memory: Memory = field(default_factory=Memory)
    hours: float = 0.0
    """Instance-hours in which an engine was Ready."""
    acts: list[Act] = field(default_factory=list)
    last: Judgement | None = None
    _peeked: float = 0.0
    _told: set[tuple[str, float | None, str, bool]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.luck = random.Random(self.world.luck.random())
        if self.times is None:
            self.times = effective_times(self.world.deployed.spec)

    @property
    def wait(self) -> float:
        """Seconds between two passes."""
        return (self.times or Times()).scrape_interval

    def run(self, seconds: float) -> None:
        """So much time."""
        until = self.world.t + seconds
        while self.world.t < until:
            self.step()

    def peek(self, share: float) -> None:
        """Let a share of the time to the next pass go by, so that something can begin between two passes."""
        seconds = share * (self.wait - self._peeked)
        self.world.move(seconds)
        self._peeked += seconds

    def step(self) -> None:
        """One pass."""
        times, world = self.times or Times(), self.world
        wait, late = times.scrape_interval, 0.0
        if self.trouble:
            hours = wait / 3_600
            if self.luck.random() < LATE_PER_HOUR * hours:
                late = self.luck.uniform(4, 120)
            if self.luck.random() < OPERATOR_RESTARTS_PER_HOUR * hours:
                self.memory = Memory()
        self.hours += up_hours(world.pods, world.t, wait + late)
        left = wait - self._peeked + late
        self._peeked = 0.0
        while left > 1e-9:
            part = min(left, wait)
            world.move(part)
            left -= part
        judged = judge(world.snapshot(late), times, self.memory)
        world.hear((*judged.probes, *judged.questions), judged.abandon_after, judged.answer_within)
        self.last = judged
        for verdict in judged.verdicts.values():
            if verdict.verdict is Verdict.SICK:
                self._note(verdict)

    def _note(self, verdict: InstanceVerdict) -> None:
        pod = next(p for p in self.world.pods if p.uid == verdict.uid)
        for finding in verdict.findings:
            if finding.severity < 3:
                continue
            for removes in {False, finding.removable}:
                key = (verdict.uid, pod.started, finding.detector.value, removes)
                if key not in self._told:
                    self._told.add(key)
                    self.acts.append(Act(self.world.t, verdict.uid, finding, removes))
