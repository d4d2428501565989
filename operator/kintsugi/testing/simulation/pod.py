"""One pod with its engine over all its processes, as the operator meets it: a page or a failure, and answered canaries."""

import math
import random
from collections.abc import Iterable
from typing import Final

from kintsugi.core.known_answers import NAMES, TOKENS
from kintsugi.core.sample import Sample
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import (
    Answer,
    Canary,
    CanaryOutcome,
    CanaryResult,
    Device,
    Failed,
    Failure,
    Instance,
    Page,
    ProcessKey,
    Scrape,
    Termination,
)
from kintsugi.testing.clock import EPOCH
from kintsugi.testing.simulation.memory import LIMIT_BYTES, draw_memory
from kintsugi.testing.simulation.rank import RankEngine, Request
from kintsugi.testing.simulation.shapes import Shape, draw_shape
from kintsugi.testing.simulation.temper import Temper

CANARY_TOKENS = 4
MOST_WHOLE = 2.0
"""A prompt that is computed in one step takes so many times as long at most: a step beyond twice what the longest legal
prompt takes is a fault by definition, since nothing shows that it is not one."""
NOISE = 0.03
"""Standard deviation of the logarithm of step cost from one scrape to the next."""
DRIFT = 0.04
"""Of an engine's own level, wandering over hours (slow §6)."""
DRIFT_SECONDS = 14_400.0
NEAR_TIES = 0.03
"""Share of known questions of which a process is not sure (hang §4)."""
SLIPS = (0.0, 0.0, 0.002, 0.01)
"""Shares of known questions that a healthy process answers differently now and then (hang §4: up to 1 %)."""

FRAGMENTATION: Final = Signal.GPU_FRAGMENTATION
ORPHANED: Final = Signal.ORPHANED_RATIO
ANONYMOUS: Final = Signal.MEMORY_ANONYMOUS
MEMORY_LIMIT: Final = Signal.MEMORY_LIMIT
"""Every page of an engine with telemetry has these, and a member costs ten times what a name does."""


