"""The engine itself: continuous batching, chunked prefill, one pool of KV blocks, one token a step.

Pure: time is an argument, noise comes from a seeded generator. A step costs a few microseconds however many
requests run: a request is only touched when it is admitted, crosses into a new KV block, or ends.
"""

import math
import random
from collections import deque

from kintsugi.testing.engine.counters import RankCounters
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
        self.admission_limit: int | None = None
        self.blocks_lost = 0
        self._random = random.Random(seed)
        self.last_busy: tuple[int, int, float] | None = None
        self._keys = 0
        self._arrivals: list[Sequence] = []
        self._aborts: list[Sequence] = []
        self._waiting: deque[Sequence] = deque()
        self._running: dict[int, Sequence] = {}
        self._prefilling: dict[int, Sequence] = {}
        self._round = 0
        self._grow: dict[int, list[tuple[Sequence, int]]] = {}
        self._finish: dict[int, list[tuple[Sequence, int]]] = {}
        self._decodes = 0
        self._context = 0
        self._blocks = 0
        self._promised = 0
        self._hung = False
        self._step_end: float | None = None
        self._step_left = 0.0
        self._step_decodes = 0
        self._step_queries = 0
        self._step_hits = 0
        self._step_preemptions = 0
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
        return len(self._running) + len(self._waiting) + sum(not s.aborted for s in self._arrivals)

    @property
    def last_step_at(self) -> float:
        """When the last step ended; the start of the engine where none has."""
        return self._last_commit

    @property
    def block_waste(self) -> float:
        """Share of the token slots held by requests that are not written; 0 where none are held."""
        held = self._blocks * self.shape.block_size
        written = self._context + sum(s.context for s in self._prefilling.values())
        return 1.0 - written / held if held else 0.0

    @property
    def free_blocks(self) -> int:
        return self.shape.num_gpu_blocks - self.blocks_lost - self._blocks

    def produced(self, sequence: Sequence) -> int:
        """Tokens that the sequence has been given so far."""
        if sequence.phase is Phase.DECODE:
            return sequence.given + self._round - sequence.base_round
        return sequence.given

    # -- what a caller may do --------------------------------------------------------------------------------

    def submit(
        self,
        now: float,
        prompt_tokens: int,
        output_tokens: int,
        *,
        max_tokens: int | None = None,
        cached_tokens: int = 0,
    ) -> Sequence:
        """Hand in a request that will give `output_tokens`; fewer than `max_tokens` means it ends by `stop`.

        `cached_tokens` of the prompt are found in the prefix cache (at most all but one are used). Raises
        ValueError when the request can never fit.
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

    def fail(self, sequence: Sequence, now: float) -> None:
        """The request ends in an error of the engine: counted as such, its KV blocks free before the next step."""
        sequence.failed = True
        self.abort(sequence, now)

    def restrict(self, now: float, *, admission_limit: int | None, blocks_lost: int) -> None:
        """Admit nobody while `admission_limit` run (None = `max_num_seqs`), and lose `blocks_lost` KV blocks.

        The first is a scheduler fault; the second a leak: blocks that no request holds and nobody can have.
        """
        self.advance(now)
        self.admission_limit = admission_limit
        self.blocks_lost = max(0, min(blocks_lost, self.shape.num_gpu_blocks))
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
        if self._aborts:
            self._drop_aborted()
        if self._arrivals:
            for sequence in self._arrivals:
                if not sequence.aborted:
                    sequence.phase = Phase.WAITING
                    self._waiting.append(sequence)
            self._arrivals.clear()
        growing = self._grow.pop(self._round + 1, None)
        if growing:
            self._grow_blocks(growing)
        chunk, pairs = self._schedule_prefill(now) if self._prefilling or self._waiting else (0, 0.0)
        decodes = self._decodes
        if not decodes and not chunk:
            self._step_end = None
            self._set_gauges()
            return
        cost = self.cost
        seconds = (
            cost.base
            + cost.per_sequence * decodes
            + cost.per_prefill_token * chunk
            + cost.per_context_token * self._context
            + cost.per_attention_pair * pairs
        ) * self.step_factor
        if cost.noise_sigma:
            seconds *= math.exp(self._random.gauss(0.0, cost.noise_sigma))
        if cost.hiccups_per_hour and self._random.random() * 3600.0 < cost.hiccups_per_hour * seconds:
            seconds += self._random.random() * cost.hiccup_seconds
        self._step_decodes = decodes
        self._step_end = now + seconds

    def _commit(self, now: float) -> None:
        counters = self.counters
        self._round += 1
        decodes = self._step_decodes
        outputs = decodes
        if decodes:
            # Decoding requests all had their last token at the end of the step before this one.
            counters.inter_token_latency.observe(now - self._last_commit, decodes)
            self._context += decodes
        self._last_commit = now
        computed = 0
        if self._prefilling:
            for sequence in [s for s in self._prefilling.values() if s.prefill_left == 0]:
                computed += self._first_token(sequence, now)
                outputs += 1
        if self._step_queries:
            counters.prefix_queries += self._step_queries
            counters.prefix_hits += self._step_hits
            self._step_queries = self._step_hits = 0
        if self._step_preemptions:
            counters.preemptions += self._step_preemptions
            self._step_preemptions = 0
        counters.generation_tokens += outputs
        counters.busy_steps += 1
        if outputs:
            counters.iteration_tokens.observe(outputs + computed)
        ending = self._finish.pop(self._round, None)
        if ending:
            for sequence, stamp in ending:
                if sequence.stamp == stamp:
                    self._end(sequence, now)
        self._set_gauges()

    def _set_gauges(self) -> None:
        counters = self.counters
        counters.running = len(self._running)
        counters.waiting = len(self._waiting)
        counters.kv_usage = (self._blocks + self.blocks_lost) / self.shape.num_gpu_blocks
        if self._running or self._waiting:
            self.last_busy = (counters.running, counters.waiting, counters.kv_usage)

    # -- scheduling ------------------------------------------------------------------------------------------

    def _schedule_prefill(self, now: float) -> tuple[int, float]:
        """Give what the token budget leaves to prefills, oldest first; then admit. Tokens and token pairs."""
        shape = self.shape
        budget = shape.max_num_batched_tokens - self._decodes
        chunk = 0
        pairs = 0.0
        for sequence in self._prefilling.values():
            if budget <= 0:
                return chunk, pairs
            tokens, cost = self._feed(sequence, budget)
            chunk += tokens
            budget -= tokens
            pairs += cost
        limit = shape.max_num_seqs
        if self.admission_limit is not None:
            limit = min(limit, self.admission_limit)
        while self._waiting and len(self._running) < limit and budget > 0:
            sequence = self._waiting[0]
            # A resumed request computes its own output again, too.
            whole = sequence.prompt_tokens + sequence.given
            if not shape.chunked_prefill and whole - sequence.cached_tokens > budget and chunk:
                break
            need = -(-whole // shape.block_size)
            if need > self.free_blocks - self._promised:
                break
            self._waiting.popleft()
            self._admit(sequence, whole, need, now)
            tokens, cost = self._feed(sequence, budget if shape.chunked_prefill else whole)
            chunk += tokens
            budget -= tokens
            pairs += cost
        return chunk, pairs

    def _admit(self, sequence: Sequence, whole: int, need: int, now: float) -> None:
        sequence.phase = Phase.PREFILL
        sequence.resumed = sequence.given > 0
        if sequence.admitted_at is None:
            sequence.admitted_at = now
            if self.shape.prefix_caching:
                self._step_queries += sequence.prompt_tokens
                self._step_hits += sequence.cached_tokens
        elif sequence.preemptions:
            self._step_preemptions += 1  # counted when the victim comes back, as the real engine does
        sequence.context = sequence.cached_tokens
        sequence.prefill_left = whole - sequence.cached_tokens
        sequence.blocks = -(-sequence.context // self.shape.block_size)
        sequence.promised = need - sequence.blocks
        self._blocks += sequence.blocks
        self._promised += sequence.promised
        self._running[sequence.key] = sequence
        self._prefilling[sequence.key] = sequence

    def _feed(self, sequence: Sequence, budget: int) -> tuple[int, float]:
        tokens = min(sequence.prefill_left, budget)
        pairs = tokens * (sequence.context + 0.5 * tokens)
        sequence.prefill_left -= tokens
        sequence.context += tokens
        blocks = -(-sequence.context // self.shape.block_size) - sequence.blocks
        if blocks:
            sequence.blocks += blocks
            sequence.promised -= blocks
            self._blocks += blocks
            self._promised -= blocks
        return tokens, pairs

    def _first_token(self, sequence: Sequence, now: float) -> int:
        """The prefill is done and gives a token; prompt tokens computed are returned."""
        counters = self.counters
        del self._prefilling[sequence.key]
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
        left = sequence.output_tokens - sequence.given
        if left == 0:
            self._end(sequence, now)
            return computed
        sequence.phase = Phase.DECODE
        sequence.base_round = self._round
        self._decodes += 1
        self._context += sequence.context
        self._finish.setdefault(self._round + left, []).append((sequence, sequence.stamp))
        self._plan_growth(sequence)
        return computed

    def _plan_growth(self, sequence: Sequence) -> None:
        """Note the round in which the sequence's next token needs a block that it does not hold."""
        slots = sequence.blocks * self.shape.block_size - sequence.context
        rounds = sequence.base_round + slots + 1
        self._grow.setdefault(rounds, []).append((sequence, sequence.stamp))

    def _grow_blocks(self, growing: list[tuple[Sequence, int]]) -> None:
        for sequence, stamp in growing:
            while sequence.stamp == stamp and self.free_blocks - self._promised < 1:
                self._preempt(next(reversed(self._running.values())))
            if sequence.stamp == stamp:
                sequence.blocks += 1
                self._blocks += 1
                self._plan_growth(sequence)

    def _preempt(self, sequence: Sequence) -> None:
        """Throw the youngest out: its blocks are free, its tokens are computed again later."""
        self._leave(sequence)
        sequence.preemptions += 1
        sequence.phase = Phase.WAITING
        self._waiting.appendleft(sequence)

    def _leave(self, sequence: Sequence) -> None:
        """Take a running sequence out of every book; what it has given so far is kept."""
        if sequence.phase is Phase.DECODE:
            rounds = self._round - sequence.base_round
            sequence.given += rounds
            sequence.context += rounds
            sequence.base_round = self._round
            sequence.last_token_at = self._last_commit
            self._decodes -= 1
            self._context -= sequence.context
        self._running.pop(sequence.key, None)
        self._prefilling.pop(sequence.key, None)
        self._blocks -= sequence.blocks
        self._promised -= sequence.promised
        sequence.blocks = sequence.promised = sequence.prefill_left = 0
        sequence.stamp += 1

    def _drop_aborted(self) -> None:
        for sequence in self._aborts:
            if sequence.phase is Phase.FINISHED:
                continue
            if sequence.phase in (Phase.PREFILL, Phase.DECODE):
                self._leave(sequence)
            elif sequence.phase is Phase.WAITING:
                self._waiting.remove(sequence)
            # The real engine counts no aborted request as finished: only the first-token count has moved.
            sequence.phase = Phase.ABORTED
            sequence.finish_reason = "abort"
            sequence.finished_at = self.now
            if sequence.failed:
                sequence.finish_reason = "error"
                count_finished(self.counters, sequence, "error", self.now)
        self._aborts.clear()

    def _end(self, sequence: Sequence, now: float) -> None:
        self._leave(sequence)
        sequence.phase = Phase.FINISHED
        sequence.finished_at = now
        sequence.finish_reason = "stop" if sequence.given < sequence.max_tokens else "length"
        count_finished(self.counters, sequence, sequence.finish_reason, now)
