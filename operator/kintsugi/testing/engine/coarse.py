"""Traffic in closed form: the counters of an engine move as under steady load, without requests or steps.

For tests of scale: advancing a thousand engines by five seconds takes milliseconds. What it gives up: no
preemption, a queue only above capacity, and every step of an interval is equally long. Real requests (canaries)
can be submitted beside it and run as in `EngineModel`.
"""

import math
import random
from dataclasses import dataclass
from typing import Final

from kintsugi.testing.engine.model import EngineModel
from kintsugi.testing.engine.shape import EngineShape, StepCost

_ROUNDS: Final = 60
"""Rounds of the fixed-point search; it converges in about ten, and slowly only near saturation."""


@dataclass(frozen=True, slots=True)
class CoarseLoad:
    """Steady traffic: requests a second and their mean size in tokens."""

    requests_per_second: float = 1.0
    prompt_tokens: int = 400
    output_tokens: int = 60
    cached_share: float = 0.0
    """Share of prompt tokens found in the prefix cache, 0 to 1."""

    def __post_init__(self) -> None:
        if self.requests_per_second < 0 or self.prompt_tokens < 1 or self.output_tokens < 2:
            raise ValueError(f"a load needs a rate >= 0, a prompt >= 1 and an output >= 2 tokens: {self}")
        if not 0.0 <= self.cached_share <= 1.0:
            raise ValueError(f"cached_share must be from 0 to 1, not {self.cached_share}")


@dataclass(frozen=True, slots=True)
class Equilibrium:
    """What a load settles to: mean step seconds, mean running, share of time busy, requests served a second."""

    step_seconds: float
    running: float
    busy: float
    served: float


def equilibrium(load: CoarseLoad, cost: StepCost, slots: int, factor: float) -> Equilibrium:
    """Little's law and the step cost, solved together; `slots` requests at most run, steps take `factor` times."""
    computed = load.prompt_tokens * (1.0 - load.cached_share)
    context = load.prompt_tokens + load.output_tokens / 2

    def step(decodes: float, prefill: float) -> float:
        return factor * cost.mean(decodes, prefill, decodes * context)

    rate = load.requests_per_second
    if rate == 0 or slots == 0:
        return Equilibrium(step(1, 0), 0.0, 0.0, 0.0)
    # With all slots taken, each step ends slots/output requests and prefills as many prompts.
    full = step(slots, slots / load.output_tokens * computed)
    capacity = slots / (load.output_tokens * full)
    if rate >= capacity:
        return Equilibrium(full, float(slots), 1.0, capacity)
    running = rate * load.output_tokens * step(1, 0)
    seconds = step(1, 0)
    busy = 1.0
    for _ in range(_ROUNDS):
        busy = 1.0 - math.exp(-running)
        seconds = step(running / busy, rate * seconds / busy * computed)
        running = min(float(slots), rate * load.output_tokens * seconds)
    return Equilibrium(seconds, running, busy, rate)


