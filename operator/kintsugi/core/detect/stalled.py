"""`stalled`: an engine that has work and makes no step (hang paper §1).

One clock per rank. Time counts only between two readable pages with equal counters; only canaries of ours, sent straight
to the engine, turn it into a verdict; any step or answer clears it. Nothing is learnt, so nothing is lost at a restart.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kintsugi.core.frozen import frozen
from kintsugi.core.sample import RankSample, Sample
from kintsugi.core.snapshot import CanaryOutcome, CanaryResult, Failed, Failure
from kintsugi.core.times import Times

CANARIES_NEEDED: Final = 3
"""Unanswered canaries of one flat span that a verdict needs (hang §1.3)."""
STALE_PAGES: Final = 2
"""Pages with flat counters after an answered canary that prove the counters wrong."""
SLOWEST_PREFILL: Final = 1_000.0
"""Prompt tokens a second that every engine is taken to compute at least: sixteen times fewer than in the incident of a
million tokens within 64 s (S18), for other GPUs, depth and company. Chosen here; nobody publishes the slowest."""
FREE_KV_UNKNOWN: Final = 0.1
"""KV usage up to which room for any prompt is certain where the longest request's share is unknown (slow §4)."""
_UNANSWERED: Final = frozenset(
    {None, CanaryOutcome.ABANDONED, CanaryOutcome.ADMISSION_FULL, CanaryOutcome.SERVER_ERROR}
)
_SILENT_ANSWERS: Final = frozenset(
    {CanaryOutcome.ANSWERED, CanaryOutcome.SERVER_ERROR, CanaryOutcome.ADMISSION_FULL}
)


@dataclass(slots=True)
class Ping:
    """One canary of the present flat span."""

    id: str
    sent: float
    outcome: CanaryOutcome | None = None

    @property
    def unanswered(self) -> bool:
        return self.outcome in _UNANSWERED


@dataclass(slots=True)
class RankClock:
    """What is known of one rank of one process. Monotonic seconds."""

    flat: float = 0.0
    """F: seconds without progress while there was work."""
    flat_since: float | None = None
    """Epoch seconds at which this flat span began, for people."""
    pings: list[Ping] = field(default_factory=list)
    kv_only: float = 0.0
    """Seconds in which nothing but KV usage moved."""
    admit: float = 0.0
    """A: seconds of steps in which nobody was admitted."""
    admit_since: float | None = None
    """Epoch seconds at which that began, for people."""
    admit_ping: Ping | None = None
    admission_blocked: bool = False
    """NotAdmitting was found and no admission has been seen since."""
    most_running: float = 0.0
    """Requests that this process was seen to run at a time: so many slots it has, whatever its command leaves unsaid."""
    proved: bool = False
    """The last thing that happened was progress or an answer."""
    stale: bool = False
    stale_since: float | None = None
    """Epoch seconds at which that was noticed, for people. `stale`: a canary was answered and the counters stood still: they lie, and the clock is off until they move."""
    answered_at: float | None = None
    pages_since_answer: int = 0
    answered: int = 0
    """Own canaries answered in this process: to be subtracted from its counters."""
    next_canary: float = 0.0
    """When an idle, blind or long-silent rank is asked next."""
    retry_at: float = 0.0
    """Not before this moment is asked again a rank whose last canary was no evidence."""
    last_progress: float | None = None
    missing_since: float | None = None
    """When its series were first missing from a page that could be read; None while they are there."""
    gone: bool = False
    """They have been missing for longer than evidence may have gaps: what was measured is forgotten."""
    lost: bool = False
    """It left the page while its canaries stayed unanswered: neither sick nor well until it steps or answers again."""
    no_evidence: str = ""
    """Why the last canary said nothing (refused by the engine, no connection)."""

    def unanswered(self) -> int:
        return sum([ping.unanswered for ping in self.pings]) if self.pings else 0

    def open(self) -> int:
        """Canaries of this span that run in the engine now."""
        return sum([ping.outcome is None for ping in self.pings]) if self.pings else 0

    def clear(self) -> None:
        """Progress or an answer: the span is over."""
        self.flat, self.flat_since, self.pings, self.proved, self.no_evidence = 0.0, None, [], True, ""
        self.lost = False

    def forget(self) -> None:
        """What was measured can't be trusted: every clock starts again, and nothing is proved that was not."""
        self.proved = self.proved and self.flat == 0.0 and not self.admission_blocked
        self.flat, self.flat_since, self.pings, self.answered_at = 0.0, None, [], None
        self.admit, self.admit_since, self.admit_ping = 0.0, None, None