class Pod:
    """`t` is monotonic seconds throughout; the wall clock is `EPOCH` later."""

    def __init__(
        self, name: str, temper: Temper, revision: str, t: float, starts: float, luck: random.Random
    ) -> None:
        self.name = self.uid = name
        self.temper = temper
        self.revision = revision
        self.created = t
        self.restarts = 0
        self.phase = "Running"
        self.deleting = False
        self.ended: Termination | None = None
        self.step_factor = 1.0
        """Of the revision: a new version may be slower."""
        self.calm_shape = False
        self.telemetry = True
        self._luck = luck
        self._cost = temper.cost.varied(luck, temper.spread)
        self._open: dict[str, Canary] = {}
        self._results: list[CanaryResult] = []
        self.engines: list[RankEngine] = []
        self.started: float | None = None
        self.ready_at = math.inf
        self.paused_until = -1.0
        self.hung_from = math.inf
        """From then on no step is made by `hung_ranks`."""
        self.hung_ranks: frozenset[str] = frozenset()
        self.slow_from = math.inf
        self.slow = 1.0
        self.neighbour_until = -1.0
        self.neighbour = 1.0
        self.gap_until = -1.0
        self.gap = Failure.CONNECT_TIMEOUT
        self.gap_unready = False
        """The kubelet's probe fails too while the gap lasts."""
        self.flaky_until = -1.0
        self.shape = Shape(0.0, 0.0)
        self.orphans = Shape(0.0, 0.0)
        """Blocks that no request holds and nobody takes back."""
        self.garbage = 0.0
        """Share of answers that are wrong."""
        self._slips = luck.choice(SLIPS)
        self._drift = 0.0
        self._page_at = t
        self._devices = (Device("nvidia.com/gpu", "GPU-0", "Healthy"),)
        self.start(t, starts)

    def start(self, t: float, seconds: float) -> None:
        """A new engine process, Ready after `seconds`. Every fault of the one before is gone."""
        self.started, self.ready_at = t, t + seconds
        limits = self.temper.limits
        names = [str(n) for n in range(self.temper.ranks)]
        self.engines = [RankEngine(name, self._cost, limits, self._luck) for name in names]
        self.shape = draw_shape(self._luck, t, self.calm_shape)
        self.orphans = Shape(0.0, 0.5, spikes=0.05)
        self.memory = draw_memory(self._luck, t)
        self._ties = {name for name in NAMES if self._luck.random() < NEAR_TIES}
        self.garbage = 0.0
        self.hung_from = self.slow_from = math.inf
        self.hung_ranks, self.slow, self.paused_until = frozenset(), 1.0, -1.0

    def lose_device(self) -> None:
        """From now on the device plugin calls its GPU unhealthy."""
        self._devices = (Device("nvidia.com/gpu", "GPU-0", "Unhealthy"),)

    def crash(self, t: float, again: float | None) -> None:
        """The engine's container ends; the kubelet starts it again and it is Ready after `again` s, or never."""
        self.ended = Termination(1, "Error", "", EPOCH + t)
        for canary in self._open.values():
            self._results.append(CanaryResult(canary, CanaryOutcome.CONNECTION_REFUSED, t))
        self._open.clear()
        self.restarts += 1
        self.start(t + 1.0, math.inf if again is None else again)

    def fail(self, t: float) -> None:
        """The pod as a whole ends (evicted by the kubelet, its node lost)."""
        self.phase, self.started, self.ready_at, self.engines = "Failed", None, math.inf, []
        self.ended = Termination(137, "Error", "", EPOCH + t)

    def ready(self, t: float) -> bool:
        """Whether the kubelet calls it Ready."""
        return self.started is not None and t >= self.ready_at

    def serves(self, t: float) -> bool:
        """Whether new requests come to it."""
        return self.ready(t) and not self.deleting

    def load(self) -> int:
        """Requests inside, as a balancer counts them."""
        return sum(engine.load for engine in self.engines)

    def fail_requests(self, share: float) -> None:
        """From now on this share of requests ends in an error, canaries too."""
        for engine in self.engines:
            engine.failing = share

    def advance(self, t: float, until: float) -> None:
        """Let the engine work from `t` to `until`."""
        if self.flaky_until > 0 and t > self.flaky_until:
            self.flaky_until = -1.0
            self.fail_requests(0.0)
        if until < self.ready_at or self.started is None:
            return
        start = max(t, self.ready_at)
        if self.paused_until > start:
            paused = min(until, self.paused_until) - start
            for engine in self.engines:
                engine.pause(paused)
            start += paused
        keep = math.exp(-(until - t) / DRIFT_SECONDS)
        self._drift = self._drift * keep + self._luck.gauss(0, DRIFT) * math.sqrt(1 - keep * keep)
        factor = self.step_factor * math.exp(self._drift + self._luck.gauss(0, NOISE))
        if until <= self.neighbour_until:
            factor *= self.neighbour
        if until > self.slow_from:
            factor *= self.slow
        if self.temper.longest_prefill:
            factor = min(factor, MOST_WHOLE)
        for engine in self.engines:
            stop = min(until, self.hung_from) if engine.name in self.hung_ranks else until
            if stop > start:
                engine.advance(start, stop, factor)
            if engine.answered or engine.failed_canaries:
                self._collect(engine)

    def _collect(self, engine: RankEngine) -> None:
        for outcome, ended in (
            (CanaryOutcome.ANSWERED, engine.answered),
            (CanaryOutcome.SERVER_ERROR, engine.failed_canaries),
        ):
            for id_, at in ended:
                canary = self._open.pop(id_, None)
                if canary is not None:
                    good = outcome is CanaryOutcome.ANSWERED
                    answer = self._answer(canary) if good else None
                    self._results.append(CanaryResult(canary, outcome, at, 200 if good else 500, answer))
            ended.clear()

    def _answer(self, canary: Canary) -> Answer | None:
        question, luck = canary.question, self._luck
        if question is None:
            return None
        if luck.random() < self.garbage or luck.random() < self._slips:
            return Answer(f"wrong {luck.randrange(1_000)}")
        return Answer("right", 1.0 if question.name in self._ties else 9.0)

    def ask(self, canary: Canary) -> None:
        """A canary of ours arrives."""
        if self.started is None or canary.process != ProcessKey(self.uid, EPOCH + self.started):
            self._results.append(CanaryResult(canary, CanaryOutcome.CONNECTION_REFUSED, canary.sent))
            return
        self._open[canary.id] = canary
        engine = self.engines[int(canary.rank)]
        tokens = CANARY_TOKENS if canary.question is None else TOKENS[canary.question.name]
        engine.take(Request(tokens, tokens, 1, canary.sent + 0.01, canary=canary.id))

    def abandon(self, t: float, after: float, answer_within: float) -> None:
        """Close canaries that have been open for `after` seconds, questions after `answer_within`."""
        if not self._open:
            return
        for canary in list(self._open.values()):
            if t - canary.sent < (after if canary.question is None else answer_within):
                continue
            del self._open[canary.id]
            self._results.append(CanaryResult(canary, CanaryOutcome.ABANDONED, t))

    def instance(self, t: float, lost: bool) -> Instance:
        """What the operator knows of it now. `lost`: this scrape doesn't get through."""
        ready = self.ready(t) and not (self.gap_unready and t < self.gap_until)
        results, self._results = tuple(self._results), []
        return Instance(
            name=self.name,
            uid=self.uid,
            pool="main",
            revision=self.revision,
            node="n-" + self.name,
            created_at=EPOCH + self.created,
            phase=self.phase,
            phase_reason="",
            started_at=None if self.started is None or self.started > t else EPOCH + self.started,
            ready=ready,
            ready_since=EPOCH + self.ready_at if ready else None,
            in_rotation=True,
            member=True,
            deleting=self.deleting,
            restarts=self.restarts,
            waiting_reason="",
            waiting_message="",
            last_termination=self.ended,
            pod_ip="10.0.0.1",
            annotations={},
            scrape=self._scrape(t, lost),
            canaries=results,
            max_num_seqs=self.temper.limits.seqs,
            chunked_prefill=self.temper.limits.chunk is not None,
            longest_prompt=self.temper.longest_prompt,
            devices=self._devices,
        )

    def _scrape(self, t: float, lost: bool) -> Scrape:
        if t < self.gap_until:
            return Failed(self.gap, "simulated", t)
        if not self.ready(t):
            return Failed(Failure.REFUSED, "simulated", t)
        if lost:
            return Failed(Failure.CONNECT_TIMEOUT, "simulated", t)
        return Page("", t, self._sample(t))

    def _sample(self, t: float) -> Sample:
        telemetry = {}
        if self.telemetry:
            percent = self.shape.at(t, t - self._page_at, self._luck)
            orphaned = self.orphans.at(t, t - self._page_at, self._luck)
            telemetry = {
                FRAGMENTATION: {"0": percent / 100},
                ORPHANED: {"0": orphaned / 100},
                ANONYMOUS: {"0": self.memory.bytes_at(t, self._luck)},
                MEMORY_LIMIT: {"0": LIMIT_BYTES},
            }
        self._page_at = t
        counted = self.telemetry and len(self.engines) == 1  # ranks may wait for each other
        return Sample(
            mono=t,
            ranks=tuple([engine.sample(t, counted) for engine in self.engines]),
            process_start=EPOCH + (self.started or 0.0),
            telemetry=telemetry,
            http_good=sum([engine.shown.finished for engine in self.engines]),
            http_failed=sum([engine.shown.failed for engine in self.engines]),
            rejections=0.0,
            max_concurrency=max(1.0, self.temper.limits.kv_tokens / self.temper.longest),
            moves_by_itself=True,
        )


def shares(pods: Iterable[Pod], t: float) -> list[tuple[Pod, RankEngine]]:
    """Where a request may go: every rank of every pod that serves."""
    return [(pod, engine) for pod in pods if pod.serves(t) for engine in pod.engines]
