"""`collapsed`: a scheduler that lets hardly anybody in though slots and KV cache are free (slow paper §4).

The numbers of a page only make a suspect; three canaries of ours that wait for a minute each convince. Where nobody at
all is admitted, or no step is made, `stalled` speaks. Throughput is never looked at: a short queue explains that too.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from kintsugi.core.detect.cost_model import USABLE_SAMPLES, CostModel
from kintsugi.core.detect.stalled import RankClock, has_room
from kintsugi.core.sample import RankSample, Sample
from kintsugi.core.snapshot import CanaryOutcome, CanaryResult
from kintsugi.core.times import Times

LEAST_QUEUE: Final = 1.0
"""Requests that wait for capacity, on every page (slow §4)."""
LEAST_MEAN_QUEUE: Final = 2.0
"""The same on average over the window (slow §4)."""
STANDING: Final = 0.8
"""The second half's mean queue against the first's: a queue that shrinks is being served (slow §4)."""
FEW: Final = 0.25
"""Share of the engine's slots up to which few run (slow §4)."""
MOST_KV: Final = 0.5
"""KV usage above which a prompt may lack room for reasons that no page shows (slow §4)."""
MOST_PREFILL: Final = 0.2
"""Share of the time spent in prefills that explains no queue (slow §4: 0.3 was as clean there, 0.5 gave 26 false
verdicts in 780 hours)."""
MOST_COMPUTED: Final = 256.0
"""Computed prompt tokens a step from which on prefills explain a queue, whatever the model of costs says they take: where
nearly all steps carry a chunk, it can't tell what a chunk costs (chosen here: an eighth of vLLM's smallest default of
`--max-num-batched-tokens`; a rank that lets in one prompt of 16,000 tokens in 35 s stays below it while its steps take less
than half a second)."""
MOST_RISE: Final = 0.02
"""By how much the lowest KV usage of the window's last quarter may lie above the highest of its first. More is a prefill
under way: a giant prompt is counted only when its prefill ends, and others may step beside it, so that the share above
misses it. What requests hold while they come and go rises and falls, and does not lie wholly above (chosen here: a
million tokens fill far more; a bar on any rise missed 6 of 7 simulated faults)."""
KNOWN_SHARE: Final = 0.6
"""Share of the window's pages that must be there (slow §4)."""
CANARIES: Final = 3
"""Canaries that must wait in vain (slow §4)."""
_PREFILL: Final = 2
"""Place of the prefill term in the cost model's features."""
CANARY_PROMPT_TOKENS: Final = 4.0


class Row(NamedTuple):
    """One page of one rank that shows a queue without a reason. Own canaries are taken off."""

    mono: float
    queue: float
    kv_usage: float
    steps: float
    computed: float
    """Prompt tokens that were not found in the cache, of prefills that ended."""


@dataclass(slots=True)
class Ask:
    """One canary to a starved rank. `outcome` is None while it is open; times in monotonic seconds."""

    id: str
    sent: float
    outcome: CanaryOutcome | None = None
    ended: float | None = None

    def in_vain(self, mono: float, times: Times) -> bool:
        """It waited for its whole time without an answer; a later answer doesn't undo that."""
        until = mono if self.ended is None else self.ended
        return until - self.sent >= times.starved_canary


@dataclass(slots=True)
class RankQueue:
    """What is known of one rank's queue."""

    rows: deque[Row] = field(default_factory=deque)
    prefill: float | None = None
    """Share of the window spent in prefills, 0 to 1; None where the cost of a prefill is not known."""
    starved: bool = False
    """The pages of a whole window say so."""
    since: float | None = None
    """Epoch seconds of when the window began, for people."""
    asks: list[Ask] = field(default_factory=list)
    retry_at: float = 0.0
    """Not before this moment is asked again a rank whose last canary was no evidence."""
    rising: bool = False
    """KV usage rose from the page before to the newest while no step was made: a prefill is under way."""
    covered: bool = False
    """Nobody at all was admitted for so long that `stalled` acts on it: one verdict is enough."""
    sick: bool = False
    relapsed: bool = False
    """It was sick before, and well when nobody asked much of it: prompt answers prove nothing any more."""

    def waited(self, mono: float, times: Times) -> int:
        """Canaries that waited in vain."""
        return sum(ask.in_vain(mono, times) for ask in self.asks)

    @property
    def unserved(self) -> bool:
        """None of the canaries was answered at all, so far."""
        return all(ask.outcome in (None, CanaryOutcome.ABANDONED) for ask in self.asks)

    def drop(self) -> None:
        """The pages explain the queue, or there is none."""
        self.rows.clear()
        self.prefill, self.starved = None, False
        if not self.sick:
            self.asks, self.since = [], None