class CoarseModel(EngineModel):
    """One rank under a `CoarseLoad`, which may be changed at any time."""

    def __init__(
        self, shape: EngineShape, cost: StepCost, load: CoarseLoad, *, seed: int = 0, now: float = 0.0
    ) -> None:
        super().__init__(shape, cost, seed=seed, now=now)
        self.load = load
        self._noise = random.Random(seed ^ 0x5EED)
        self._settled: tuple[tuple[CoarseLoad, int, float], Equilibrium] | None = None
        self._queue = 0.0
        self._spare_steps = 0.0
        self._spare_requests = 0.0
        self._loaded_until = now
        self._load_running = 0

    def advance(self, to: float) -> None:
        """Run the steps of real requests, and count what the load did meanwhile."""
        super().advance(to)
        seconds = to - self._loaded_until
        if seconds <= 0:
            return
        self._loaded_until = to
        if self.hung:
            return
        now = self._settle()
        queue_drains = self._queue > 0 and now.served < self._capacity().served
        served = self._capacity() if queue_drains else now
        self._queue = max(0.0, self._queue + (self.load.requests_per_second - served.served) * seconds)
        self._count(served, seconds, to)
        self._set_gauges()

    def resume(self, now: float) -> None:
        if self.hung:
            self._loaded_until = max(self._loaded_until, now)
        super().resume(now)

    def _slots(self) -> int:
        limit = self.shape.max_num_seqs
        admitted, _ = self.restrictions
        return limit if admitted is None else min(limit, admitted)

    def _settle(self) -> Equilibrium:
        key = (self.load, self._slots(), self.step_factor)
        if self._settled is None or self._settled[0] != key:
            self._settled = (key, equilibrium(self.load, self.cost, key[1], key[2]))
        return self._settled[1]

    def _capacity(self) -> Equilibrium:
        flood = CoarseLoad(1e9, self.load.prompt_tokens, self.load.output_tokens, self.load.cached_share)
        return equilibrium(flood, self.cost, self._slots(), self.step_factor)

    def _count(self, state: Equilibrium, seconds: float, now: float) -> None:
        counters = self.counters
        requests = state.served * seconds
        if requests:
            requests = max(0.0, self._noise.gauss(requests, math.sqrt(requests)))
        self._spare_requests += requests
        whole = int(self._spare_requests)
        self._spare_requests -= whole
        self._spare_steps += state.busy * seconds / state.step_seconds
        steps = int(self._spare_steps)
        self._spare_steps -= steps
        self._load_running = round(max(0.0, self._noise.gauss(state.running, math.sqrt(state.running) / 2)))
        self._load_running = min(self._load_running, self._slots())
        if steps:
            counters.busy_steps += steps
            self._last_commit = now
            mean = state.step_seconds * math.exp(
                self._noise.gauss(0, self.cost.noise_sigma) / math.sqrt(steps)
            )
            self._count_tokens(whole, steps, mean)

    def _count_tokens(self, requests: int, steps: int, step_seconds: float) -> None:
        counters = self.counters
        load = self.load
        decodes = requests * (load.output_tokens - 1)
        cached = int(load.prompt_tokens * load.cached_share)
        computed = load.prompt_tokens - cached
        counters.generation_tokens += requests * load.output_tokens
        counters.prompt_tokens += requests * load.prompt_tokens
        counters.prompt_tokens_cached += requests * cached
        counters.prefix_queries += requests * load.prompt_tokens
        counters.prefix_hits += requests * cached
        counters.finished["length"] += requests
        tokens = requests * (load.output_tokens + computed)
        counters.iteration_tokens.observe(tokens / steps, steps)
        if not requests:
            return
        decode = (load.output_tokens - 1) * step_seconds
        waited = self._queue / max(load.requests_per_second, 1e-9)
        counters.inter_token_latency.observe(step_seconds, decodes)
        counters.time_to_first_token.observe(step_seconds + waited, requests)
        counters.time_per_output_token.observe(step_seconds, requests)
        counters.e2e_latency.observe(decode + step_seconds + waited, requests)
        counters.queue_time.observe(waited, requests)
        counters.prefill_time.observe(step_seconds, requests)
        counters.decode_time.observe(decode, requests)
        counters.inference_time.observe(decode + step_seconds, requests)
        counters.request_prompt_tokens.observe(load.prompt_tokens, requests)
        counters.request_generation_tokens.observe(load.output_tokens, requests)
        counters.request_max_num_generation_tokens.observe(load.output_tokens, requests)
        counters.request_params_max_tokens.observe(load.output_tokens, requests)
        counters.request_params_n.observe(1, requests)
        counters.request_preemptions.observe(0, requests)
        counters.prefill_kv_computed.observe(computed, requests)

    def _set_gauges(self) -> None:
        super()._set_gauges()
        counters = self.counters
        counters.running += self._load_running
        counters.waiting += int(self._queue)
        tokens = self._load_running * (self.load.prompt_tokens + self.load.output_tokens / 2)
        counters.kv_usage = min(1.0, counters.kv_usage + tokens / self.shape.kv_tokens)
        if counters.running or counters.waiting:
            self.last_busy = (counters.running, counters.waiting, counters.kv_usage)
