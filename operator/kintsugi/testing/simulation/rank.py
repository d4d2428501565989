"""One engine rank: continuous batching with chunked prefill, moved from event to event.

Facts kept of vLLM 0.32: gauges are written when a step ends, so they lag and freeze; a step without output (a chunk of a
prefill while nothing decodes) does not count as a step but moves the KV usage; a prompt is credited when its prefill
ends; the first token counts as generated, and only later ones have a time between tokens.
"""

import heapq
import random
from collections import deque
from dataclasses import dataclass

from kintsugi.core.sample import RankSample
from kintsugi.core.series import LONG_GAP_SECONDS
from kintsugi.testing.simulation.cost import CHUNK_TOKENS, StepCost

GAP_EDGES = (2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
"""Bucket edges of vLLM's histogram of time between tokens from `LONG_GAP_SECONDS` on."""
MOST_INSIDE = 2_000
"""With this many requests inside clients that come go away again."""
MOST_STEPS_AT_ONCE = 250
MOST_CHUNKS_AT_ONCE = 8


@dataclass(slots=True)
class Request:
    """One request, or a canary of ours (`canary` is its id)."""

    prompt: int
    computed: int
    """Prompt tokens that are not found in the prefix cache."""
    output: int
    at: float
    fails: bool = False
    """Whoever serves it."""
    canary: str = ""


@dataclass(slots=True)
class Shown:
    """What the rank's series say: gauges as of its last step, counters since its start."""

    running: float = 0.0
    waiting: float = 0.0
    kv_usage: float = 0.0
    steps: float = 0.0
    generation_tokens: float = 0.0
    prompt_tokens: float = 0.0
    prefix_queries: float = 0.0
    prefix_hits: float = 0.0
    itl_sum: float = 0.0
    itl_count: float = 0.0
    itl_gap: float = 0.0
    first_tokens: float = 0.0
    finished: float = 0.0
    failed: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine was started with."""

    seqs: int
    kv_tokens: int
    chunk: int | None = CHUNK_TOKENS
    """None: a prefill is one step, however long."""
    accepted: float = 1.0
    """Tokens per decode step with speculative decoding."""


class RankEngine:
    """One rank. `frozen` (a hang or a pause of the engine core) stops every step; requests still come in."""

    def __init__(self, name: str, cost: StepCost, limits: Limits, luck: random.Random) -> None:
        self.name = name
        self.limits = limits
        self.cost = cost
        self._table = cost.table(limits.seqs + 1)
        self._luck = luck
        self.inbox: deque[Request] = deque()
        """Not yet seen by the scheduler: it looks between two steps."""
        self.queue: deque[Request] = deque()
        self._prefill: Request | None = None
        self._left = 0
        self._running: list[tuple[int, int, Request]] = []
        self._clock = 0
        self._number = 0
        self._held = 0.0
        self._reserved = 0.0
        self._carry = 0.0
        self._late = 0.0
        self.answered: list[tuple[str, float]] = []
        self.failed_canaries: list[tuple[str, float]] = []
        self.failing = 0.0
        """Share of requests, canaries among them, that end in an error here."""
        self.admit_every = 0.0
        """Above 0: the scheduler lets one request in at a time, and the next so many seconds later at the earliest."""
        self._admit_at = 0.0
        self._full = False
        """Nobody was let in for want of a slot or of KV cache, and nobody has left since."""
        self.load = 0
        """Requests inside, seen by the engine or not."""
        self.shown = Shown()

    def sample(self) -> RankSample:
        """The rank's part of a page that is read now. Tokens come in whole numbers."""
        s = self.shown
        return RankSample(
            self.name,
            s.running,
            s.waiting,
            0.0,
            None,
            s.kv_usage,
            1.0,
            s.steps,
            float(round(s.generation_tokens)),
            s.prompt_tokens,
            s.prefix_queries,
            s.prefix_hits,
            0.0,
            s.itl_sum,
            s.itl_count,
            s.itl_gap,
            s.first_tokens,
            s.finished,
            s.failed,
        )

    def take(self, request: Request) -> None:
        """A request arrives."""
        if self.load < MOST_INSIDE:
            self.load += 1
            self.inbox.append(request)

    def pause(self, seconds: float) -> None:
        """The core did nothing for so long: the step under way takes that much longer."""
        if self._running or self._prefill is not None:
            self._late += seconds

    def advance(self, t: float, until: float, slow: float) -> None:
        """Work from `t` to `until`; every step takes `slow` times as long.

        A good part of a suite's time is spent here, so the common case, steps that only decode, is written out.
        """
        inbox, queue, running, s = self.inbox, self.queue, self._running, self.shown
        table, deep, accepted = self._table, self.cost.context / self.limits.kv_tokens, self.limits.accepted
        moved = False
        while t < until:
            while inbox and inbox[0].at <= t:
                queue.append(inbox.popleft())
            if queue and self._prefill is None and (not self._full or self.admit_every):
                self._admit(t)
            n, prefill, late = len(running), self._prefill, self._late
            cost = table[n] + deep * self._held
            chunk = 0
            if prefill is not None:
                chunk, steps = self._next(n)
                depth = (prefill.prompt - self._left + chunk / 2) / self.limits.kv_tokens
                cost += chunk * (self.cost.prompt + self.cost.attention * depth)
            elif n:
                steps = running[0][0] - self._clock
                steps = min(steps, MOST_STEPS_AT_ONCE)
            else:
                if inbox and inbox[0].at < until:
                    t = inbox[0].at
                    continue
                self._carry = self._late = 0.0
                break
            cost *= slow
            if late:
                steps = 1
            elif inbox and not self._full:
                to_next = int((inbox[0].at - t) / cost)
                if to_next < steps:
                    steps = max(1, to_next)
            need = steps * cost - self._carry
            if t + need > until:
                steps = int((until - t + self._carry) / cost)
                if steps < 1:
                    self._carry += until - t
                    break
                need = steps * cost - self._carry
            t += need
            self._carry = self._late = 0.0
            moved = True
            if n:
                tokens = n * steps
                self._clock += steps
                self._held += tokens * accepted
                s.steps += steps
                s.generation_tokens += tokens * accepted
                s.itl_count += tokens
                s.itl_sum += tokens * cost + n * late
                if cost + late >= LONG_GAP_SECONDS:
                    s.itl_gap += max(e for e in GAP_EDGES if e <= cost + late) * (n if late else tokens)
            if prefill is not None:
                self._compute(prefill, chunk * steps, n, t)
            while running and running[0][0] <= self._clock:
                self._finish(heapq.heappop(running)[2])
        if moved:
            s.running = float(len(running) + (self._prefill is not None))
            s.waiting = float(len(queue))
            s.kv_usage = min(1.0, self._held / self.limits.kv_tokens)

    def _next(self, n: int) -> tuple[int, int]:
        """Prompt tokens of each of the next steps, and how many of them are alike, while a prompt is computed."""
        most = self.limits.chunk
        if most is None or self._left <= most - n:
            return self._left, 1
        chunk = most - n if most > n else 1
        whole = self._left // chunk
        whole = min(whole, MOST_CHUNKS_AT_ONCE)
        if n and whole > self._running[0][0] - self._clock:
            whole = self._running[0][0] - self._clock
        return chunk, max(1, whole)

    def _admit(self, t: float) -> None:
        first, limits = self.queue[0], self.limits
        room = not self._running or self._reserved + first.prompt + first.output <= limits.kv_tokens
        if self.admit_every:
            room = not self._running and t >= self._admit_at
            self._admit_at = t + self.admit_every if room else self._admit_at
        if len(self._running) >= limits.seqs or not room:
            self._full = True
            return
        self._prefill = self.queue.popleft()
        self._left = max(1, first.computed)
        self._held += first.prompt - first.computed
        self._reserved += first.prompt + first.output

    def _compute(self, request: Request, tokens: int, decoding: int, t: float) -> None:
        self._left -= tokens
        self._held += tokens if self._left >= 0 else tokens + self._left
        if self._left > 0:
            return
        s = self.shown
        self._prefill = None
        s.prompt_tokens += request.prompt
        s.prefix_queries += request.prompt
        s.prefix_hits += request.prompt - request.computed
        if not decoding:
            s.steps += 1
        if request.canary and self._fails(request):
            self._leave(request, 0)
            self.failed_canaries.append((request.canary, t))
            s.failed += 1
            return
        s.first_tokens += 1
        s.generation_tokens += 1
        self._held += 1
        if request.output <= 1:
            self._finish(request)
            if request.canary:
                self.answered.append((request.canary, t))
            return
        self._number += 1
        steps = round((request.output - 1) / self.limits.accepted) or 1
        heapq.heappush(self._running, (self._clock + steps, self._number, request))

    def _finish(self, request: Request) -> None:
        self._leave(request, request.output)
        if (request.fails or self.failing) and not request.canary and self._fails(request):
            self.shown.failed += 1
        else:
            self.shown.finished += 1

    def _fails(self, request: Request) -> bool:
        return request.fails or (self.failing > 0 and self._luck.random() < self.failing)

    def _leave(self, request: Request, output: int) -> None:
        self.load -= 1
        self._full = False
        if not self._running and self._prefill is None:
            self._held = self._reserved = 0.0
            return
        held, reserved = (
            self._held - request.prompt - output,
            self._reserved - request.prompt - request.output,
        )
        self._held = max(0.0, held)
        self._reserved = max(0.0, reserved)