@dataclass(slots=True)
class QueueState:
    """The queues of one process, by rank. `shared`: siblings show the same, so the cause is not this engine."""

    ranks: dict[str, RankQueue] = field(default_factory=dict)
    shared: bool = False
    alone: bool = False
    """The only instance of its pool: there is nobody to compare it with."""
    cleared: bool = False
    """It was sick, and is positively well."""

    def forget(self) -> None:
        """What was measured can't be trusted: every window starts again; a verdict stands until it is refuted."""
        for queue in self.ranks.values():
            queue.drop()

    @property
    def starved(self) -> bool:
        return any(queue.starved for queue in self.ranks.values())

    @property
    def sick(self) -> bool:
        return any(queue.sick for queue in self.ranks.values())


class Beside(NamedTuple):
    """What one look at a process's queues needs to know besides its page. `now` in epoch seconds, for people."""

    clocks: Mapping[str, RankClock]
    others_open: int
    """Canaries of other kinds that are open, whatever their rank."""
    max_num_seqs: int | None
    model: CostModel | None
    times: Times
    now: float


@dataclass(slots=True)
class Queueing:
    """One process as one pass sees it. `judged`: warm, awake and freshly read."""

    uid: str
    pool: str
    state: QueueState
    judged: bool


def see_queue(state: QueueState, before: Sample | None, after: Sample, beside: Beside) -> None:
    """Take in one readable page. A rank that never had a queue costs one comparison."""
    for rank in after.ranks:
        queue = state.ranks.get(rank.rank)
        if queue is None:
            if not rank.waiting:
                continue
            queue = state.ranks[rank.rank] = RankQueue()
        past = before.rank(rank.rank) if before is not None else None
        sick = queue.sick
        _see_rank(queue, past, rank, after, beside)
        state.cleared = state.cleared or (sick and not queue.sick)
        _weigh(queue, beside)


def _see_rank(
    queue: RankQueue, past: RankSample | None, rank: RankSample, page: Sample, beside: Beside
) -> None:
    waiting, running, usage = rank.waiting, rank.running, rank.kv_usage
    steps, prompt = rank.steps, rank.prompt_tokens
    if waiting is None or running is None or usage is None or steps is None or prompt is None:
        return
    times, clock = beside.times, beside.clocks.get(rank.rank)
    ours, answered = beside.others_open + sum([ask.outcome is None for ask in queue.asks]), 0
    if clock is not None:
        ours += clock.open()
        ours += clock.admit_ping is not None and clock.admit_ping.outcome is None
        answered, queue.covered = clock.answered, clock.admission_blocked
    length = waiting - (rank.deferred or 0.0) - ours
    many = 1.0 if beside.max_num_seqs is None else max(1.0, FEW * beside.max_num_seqs)
    if running > many + ours:
        queue.sick, queue.relapsed, queue.asks = False, False, []
    explained = length < LEAST_QUEUE or running > many
    explained = explained or usage > MOST_KV or not has_room(rank, page.max_concurrency)
    rose = False
    if past is not None and past.kv_usage is not None and past.steps is not None:
        # Once is the prefill of whoever was let in a moment ago, which `prefill` counts; twice is a long one.
        rose = usage > past.kv_usage and steps == past.steps
        explained = explained or (rose and queue.rising)
    queue.rising = rose
    if explained or (queue.rows and page.mono - queue.rows[-1].mono > times.readable_gap):
        queue.drop()
    if explained:
        return
    computed = prompt - (rank.prefix_hits or 0.0) - CANARY_PROMPT_TOKENS * answered
    queue.rows.append(Row(page.mono, length, usage, steps - answered, computed))
    reach = times.starved_window + times.scrape_interval / 2
    while queue.rows[0].mono < page.mono - reach:
        queue.rows.popleft()


