"""One engine rank: continuous batching with chunked prefill, moved from event to event.

Facts kept of vLLM 0.32: gauges are written when a step ends, so they lag and freeze; a step without output (a chunk of a
prefill while nothing decodes) does not count as a step but moves the KV usage; a prompt is credited when its prefill
ends; the first token counts as generated, and only later ones have a time between tokens.
"""

import math
import random
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from kintsugi.core.sample import RankSample
from kintsugi.core.series import LONG_GAP_SECONDS
from kintsugi.testing.simulation.cost import CHUNK_TOKENS, StepCost

GAP_EDGES = (2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
"""Bucket edges of vLLM's histogram of time between tokens from `LONG_GAP_SECONDS` on."""
MOST_INSIDE = 2_000
"""With this many requests inside clients that come go away again."""
MOST_STEPS_AT_ONCE = 250
MOST_CHUNKS_AT_ONCE = 8
COUNT_AGE = 0.5
"""Seconds since our telemetry counted, in an engine that steps or idles."""
NEVER = 2**63
"""A step that is not reached."""


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
    mixed_prefill: float = 0.0


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
        self.stepped_at = 0.0
        """When its last step ended, as far as steps were looked at one by one."""

    def sample(self, t: float, counted: bool) -> RankSample:
        """The rank's part of a page that is read at `t`. Tokens come in whole numbers. `counted`: by our telemetry, step by step."""
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
            None,
            s.mixed_prefill if counted else None,
            max(COUNT_AGE, t - self.stepped_at if self.load else 0.0) if counted else None,
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

    @property
    def computes(self) -> bool:
        """Whether a prompt is being computed."""
        return self._prefill is not None

    def advance(self, t: float, until: float, slow: float) -> None:
        """Work from `t` to `until`; every step takes `slow` times as long.

        A quarter of a suite's time is spent here: what every request goes through is written out, on local variables
        that go back at the end.
        """
        inbox, queue, running, prefill = self.inbox, self.queue, self._running, self._prefill
        if not (running or inbox or queue or prefill is not None):
            self._carry = self._late = 0.0
            return
        limits, costs, table, s = self.limits, self.cost, self._table, self.shown
        kv_tokens, seqs, largest, accepted = limits.kv_tokens, limits.seqs, limits.chunk, limits.accepted
        deep, paced = costs.context / kv_tokens, self.admit_every
        clock, number, left = self._clock, self._number, self._left
        held, reserved, carry, late = self._held, self._reserved, self._carry, self._late
        full, load = self._full, self.load
        made, generated, spent, gaps = s.steps, s.generation_tokens, s.itl_sum, s.itl_count
        arrives = inbox[0].at if inbox else math.inf
        ends = running[0][0] if running else NEVER
        moved = False
        while t < until:
            while arrives <= t:
                queue.append(inbox.popleft())
                arrives = inbox[0].at if inbox else math.inf
            n = len(running)
            if queue and prefill is None and (paced or not full):
                first = queue[0]
                room = not n or reserved + first.prompt + first.output <= kv_tokens
                if self._may_enter(t) if paced else room and n < seqs:
                    prefill = queue.popleft()
                    left = first.computed or 1
                    held += first.prompt - first.computed
                    reserved += first.prompt + first.output
                else:
                    full = True
            cost = table[n] + deep * held
            chunk = 0
            if prefill is not None:
                if largest is None or left <= largest - n:
                    chunk, steps = left, 1
                else:
                    chunk = largest - n if largest > n else 1
                    steps = min(left // chunk, MOST_CHUNKS_AT_ONCE, ends - clock)
                depth = (prefill.prompt - left + chunk / 2) / kv_tokens
                cost += chunk * (costs.prompt + costs.attention * depth)
            elif n and ends - clock < MOST_STEPS_AT_ONCE:
                steps = ends - clock
            elif n:
                steps = MOST_STEPS_AT_ONCE
            else:
                if arrives < until:
                    t = arrives
                    continue
                carry = late = 0.0
                break
            cost *= slow
            if late:
                steps = 1
            elif steps > 1 and inbox and not full:
                to_next = int((arrives - t) / cost)
                if to_next < steps:
                    steps = to_next or 1
            need = steps * cost - carry
            if t + need > until:
                steps = int((until - t + carry) / cost)
                if steps < 1:
                    carry += until - t
                    break
                need = steps * cost - carry
            t += need
            moved = True
            if n:
                tokens = n * steps
                clock += steps
                held += tokens * accepted
                made += steps
                generated += tokens * accepted
                gaps += tokens
                spent += tokens * cost + n * late
                if cost + late >= LONG_GAP_SECONDS:
                    s.itl_gap += max(e for e in GAP_EDGES if e <= cost + late) * (n if late else tokens)
            carry = late = 0.0
            if prefill is not None:
                tokens = chunk * steps
                left -= tokens
                if n:
                    s.mixed_prefill += tokens
                held += tokens if left >= 0 else tokens + left
                if left <= 0:
                    done, prefill = prefill, None
                    s.prompt_tokens += done.prompt
                    s.prefix_queries += done.prompt
                    s.prefix_hits += done.prompt - done.computed
                    if not n:
                        made += 1
                    if done.canary and self._fails(done):
                        self.failed_canaries.append((done.canary, t))
                        s.failed += 1
                        load, full = load - 1, False
                        held, reserved = _without(done, held, reserved) if n else (0.0, 0.0)
                    else:
                        s.first_tokens += 1
                        generated += 1
                        held += 1
                        if done.output > 1:
                            number += 1
                            steps = round((done.output - 1) / accepted) or 1
                            heappush(running, (clock + steps, number, done))
                        else:  # one that wants no more than its first token is the next to leave
                            heappush(running, (clock, 0, done))
                            if done.canary:
                                self.answered.append((done.canary, t))
                        ends = running[0][0]
            while ends <= clock:
                gone = heappop(running)[2]
                ends = running[0][0] if running else NEVER
                load, full = load - 1, False
                if running or prefill is not None:
                    held = held - gone.prompt - gone.output
                    reserved = reserved - gone.prompt - gone.output
                    if held < 0.0 or reserved < 0.0:
                        held, reserved = max(0.0, held), max(0.0, reserved)
                else:
                    held = reserved = 0.0
                if (gone.fails or self.failing) and not gone.canary and self._fails(gone):
                    s.failed += 1
                else:
                    s.finished += 1
        self._prefill, self._left, self._clock, self._number = prefill, left, clock, number
        self._held, self._reserved = held, reserved
        self._carry, self._late, self._full, self.load = carry, late, full, load
        if moved:
            self.stepped_at = t
            s.steps, s.generation_tokens, s.itl_sum, s.itl_count = made, generated, spent, gaps
            s.running = float(len(running) + (prefill is not None))
            s.waiting = float(len(queue))
            s.kv_usage = min(1.0, held / kv_tokens)

    def _may_enter(self, t: float) -> bool:
        """Whether a scheduler that takes one at a time, with a pause between two, takes the next one now."""
        if self._running or t < self._admit_at:
            return False
        self._admit_at = t + self.admit_every
        return True

    def _fails(self, request: Request) -> bool:
        return request.fails or (self.failing > 0 and self._luck.random() < self.failing)


def _without(request: Request, held: float, reserved: float) -> tuple[float, float]:
    """Tokens held and reserved once `request`, which got no token out, has left."""
    held, reserved = held - request.prompt, reserved - request.prompt - request.output
    return max(0.0, held), max(0.0, reserved)