@dataclass(slots=True)
class StallState:
    """The clocks of one process. `first_canary` is when its first idle canary may go out (monotonic seconds)."""

    first_canary: float = 0.0
    ranks: dict[str, RankClock] = field(default_factory=dict)
    silent: float = 0.0
    """S: seconds in which the port connected and HTTP stayed silent."""
    silent_at: float | None = None
    chunked_proven: bool = False
    """KV usage moved while the step counter stood: prefill is chunked."""
    sleeping: bool = False

    def forget(self) -> None:
        self.silent, self.silent_at = 0.0, None
        for clock in self.ranks.values():
            clock.forget()

    def clock(self, rank: str) -> RankClock:
        found = self.ranks.get(rank)
        if found is None:
            found = self.ranks[rank] = RankClock(next_canary=self.first_canary)
        return found


class Limits(NamedTuple):
    """Withdrawal and removal times of one process, and the cap on KV-only progress."""

    withdraw: float
    remove: float
    kv_only: float
    admit: float
    admit_remove: float


@frozen
class Watch:
    """What one look at a process needs to know. `now` is epoch seconds, for people only."""

    times: Times
    limit: Limits
    max_num_seqs: int | None
    now: float


def limits(times: Times, chunked: bool, longest_prefill: float) -> Limits:
    """W, K and the caps: fixed where prefill is chunked, else stretched to the longest legal prefill (hang §1.3)."""
    kv_only, admit = times.kv_only_progress, times.not_admitting
    if longest_prefill:
        kv_only, admit = max(kv_only, 2 * longest_prefill), max(admit, 2 * longest_prefill)
    admit_remove = max(times.not_admitting_remove, admit)
    if chunked:
        return Limits(times.stall_withdraw, times.stall_remove, kv_only, admit, admit_remove)
    withdraw = max(times.unchunked_withdraw, 1.25 * longest_prefill)
    remove = max(times.unchunked_remove, 2 * longest_prefill, withdraw)
    return Limits(withdraw, remove, kv_only, admit, admit_remove)


def hear_canaries(
    state: StallState, results: Iterable[CanaryResult], read_at: float | None, times: Times
) -> None:
    """Take in canaries that ended. An answer clears whenever it comes; a refusal is no evidence at all."""
    for result in results:
        clock = state.clock(result.canary.rank)
        ping = _ping(clock, result.canary.id)
        if result.outcome in _SILENT_ANSWERS:
            state.silent, state.silent_at = 0.0, None
        if result.outcome is CanaryOutcome.ANSWERED:
            clock.clear()
            clock.answered += 1
            clock.kv_only, clock.admit, clock.admit_ping, clock.admission_blocked = 0.0, 0.0, None, False
            clock.admit_since = None
            clock.next_canary = result.mono + times.canary_idle
            first = clock.answered_at is None  # a later answer gives counters that stand no new respite
            if first and read_at is not None and read_at <= result.mono:
                clock.answered_at, clock.pages_since_answer = result.mono, 0
        elif result.outcome in _UNANSWERED:
            if ping is not None:
                ping.outcome = result.outcome
        else:
            clock.pings = [p for p in clock.pings if p.id != result.canary.id]
            if clock.admit_ping is not None and clock.admit_ping.id == result.canary.id:
                clock.admit_ping = None
            clock.no_evidence = f"{result.outcome.value} {result.status or ''}".strip()
            clock.next_canary = clock.retry_at = result.mono + times.canary_idle


def _ping(clock: RankClock, id_: str) -> Ping | None:
    if clock.admit_ping is not None and clock.admit_ping.id == id_:
        return clock.admit_ping
    return next((ping for ping in clock.pings if ping.id == id_), None)