def _weigh(queue: RankQueue, beside: Beside) -> None:
    rows, times = queue.rows, beside.times
    queue.starved = False
    if len(rows) < 2:
        return
    first, last = rows[0], rows[-1]
    span = last.mono - first.mono
    needed = KNOWN_SHARE * (times.starved_window / times.scrape_interval + 1)
    if span < times.starved_window - times.scrape_interval / 2 or len(rows) < needed:
        return
    queue.prefill = _prefill_share(last.computed - first.computed, span, beside.model)
    half = len(rows) // 2
    lengths = [row.queue for row in rows]
    early = sum(islice(lengths, half)) / half
    late = sum(islice(lengths, half, None)) / (len(rows) - half)
    queue.starved = (
        last.steps > first.steps
        and last.computed - first.computed < MOST_COMPUTED * (last.steps - first.steps)
        and sum(lengths) / len(rows) >= LEAST_MEAN_QUEUE
        and late >= STANDING * early
        and _rise(rows) <= MOST_RISE
        and queue.prefill is not None
        and queue.prefill < MOST_PREFILL
    )
    if queue.starved and queue.since is None:
        queue.since = beside.now - span
    elif not queue.starved and not queue.sick:
        queue.since, queue.asks = None, []


def _prefill_share(computed: float, seconds: float, model: CostModel | None) -> float | None:
    """The share of `seconds` that `computed` prompt tokens cost; None where the model can't be asked yet."""
    if computed <= 0:
        return 0.0
    if model is None or model.samples < USABLE_SAMPLES or model.solved_at is None:
        return None
    return model.theta[_PREFILL] * computed / seconds


def _rise(rows: Sequence[Row]) -> float:
    """By how much the last quarter's KV usage lies wholly above the first's; below 0 where it does not."""
    quarter = max(1, len(rows) // 4)
    early = max(row.kv_usage for row in islice(rows, quarter))
    return min(row.kv_usage for row in islice(reversed(rows), quarter)) - early


def hear_asks(state: QueueState, results: Iterable[CanaryResult], times: Times) -> None:
    """Take in canaries that ended. One that was refused, failed or never connected says nothing, and is sent again."""
    for result in results:
        queue = state.ranks.get(result.canary.rank)
        ask = next((a for a in queue.asks if a.id == result.canary.id), None) if queue is not None else None
        if queue is None or ask is None:
            continue
        if result.outcome in (CanaryOutcome.ANSWERED, CanaryOutcome.ABANDONED):
            ask.outcome, ask.ended = result.outcome, result.mono
        else:
            queue.asks.remove(ask)
            queue.retry_at = result.mono + times.starved_canary


def queues_pass(entries: Iterable[Queueing], pools: Mapping[str, int], mono: float, times: Times) -> None:
    """Compare with siblings, and convict. `pools`: instances that each pool has."""
    by_pool: dict[str, list[Queueing]] = {}
    for entry in entries:
        if entry.state.ranks:
            by_pool.setdefault(entry.pool, []).append(entry)
    for name, pool in by_pool.items():
        starved = {entry.uid for entry in pool if entry.judged and entry.state.starved}
        for entry in pool:
            entry.state.shared = bool(starved - {entry.uid})
            entry.state.alone = pools.get(name, 1) <= 1
            for queue in entry.state.ranks.values():
                if queue.sick or queue.asks:
                    _convict(entry.state, queue, entry.judged, mono, times)


def _convict(state: QueueState, queue: RankQueue, judged: bool, mono: float, times: Times) -> None:
    prompt = [a for a in queue.asks if a.outcome is CanaryOutcome.ANSWERED and not a.in_vain(mono, times)]
    if queue.sick:
        if state.shared:
            queue.sick = False
        elif not queue.relapsed and len(prompt) >= CANARIES:
            queue.sick, queue.relapsed, queue.asks = False, True, []
            state.cleared = True
        return
    if prompt:
        queue.drop()
        return
    certain = not state.shared and (not state.alone or queue.unserved)
    if judged and queue.starved and certain and not queue.covered and queue.waited(mono, times) >= CANARIES:
        queue.sick, state.cleared = True, False
        queue.asks = queue.asks[-CANARIES:]


def ask_due(queue: RankQueue, mono: float, times: Times) -> bool:
    """Whether a canary goes out now: three a minute apart to a starved rank, and one a minute to one that is sick."""
    if mono < queue.retry_at or (queue.asks and mono - queue.asks[-1].sent < times.starved_canary):
        return False
    if queue.sick:
        queue.asks = queue.asks[-CANARIES:]
        return all(ask.outcome is not None for ask in queue.asks)
    return queue.starved and len(queue.asks) < CANARIES
