"""Which requests run: admission, chunked prefill, KV blocks, preemption. No time and no counters.

A running request is only touched when it is admitted, needs another KV block, or ends: `round` counts steps, and
where a decoding request stands follows from the round in which it began. So a step costs the same for one running
request as for sixty.
"""

from collections import deque
from dataclasses import dataclass

from kintsugi.testing.engine.sequence import Phase, Sequence
from kintsugi.testing.engine.shape import EngineShape


@dataclass(slots=True)
class Batch:
    """What the next step works on."""

    decodes: int = 0
    prefill_tokens: int = 0
    attention_pairs: float = 0.0
    """Prefill tokens times the context each of them attends to."""
    prefix_queries: int = 0
    prefix_hits: int = 0
    resumed: int = 0
    """Requests preempted earlier that are taken up again."""


class Scheduler:
    """The queue, the running requests and the pool of KV blocks of one rank."""

    def __init__(self, shape: EngineShape) -> None:
        self.shape = shape
        self.waiting: deque[Sequence] = deque()
        self.running: dict[int, Sequence] = {}
        """In order of admission: the last is the youngest."""
        self.round = 0
        self.decodes = 0
        self.context = 0
        """Tokens in the KV cache of all decoding requests."""
        self.admission_limit: int | None = None
        self.blocks_lost = 0
        self._prefilling: dict[int, Sequence] = {}
        self._blocks = 0
        self._promised = 0
        self._grow: dict[int, list[tuple[Sequence, int]]] = {}
        self._finish: dict[int, list[tuple[Sequence, int]]] = {}

    @property
    def free_blocks(self) -> int:
        """KV blocks that nobody holds; some of them may be promised to prefills under way."""
        return self.shape.num_gpu_blocks - self.blocks_lost - self._blocks

    @property
    def usage(self) -> float:
        """Share of the KV blocks that is not free."""
        return (self._blocks + self.blocks_lost) / self.shape.num_gpu_blocks

    @property
    def block_waste(self) -> float:
        """Share of the token slots held by requests that are not written; 0 where none are held."""
        held = self._blocks * self.shape.block_size
        written = self.context + sum(s.context for s in self._prefilling.values())
        return 1.0 - written / held if held else 0.0

    def produced(self, sequence: Sequence) -> int:
        """Tokens that the sequence has been given so far."""
        if sequence.phase is Phase.DECODE:
            return sequence.given + self.round - sequence.base_round
        return sequence.given

    # -- before a step ---------------------------------------------------------------------------------------

    def plan(self, now: float) -> Batch:
        """Decodes first, then prefills under way, then admission, within the token budget."""
        growing = self._grow.pop(self.round + 1, None)
        if growing:
            self._grow_blocks(growing, now)
        batch = Batch(self.decodes)
        if self._prefilling or self.waiting:
            self._prefill(batch, now)
        return batch

    def _prefill(self, batch: Batch, now: float) -> None:
        shape = self.shape
        budget = shape.max_num_batched_tokens - self.decodes
        for sequence in self._prefilling.values():
            if budget <= 0:
                return
            budget -= self._feed(sequence, budget, batch)
        limit = shape.max_num_seqs
        if self.admission_limit is not None:
            limit = min(limit, self.admission_limit)
        while self.waiting and len(self.running) < limit and budget > 0:
            sequence = self.waiting[0]
            # A resumed request computes its own output again, too.
            whole = sequence.prompt_tokens + sequence.given
            if not shape.chunked_prefill and whole - sequence.cached_tokens > budget and batch.prefill_tokens:
                return
            need = -(-whole // shape.block_size)
            if need > self.free_blocks - self._promised:
                return
            self.waiting.popleft()
            self._admit(sequence, whole, need, now, batch)
            budget -= self._feed(sequence, budget if shape.chunked_prefill else whole, batch)

    def _admit(self, sequence: Sequence, whole: int, need: int, now: float, batch: Batch) -> None:
        sequence.phase = Phase.PREFILL
        sequence.resumed = sequence.given > 0
        if sequence.admitted_at is None:
            sequence.admitted_at = now
            if self.shape.prefix_caching:
                batch.prefix_queries += sequence.prompt_tokens
                batch.prefix_hits += sequence.cached_tokens
        else:
            batch.resumed += 1
        sequence.context = sequence.cached_tokens
        sequence.prefill_left = whole - sequence.cached_tokens
        sequence.blocks = -(-sequence.context // self.shape.block_size)
        sequence.promised = need - sequence.blocks
        self._blocks += sequence.blocks
        self._promised += sequence.promised
        self.running[sequence.key] = sequence
        self._prefilling[sequence.key] = sequence

    def _feed(self, sequence: Sequence, budget: int, batch: Batch) -> int:
        tokens = min(sequence.prefill_left, budget)
        batch.prefill_tokens += tokens
        batch.attention_pairs += tokens * (sequence.context + 0.5 * tokens)
        sequence.prefill_left -= tokens
        sequence.context += tokens
        blocks = -(-sequence.context // self.shape.block_size) - sequence.blocks
        if blocks:
            sequence.blocks += blocks
            sequence.promised -= blocks
            self._blocks += blocks
            self._promised -= blocks
        return tokens

    def _grow_blocks(self, growing: list[tuple[Sequence, int]], now: float) -> None:
        for sequence, stamp in growing:
            while sequence.stamp == stamp and self.free_blocks - self._promised < 1:
                self._preempt(next(reversed(self.running.values())), now)
            if sequence.stamp == stamp:
                sequence.blocks += 1
                self._blocks += 1
                self._plan_growth(sequence)

    def _plan_growth(self, sequence: Sequence) -> None:
        """Note the round in which the sequence's next token needs a block that it does not hold."""
        slots = sequence.blocks * self.shape.block_size - sequence.context
        self._grow.setdefault(sequence.base_round + slots + 1, []).append((sequence, sequence.stamp))

    def _preempt(self, sequence: Sequence, now: float) -> None:
        """Throw the youngest out: its blocks are free, its tokens are computed again later."""
        if sequence.phase is Phase.DECODE:
            sequence.last_token_at = now
        self.leave(sequence)
        sequence.preemptions += 1
        sequence.phase = Phase.WAITING
        self.waiting.appendleft(sequence)

    # -- after a step ----------------------------------------------------------------------------------------

    def complete(self, decodes: int) -> list[Sequence]:
        """A step with so many decodes is done; the sequences whose prefill is complete, oldest first."""
        self.round += 1
        self.context += decodes
        if not self._prefilling:
            return []
        return [sequence for sequence in self._prefilling.values() if sequence.prefill_left == 0]

    def decode(self, sequence: Sequence) -> None:
        """From the next step on the sequence, whose prefill is complete, gives a token each step."""
        del self._prefilling[sequence.key]
        sequence.phase = Phase.DECODE
        sequence.base_round = self.round
        self.decodes += 1
        self.context += sequence.context
        ends = self.round + sequence.output_tokens - sequence.given
        self._finish.setdefault(ends, []).append((sequence, sequence.stamp))
        self._plan_growth(sequence)

    def ending(self) -> list[Sequence]:
        """The decoding sequences that had their last token in the step just done."""
        planned = self._finish.pop(self.round, None)
        return [sequence for sequence, stamp in planned if sequence.stamp == stamp] if planned else []

    def leave(self, sequence: Sequence) -> None:
        """Take a sequence out of the batch or the queue; what it has been given so far is kept."""
        if sequence.phase is Phase.WAITING:
            self.waiting.remove(sequence)
            return
        if sequence.phase is Phase.DECODE:
            rounds = self.round - sequence.base_round
            sequence.given += rounds
            sequence.context += rounds
            self.decodes -= 1
            self.context -= sequence.context
        self.running.pop(sequence.key, None)
        self._prefilling.pop(sequence.key, None)
        self._blocks -= sequence.blocks
        self._promised -= sequence.promised
        sequence.blocks = sequence.promised = sequence.prefill_left = 0
        sequence.stamp += 1