def see_failure(state: StallState, failed: Failed, times: Times) -> None:
    """A scrape without a page: only 'connected, then silent' counts, and only towards Silent."""
    if failed.failure is Failure.SILENT:
        if state.silent_at is not None and failed.mono - state.silent_at <= times.readable_gap:
            state.silent += failed.mono - state.silent_at
        state.silent_at = failed.mono
    elif failed.failure in (Failure.HTTP_ERROR, Failure.REFUSED):
        state.silent, state.silent_at = 0.0, None


def see_sample(state: StallState, before: Sample | None, after: Sample, watch: Watch) -> None:
    """Move every rank's clock by what changed between two readable pages of one process."""
    state.silent, state.silent_at = 0.0, None
    state.sleeping = 0.0 in [rank.awake for rank in after.ranks]
    if state.sleeping:
        state.forget()
    if len(state.ranks) > len(after.ranks):
        _miss(state, after, watch.times)
    for rank in after.ranks:
        clock = state.clock(rank.rank)
        clock.missing_since, clock.gone = None, False
        past = before.rank(rank.rank) if before is not None else None
        if past is None or before is None or state.sleeping:
            continue
        gap = after.mono - before.mono
        stepped = _counters_moved(past, rank)
        if stepped is not None:
            _stall(state, clock, past, rank, gap, stepped, after.mono, watch)
        _admission(clock, past, rank, gap, stepped, watch, after.max_concurrency)


def _miss(state: StallState, after: Sample, times: Times) -> None:
    """Of ranks that left the page nothing is known: what was measured of them is forgotten once the gap is too long."""
    for clock in [clock for name, clock in state.ranks.items() if after.rank(name) is None]:
        if clock.missing_since is None:
            clock.missing_since = after.mono
            clock.lost = clock.lost or clock.unanswered() >= CANARIES_NEEDED or clock.admission_blocked
        elif not clock.gone and after.mono - clock.missing_since > times.readable_gap:
            clock.forget()
            clock.gone, clock.stale = True, False


def _stall(
    state: StallState,
    clock: RankClock,
    past: RankSample,
    rank: RankSample,
    gap: float,
    stepped: bool,
    mono: float,
    watch: Watch,
) -> None:
    counted = gap if gap <= watch.times.readable_gap else 0.0
    if stepped:
        clock.clear()
        clock.kv_only, clock.stale, clock.stale_since, clock.answered_at = 0.0, False, None, None
        _progress(clock, mono, watch.times)
        return
    _suspect_stale(clock, mono, watch.now)
    kv_moved = None not in (past.kv_usage, rank.kv_usage) and past.kv_usage != rank.kv_usage
    if kv_moved and clock.kv_only < watch.limit.kv_only:
        clock.clear()
        clock.kv_only += counted
        state.chunked_proven = state.chunked_proven or bool(rank.running)
        _progress(clock, mono, watch.times)
    elif clock.stale:
        clock.flat, clock.flat_since = 0.0, None
    elif (rank.load() or 0.0) > 0 or clock.unanswered():
        clock.flat += counted
        clock.flat_since = watch.now - gap if clock.flat_since is None else clock.flat_since
    else:
        clock.flat, clock.flat_since = 0.0, None


def _progress(clock: RankClock, mono: float, times: Times) -> None:
    clock.last_progress = mono
    clock.next_canary = mono + times.canary_idle


def _suspect_stale(clock: RankClock, mono: float, now: float) -> None:
    """An answer must move the counters; where it does not, they lie."""
    if clock.answered_at is None or mono <= clock.answered_at:
        return
    clock.pages_since_answer += 1
    if clock.pages_since_answer >= STALE_PAGES:
        clock.stale, clock.stale_since, clock.answered_at = True, now, None


