"""The five scenarios: what is done to the engines, and how long the operator is watched."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kintsugi.core.times import Times
from tests.demo.engines import Engines, LogFollower
from tests.demo.facts import Facts, PodFact
from tests.demo.screen import Screen

WELL = {"Healthy", "Idle", "Saturated"}
PATIENCE = 90.0
"""Seconds that any one step may take on a slow machine before it counts as not happening."""
SETTLE = 2.0
"""Seconds added to every time of the judge that is waited for: its passes and ours do not fall together."""


@dataclass(slots=True)
class Chapter:
    """What one scenario left: its times (epoch seconds), its victim, the gates that were closed."""

    name: str
    pools: tuple[str, ...]
    begin: float
    trigger: str = ""
    end: float = 0.0
    victim: PodFact | None = None
    allowed: float | None = None
    """From when on the replacement may be created: the hold is over, and a stall has lasted long enough."""
    replacement: PodFact | None = None
    cured: bool = False
    ended: int = 0
    """Pods of its pools that were ended in its time."""
    withheld_by: str | None = None
    """Why the status said at the end that nothing may be healed; None where it said that it may."""
    log: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def says(self, text: str) -> None:
        self.remarks.append(text)


class Play:
    """Runs the scenarios against a fleet whose every instance is ready."""

    def __init__(
        self,
        facts: Facts,
        engines: Engines,
        times: Times,
        screen: Screen,
        follow: Callable[[str], LogFollower],
    ) -> None:
        self._facts = facts
        self._engines = engines
        self._times = times
        self._screen = screen
        self._follow = follow

    def run(self) -> list[Chapter]:
        """All five, in an order in which none disturbs the next."""
        self._wait_for_reference()
        hang, log = self._begin_hang()
        fragmentation = self._begin_fragmentation()
        self._finish(hang)
        hang.log = log.stop()
        self._wait_for_cost_model(fragmentation)
        throughput = self._begin_throughput()
        self._finish(fragmentation)
        self._finish(throughput)
        outage = self._metrics_outage()
        storm = self._storm()
        return [fragmentation, throughput, hang, storm, outage]

    # -- healed ----------------------------------------------------------------------------------------------

    def _begin_hang(self) -> tuple[Chapter, LogFollower]:
        victim = self._facts.alive("long")[0]
        self._screen.heading(
            f"(c) hang: {victim.name} of pool long makes no step any more; its /health says 200"
        )
        log = self._follow(victim.name)
        chapter = self._inject("hang", "stall", victim, "hang")
        return chapter, log

    def _begin_fragmentation(self) -> Chapter:
        victim = self._facts.alive("short")[0]
        self._screen.heading(f"(a) fragmentation: {victim.name} of pool short rises past 25 %")
        return self._inject(
            "fragmentation", "fragmentation", victim, "fragmentation", percent=60, overSeconds=5
        )

    def _begin_throughput(self) -> Chapter:
        victim = min(self._facts.alive("short"), key=lambda pod: pod.created)
        self._screen.heading(
            f"(b) throughput: every step of {victim.name} of pool short takes 2.5 times as long"
        )
        return self._inject("throughput", "throughput", victim, "throughputDrop", percent=60)

    def _inject(self, name: str, trigger: str, victim: PodFact, fault: str, **parameters: float) -> Chapter:
        chapter = Chapter(name, (victim.pool,), time.time(), trigger, victim=victim)
        self._engines.inject(victim.name, fault, **parameters)
        return chapter

    def _finish(self, chapter: Chapter) -> None:
        """Wait for the victim's remediation to end, and note what it came to."""
        victim, facts = chapter.victim, self._facts
        assert victim is not None
        sick = facts.wait(lambda: facts.first_sick.get((victim.uid, chapter.trigger)), self._soon(1))
        if sick is None:
            chapter.says(f"{victim.name} was never called sick by {chapter.trigger}")
        else:
            stalled = chapter.begin + self._times.stall_remove if chapter.trigger == "stall" else 0.0
            chapter.allowed = max(sick + self._times.hold, stalled)
            outcome = facts.wait(lambda: facts.outcome_of(victim.uid), self._soon(2))
            chapter.cured = outcome == "Cured"
            chapter.replacement = facts.replacement_of(victim.uid)
            if not chapter.cured:
                chapter.says(f"the remediation of {victim.name} ended as {outcome}")
        chapter.end = time.time()
        chapter.ended = len(facts.ended(chapter.begin, victim.pool))
        if chapter.cured and chapter.replacement:
            self._screen.say(
                f"{chapter.name}: healed; {chapter.replacement.name} serves in place of {victim.name}"
            )
        else:
            self._screen.say(
                f"{chapter.name}: NOT healed: {'; '.join(chapter.remarks) or 'no replacement seen'}"
            )

    def _soon(self, steps: int) -> float:
        """A deadline for so many steps of a remediation, at the rehearsal's pace, on a slow machine."""
        times = self._times
        return time.time() + steps * (PATIENCE + times.fragmentation_window + times.warm_up + times.probation)

    # -- held back -------------------------------------------------------------------------------------------

    def _metrics_outage(self) -> Chapter:
        self._wait_for_reference()
        chapter = self._all_sick(
            "metricsOutage", "(e) metrics outage: all pages fail, while all memory is in pieces"
        )
        for pod in self._facts.alive():
            self._engines.inject(pod.name, "metricsError", status=500)
            self._engines.inject(pod.name, "fragmentation", percent=60)
        self._watch(chapter, chapter.begin + 2 * self._times.fragmentation_window + SETTLE)
        for pod in self._facts.alive():
            self._engines.clear(pod.name)
        self._screen.say("the metrics are back")
        if not self._facts.wait(self._all_well, time.time() + PATIENCE):
            chapter.says("the fleet was not well again after the metrics came back")
        return chapter

    def _storm(self) -> Chapter:
        self._wait_for_reference()
        chapter = self._all_sick(
            "storm", "(d) storm: the memory of all five engines falls into pieces at once"
        )
        for pod in self._facts.alive():
            self._engines.inject(pod.name, "fragmentation", percent=60)
        if not self._facts.wait(lambda: self._sick_now() >= 2, self._soon(1)):
            chapter.says(
                "fewer than two engines were ever called sick, so there was no storm to hold back in"
            )
        until = time.time() + 2 * self._times.fragmentation_window
        self._facts.wait(lambda: self._sick_now() == len(self._facts.alive()), until)
        self._screen.say(
            f"{self._sick_now()} of {len(self._facts.alive())} engines are sick at the same time"
        )
        self._watch(chapter, until)
        for pod in self._facts.alive():
            self._engines.clear(pod.name)
        return chapter

    def _all_sick(self, name: str, heading: str) -> Chapter:
        """A chapter about every pool, with nothing else in the operator's way but what it is about."""
        if not self._facts.wait(lambda: not self._facts.in_flight(), self._soon(1)):
            self._screen.say("a remediation is still under way")
        self._screen.heading(heading)
        chapter = Chapter(name, ("short", "long"), time.time())
        breakers = self._facts.status.get("remediations", {}).get("breakers", ())
        if breakers or self._facts.in_flight():
            chapter.says("the budget was not open: a breaker or a remediation stood in the way")
        return chapter

    def _watch(self, chapter: Chapter, until: float) -> None:
        """Let it be until `until`, unless a pod is ended; then note what the status says holds the operator back."""
        self._facts.wait(lambda: self._facts.ended(chapter.begin), until)
        chapter.end = time.time()
        chapter.ended = len(self._facts.ended(chapter.begin))
        allowed = self._facts.condition("HealingAllowed")
        reason = allowed.get("reason", "") if allowed.get("status") == "False" else ""
        chapter.withheld_by = reason[:1].lower() + reason[1:] or None
        self._screen.say(
            f"{chapter.name}: {chapter.ended} pods ended in {chapter.end - chapter.begin:.0f} s; "
            f"HealingAllowed={allowed.get('status')} {allowed.get('reason')}: {allowed.get('message')}"
        )

    # -- waiting ---------------------------------------------------------------------------------------------

    def _wait_for_reference(self) -> None:
        """Until every engine's calm fragmentation is known: a restart is only known to help who was calm before."""
        self._sleep_until(
            max(pod.ready or 0.0 for pod in self._facts.alive())
            + self._times.warm_up
            + self._times.fragmentation_reference
            + SETTLE,
            "the engines warm up, and their calm state is learned",
        )

    def _wait_for_cost_model(self, before: Chapter) -> None:
        """Until what a step costs is known, and the pool's other remediation will be over when the verdict falls."""
        first = min(pod.created for pod in self._facts.pods.values())
        learned = max(p.ready or first for p in self._facts.pods.values() if p.created < before.begin)
        learned += self._times.warm_up + 31 * self._times.slow_minute
        facts, victim = self._facts, before.victim
        assert victim is not None
        replacement = facts.wait(lambda: facts.replacement_of(victim.uid), self._soon(1))
        if replacement and facts.wait(lambda: replacement.ready, self._soon(1)):
            over = (replacement.ready or 0.0) + self._times.warm_up + self._times.probation
            learned = max(learned, over - 0.8 * self._times.throughput_window)
        self._sleep_until(learned + SETTLE, "what a step costs is learned")

    def _sleep_until(self, moment: float, why: str) -> None:
        left = moment - time.time()
        if left > 0:
            self._screen.say(f"{why}: {left:.0f} s")
            time.sleep(left)

    def _all_well(self) -> bool:
        verdicts = self._facts.verdicts
        return all((fact := verdicts.get(pod.uid)) and fact.verdict in WELL for pod in self._facts.alive())

    def _sick_now(self) -> int:
        verdicts = self._facts.verdicts
        return sum(
            (fact := verdicts.get(pod.uid)) is not None and fact.verdict == "Sick"
            for pod in self._facts.alive()
        )
