"""The engine itself, step by step: continuous batching as vLLM does it, one token per request and step.

Pure: time is an argument, noise comes from a seeded generator. A step costs a few microseconds.
"""

import math
import random

from kintsugi.testing.engine.counters import RankCounters
from kintsugi.testing.engine.scheduler import Batch, Scheduler
from kintsugi.testing.engine.sequence import Phase, Sequence, count_finished
from kintsugi.testing.engine.shape import EngineShape, StepCost


class EngineModel:
    """One engine rank. Submit and abort at any time, then `advance`; `wake_at` says when a step ends next."""

    def __init__(self, shape: EngineShape, cost: StepCost, *, seed: int = 0, now: float = 0.0) -> None:
        self.shape = shape
        self.cost = cost
        self.counters = RankCounters(shape.max_model_len)
        self.now = now
        self.step_factor = 1.0
        """Every step takes this many times as long (a throughput fault)."""
        self.last_busy: tuple[int, int, float] | None = None
        """Running, waiting and KV usage when something last ran or waited."""
        self._random = random.Random(seed)
        self._scheduler = Scheduler(shape)
        self._keys = 0
        self._arrivals: list[Sequence] = []
        self._aborts: list[Sequence] = []
        self._hung = False
        self._batch = Batch()
        self._step_end: float | None = None
        self._step_left = 0.0
        self._last_commit = now

    # -- what a caller may ask -------------------------------------------------------------------------------

    @property
    def hung(self) -> bool:
        return self._hung

    @property
    def wake_at(self) -> float | None:
        """When the step under way ends; None while idle or hung."""
        return None if self._hung else self._step_end

    @property
    def in_flight(self) -> int:
        """Requests inside, those that no gauge shows yet included."""
        arriving = sum(not sequence.aborted for sequence in self._arrivals)
        return len(self._scheduler.running) + len(self._scheduler.waiting) + arriving

    @property
    def last_step_at(self) -> float:
        """When the last step ended; the start of the engine where none has."""
        return self._last_commit

    @property
    def free_blocks(self) -> int:
        """KV blocks that nobody holds."""
        return self._scheduler.free_blocks

    @property
    def block_waste(self) -> float:
        """Share of the token slots held by requests that are not written; 0 where none are held."""
        return self._scheduler.block_waste

    @property
    def restrictions(self) -> tuple[int | None, int]:
        """The admission limit and the lost KV blocks, as `restrict` set them."""
        return self._scheduler.admission_limit, self._scheduler.blocks_lost

    def produced(self, sequence: Sequence) -> int:
        """Tokens that the sequence has been given so far."""
        return self._scheduler.produced(sequence)

    # -- what a caller may do --------------------------------------------------------------------------------

    def submit(
        self,
        now: float,
        prompt_tokens: int,
        output_tokens: int,
        *,
        max_tokens: int | None = None,
        cached_tokens: int = 0,
        fails: bool = False,
    ) -> Sequence:
        """Hand in a request that will give `output_tokens`; fewer than `max_tokens` means it ends by `stop`.

        `cached_tokens` of the prompt are found in the prefix cache (at most all but one are used). A request that
        `fails` ends by `error` instead. Raises ValueError when the request can never fit.
        """
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError(
                f"a request has at least one token each way, not {prompt_tokens} and {output_tokens}"
            )
        whole = prompt_tokens + output_tokens
        if whole > min(self.shape.max_model_len, self.shape.kv_tokens):
            raise ValueError(f"{whole} tokens do not fit into max_model_len and the KV pool")
        self.advance(now)
        self._keys += 1
        cached = max(0, min(cached_tokens, prompt_tokens - 1)) if self.shape.prefix_caching else 0
        sequence = Sequence(
            self._keys, prompt_tokens, output_tokens, max_tokens or output_tokens, cached, max(now, self.now)
        )
        sequence.fails = fails
        self._arrivals.append(sequence)
        self._start_if_idle(sequence.arrived_at)
        return sequence

    def abort(self, sequence: Sequence, now: float) -> None:
        """The client has gone: the request ends, and gives its KV blocks back, before the next step."""
        self.advance(now)
        if sequence.aborted or sequence.phase is Phase.FINISHED:
            return
        sequence.aborted = True
        self._aborts.append(sequence)
        self._start_if_idle(max(now, self.now))

    def restrict(self, now: float, *, admission_limit: int | None, blocks_lost: int) -> None:
        """Admit nobody while `admission_limit` run (None = `max_num_seqs`), and lose `blocks_lost` KV blocks.

        The first is a scheduler fault; the second a leak: blocks that no request holds and nobody can have.
        """
        self.advance(now)
        self._scheduler.admission_limit = admission_limit
        self._scheduler.blocks_lost = max(0, min(blocks_lost, self.shape.num_gpu_blocks))
        self._start_if_idle(self.now)
        if not self._hung:
            self._set_gauges()

    def hang(self, now: float) -> None:
        """Stop in the middle of whatever runs. Nothing moves, and nothing arrives, until `resume`."""
        if not self._hung:
            self.advance(now)
            self._hung = True
            if self._step_end is not None:
                self._step_left = max(0.0, self._step_end - now)

    def resume(self, now: float) -> None:
        """Go on where `hang` stopped: the step under way is finished first."""
        if self._hung:
            self._hung = False
            self.now = max(self.now, now)
            if self._step_end is not None:
                self._step_end = self.now + self._step_left
            else:
                self._start_step(self.now)

    def advance(self, to: float) -> None:
        """Run every step that ends at or before `to`."""
        if not self._hung:
            end = self._step_end
            while end is not None and end <= to:
                self.now = end
                self._commit(end)
                self._start_step(end)
                end = self._step_end
        self.now = max(self.now, to)

    # -- one step --------------------------------------------------------------------------------------------

    def _start_if_idle(self, now: float) -> None:
        if self._step_end is None and not self._hung:
            self.now = now
            self._start_step(now)

    def _start_step(self, now: float) -> None:
        scheduler = self._scheduler
        if self._aborts:
            self._drop_aborted()
        if self._arrivals:
            for sequence in self._arrivals:
                if not sequence.aborted:
                    sequence.phase = Phase.WAITING
                    scheduler.waiting.append(sequence)
            self._arrivals.clear()
        batch = scheduler.plan(now)
        if not batch.decodes and not batch.prefill_tokens:
            self._step_end = None
            self._set_gauges()
            return
        cost = self.cost
        seconds = self.step_factor * (
            cost.mean(batch.decodes, batch.prefill_tokens, scheduler.context)
            + cost.per_attention_pair * batch.attention_pairs
        )
        if cost.noise_sigma:
            seconds *= math.exp(self._random.gauss(0.0, cost.noise_sigma))
        if cost.hiccups_per_hour and self._random.random() * 3600.0 < cost.hiccups_per_hour * seconds:
            seconds += self._random.random() * cost.hiccup_seconds
        self._batch = batch
        self._step_end = now + seconds

    def _commit(self, now: float) -> None:
        counters = self.counters
        scheduler = self._scheduler
        batch = self._batch
        outputs = batch.decodes
        if outputs:
            # Decoding requests all had their last token at the end of the step before this one.
            counters.inter_token_latency.observe(now - self._last_commit, outputs)
        self._last_commit = now
        computed = 0
        for sequence in scheduler.complete(batch.decodes):
            computed += self._first_token(sequence, now)
            outputs += 1
        if batch.prefix_queries:
            counters.prefix_queries += batch.prefix_queries
            counters.prefix_hits += batch.prefix_hits
        # Counted when the victims come back, as the real engine does, not when they are thrown out.
        counters.preemptions += batch.resumed
        counters.generation_tokens += outputs
        counters.busy_steps += 1
        if outputs:
            counters.iteration_tokens.observe(outputs + computed)
        for sequence in scheduler.ending():
            self._end(sequence, now)
        self._set_gauges()

    def _first_token(self, sequence: Sequence, now: float) -> int:
        """The prefill is done and gives a token; prompt tokens computed are returned."""
        counters = self.counters
        computed = 0
        if sequence.resumed:
            counters.inter_token_latency.observe(now - (sequence.last_token_at or now))
        else:
            sequence.first_token_at = now
            computed = sequence.prompt_tokens - sequence.cached_tokens
            counters.time_to_first_token.observe(now - sequence.arrived_at)
            counters.prompt_tokens += sequence.prompt_tokens
            counters.prompt_tokens_cached += sequence.cached_tokens
        sequence.given += 1
        sequence.last_token_at = now
        if sequence.given == sequence.output_tokens:
            self._end(sequence, now)
        else:
            self._scheduler.decode(sequence)
        return computed

    def _drop_aborted(self) -> None:
        for sequence in self._aborts:
            if sequence.phase is Phase.FINISHED:
                continue
            if sequence.phase is not Phase.ARRIVING:
                self._scheduler.leave(sequence)
            # The real engine counts no aborted request as finished: only the first-token count has moved.
            sequence.phase = Phase.ABORTED
            sequence.finish_reason = "abort"
            sequence.finished_at = self.now
        self._aborts.clear()

    def _end(self, sequence: Sequence, now: float) -> None:
        self._scheduler.leave(sequence)
        sequence.phase = Phase.FINISHED
        sequence.finished_at = now
        if sequence.fails:
            sequence.finish_reason = "error"
        else:
            sequence.finish_reason = "stop" if sequence.given < sequence.max_tokens else "length"
        count_finished(self.counters, sequence, sequence.finish_reason, now)

    def _set_gauges(self) -> None:
        counters = self.counters
        scheduler = self._scheduler
        counters.running = len(scheduler.running)
        counters.waiting = len(scheduler.waiting)
        counters.kv_usage = scheduler.usage
        if counters.running or counters.waiting:
            self.last_busy = (counters.running, counters.waiting, counters.kv_usage)