def _admission(
    clock: RankClock,
    past: RankSample,
    rank: RankSample,
    gap: float,
    stepped: bool | None,
    watch: Watch,
    max_concurrency: float | None,
) -> None:
    """A: steps go on, and for this long nobody was given a first token though somebody waits and there is room."""
    clock.most_running = max(clock.most_running, rank.running or 0.0)
    if past.first_tokens is None or rank.first_tokens is None or rank.first_tokens != past.first_tokens:
        admitted = past.first_tokens is not None and rank.first_tokens is not None
        clock.admit, clock.admit_since, clock.admit_ping = 0.0, None, None
        clock.admission_blocked = clock.admission_blocked and not admitted
        return
    queued = (rank.waiting or 0.0) - (rank.deferred or 0.0) >= 1
    slots = rank.running is not None and rank.running < (watch.max_num_seqs or clock.most_running)
    if stepped and queued and slots and has_room(rank, max_concurrency):
        clock.admit += gap if gap <= watch.times.readable_gap else 0.0
        clock.admit_since = watch.now - gap if clock.admit_since is None else clock.admit_since
        clock.admission_blocked = clock.admission_blocked or blocked(clock, watch.limit)
    elif stepped is not None:
        clock.admit, clock.admit_since, clock.admit_ping = 0.0, None, None


def _counters_moved(past: RankSample, rank: RankSample) -> bool | None:
    """Whether any progress counter changed; None where no counter stands on both pages."""
    if past.steps is not None and rank.steps is not None and past.steps != rank.steps:
        return True  # of an engine that works, no more need be asked
    pairs = (
        (past.steps, rank.steps),
        (past.generation_tokens, rank.generation_tokens),
        (past.prompt_tokens, rank.prompt_tokens),
    )
    known = [pair for pair in pairs if None not in pair]
    if any(then != now for then, now in known):
        return True
    return False if known else None


def has_room(rank: RankSample, max_concurrency: float | None) -> bool:
    """Whether the free KV cache surely holds the longest legal request."""
    if rank.kv_usage is None:
        return False
    if max_concurrency is None:
        return rank.kv_usage <= FREE_KV_UNKNOWN
    return 1.0 - rank.kv_usage >= min(1.0, 1.0 / max_concurrency)


def due(
    clock: RankClock, rank: RankSample | None, mono: float, times: Times, limit: Limits, blind: bool
) -> str:
    """Which canary this rank needs now: 'flat', 'idle', 'admission', or '' for none. Never one to an engine that steps."""
    if mono < clock.retry_at:
        return ""
    if clock.admit >= times.not_admitting_canary and clock.admit_ping is None:
        return "admission"
    if blind or clock.stale:
        waiting = clock.unanswered() >= CANARIES_NEEDED
        return "idle" if mono >= clock.next_canary and not waiting else ""
    work = clock.unanswered() > 0 or (rank is not None and (rank.load() or 0.0) > 0)
    if not work:
        return "idle" if mono >= clock.next_canary else ""
    sent = len(clock.pings)
    schedule = (times.canary_first, times.canary_second, times.canary_third)
    if sent < len(schedule):
        return "flat" if clock.flat >= schedule[sent] else ""
    if clock.flat < limit.remove - times.canary_before_removal:
        return ""
    return "flat" if mono >= clock.pings[-1].sent + times.canary_idle else ""


def sent(clock: RankClock, id_: str, mono: float, why: str, times: Times) -> None:
    """Note that canary `id_` goes out now."""
    if why == "admission":
        clock.admit_ping = Ping(id_, mono)
    else:
        clock.pings.append(Ping(id_, mono))
    clock.next_canary = mono + times.canary_idle


def convinced(clock: RankClock, limit: Limits) -> bool:
    """W is over and three canaries of this span are unanswered: the two witnesses of a stall."""
    return clock.flat >= limit.withdraw and clock.unanswered() >= CANARIES_NEEDED


def blocked(clock: RankClock, limit: Limits) -> bool:
    """Nobody was admitted for the whole time, our canary included."""
    ping = clock.admit_ping
    return clock.admit >= limit.admit and ping is not None and ping.unanswered


def is_clear(state: StallState) -> bool:
    """Whether every rank has shown a step or an answer and nothing since speaks against it."""
    clocks = [clock for clock in state.ranks.values() if not clock.gone or clock.lost]
    return bool(clocks) and all(c.proved and c.flat == 0.0 and not c.admission_blocked for c in clocks)
