"""`erroring`: an instance fails requests that its siblings answer, and canaries of ours see it too (hang paper §4).

Counts of users' requests only make a suspect: one client's bad request, sent again and again, fails everywhere it
goes. What convinces is a round of 20 canaries, harmless one-token requests, of which at least three fail here.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kintsugi.core.detect.jeffreys import surely_above
from kintsugi.core.frozen import frozen
from kintsugi.core.sample import Sample
from kintsugi.core.snapshot import CanaryOutcome, CanaryResult
from kintsugi.core.times import Times

LEAST_ERRORS: Final = 3
"""Errors without which no share counts (hang §4)."""
ENOUGH_REQUESTS: Final = 20
"""Requests up to which the window is stretched back (hang §4)."""
ROUND_CANARIES: Final = 20
ROUND_BAD: Final = 3
"""Of 20 canaries, so many must fail (hang §4)."""
IN_PARALLEL: Final = 4
"""Canaries of one round that may be open at a time (hang §4)."""
IDLE_STREAK: Final = 3
"""Idle canaries that fail in a row and ask for a round where no traffic proves anything (hang §4)."""
_COUNTED: Final = frozenset({CanaryOutcome.ANSWERED, CanaryOutcome.SERVER_ERROR})


@frozen
class Row:
    """Counters of one page; canaries of ours up to then. Monotonic seconds."""

    mono: float
    http_failed: float | None
    rejections: float
    failed: float | None
    finished: float | None
    own_good: int
    own_bad: int


class Counts(NamedTuple):
    """Users' requests of the window: `errors` of `requests`, over `seconds`."""

    errors: float
    requests: float
    seconds: float

    def above(self, share: float) -> bool:
        """Whether a share of errors above `share` is proven."""
        return self.errors >= LEAST_ERRORS and surely_above(self.errors, self.requests, share)


NOTHING: Final = Counts(0.0, 0.0, 0.0)


@dataclass(slots=True)
class Round:
    """One round of canaries. `outcomes` by canary id, None while open."""

    began: float
    outcomes: dict[str, CanaryOutcome | None] = field(default_factory=dict)

    @property
    def bad(self) -> int:
        return sum(outcome is CanaryOutcome.SERVER_ERROR for outcome in self.outcomes.values())

    @property
    def open(self) -> int:
        """Canaries that run in the engine now."""
        return sum(outcome is None for outcome in self.outcomes.values())

    @property
    def told(self) -> int:
        """Canaries that say something: answered or failed."""
        return sum(outcome in _COUNTED for outcome in self.outcomes.values())

    def over(self, mono: float, times: Times) -> bool:
        """All are in, or twice the round's time has passed."""
        return self.told >= ROUND_CANARIES or mono - self.began >= 2 * times.erroring_round


@dataclass(slots=True)
class ErrorState:
    """What is known of one process."""

    rows: deque[Row] = field(default_factory=deque)
    own_bad: int = 0
    idle_bad: int = 0
    """Canaries outside rounds that failed in a row."""
    answered: bool = False
    """A canary of ours was answered in this process: such requests can succeed."""
    control: bool = False
    """A sibling is asked in a round, and none of the pool ever answered a canary: this one is to be asked, too."""
    control_at: float | None = None
    """When it was last asked so. Monotonic seconds."""
    counts: Counts = NOTHING
    suspected: bool = False
    """The counts, or three idle canaries, ask for a round."""
    shared: bool = False
    """Siblings fail too: a cause that no new pod cures."""
    since: float | None = None
    """Epoch seconds of when it was first suspected, for people."""
    round: Round | None = None
    sick: bool = False
    cleared: bool = False
    """A whole round after the last verdict had no failure."""


@dataclass(slots=True)
class Erring:
    """One process as one pass sees it. `judged`: warm, awake and freshly read."""

    uid: str
    pool: str
    state: ErrorState
    judged: bool


def hear(state: ErrorState, results: Iterable[CanaryResult]) -> None:
    """Take in canaries of ours that ended. What was refused or never connected says nothing; a question that failed is
    only taken off the errors that the engine counts."""
    for result in results:
        bad = result.outcome is CanaryOutcome.SERVER_ERROR
        state.own_bad += bad
        if result.canary.question is not None:
            continue
        state.answered = state.answered or result.outcome is CanaryOutcome.ANSWERED
        if state.round is not None and result.canary.id in state.round.outcomes:
            state.round.outcomes[result.canary.id] = result.outcome
        elif result.outcome in _COUNTED:
            state.idle_bad = state.idle_bad + 1 if bad else 0


def see_errors(state: ErrorState, sample: Sample, own_good: int, times: Times) -> None:
    """Take in one readable page; `own_good` canaries of ours were answered in this process so far."""
    rows, whole, refused = state.rows, sample.whole, sample.rejections or 0.0
    rows.append(
        Row(sample.mono, sample.http_failed, refused, whole.failed, whole.finished, own_good, state.own_bad)
    )
    oldest = sample.mono - times.erroring_longest
    while len(rows) > 1 and rows[1].mono <= oldest:
        rows.popleft()
    state.counts = counts(rows, times)


def counts(rows: deque[Row], times: Times) -> Counts:
    """Users' requests and errors of the last 120 s, stretched back until there are 20 requests, 900 s at most.

    Where the whole 900 s hold too few errors to count, they are the answer: an engine that is well costs one look.
    """
    if len(rows) < 2:
        return NOTHING
    last = rows[-1]
    whole = _between(rows[0], last)
    if whole.errors < LEAST_ERRORS:
        return whole
    for index in range(len(rows) - 2, -1, -1):
        first = rows[index]
        if last.mono - first.mono >= times.erroring_window:
            found = _between(first, last)
            if found.requests >= ENOUGH_REQUESTS:
                return found
    return whole


def _between(first: Row, last: Row) -> Counts:
    http, inside = _rise(first.http_failed, last.http_failed), _rise(first.failed, last.failed)
    errors, refused = 0.0, last.rejections - first.rejections
    if http or inside or refused:  # nearly always there is none of it
        errors = max(max(http - refused, 0.0, inside) - (last.own_bad - first.own_bad), 0.0)
    good = max(_rise(first.finished, last.finished) - (last.own_good - first.own_good), 0.0)
    return Counts(errors, good + errors, last.mono - first.mono)


def _rise(first: float | None, last: float | None) -> float:
    """A series that begins with its first event has risen from nothing: labelled counters appear only then."""
    return last - (first or 0.0) if last is not None and last > (first or 0.0) else 0.0


def errors_pass(entries: Iterable[Erring], mono: float, now: float, times: Times, max_percent: float) -> None:
    """Suspect, compare with siblings, and convict. `now` in epoch seconds, for people."""
    share = max_percent / 100.0
    by_pool: dict[str, list[Erring]] = {}
    for entry in entries:
        by_pool.setdefault(entry.pool, []).append(entry)
    for pool in by_pool.values():
        # Where none was ever answered, it may be our canaries that are wrong, and then they convict nobody.
        works = any(entry.state.answered for entry in pool)
        shown: dict[str, Counts] = {}
        if [entry for entry in pool if entry.judged and entry.state.counts.errors]:
            # Nearly always none fails any, and there is nothing to compare.
            shown = {entry.uid: entry.state.counts for entry in pool if entry.judged}
        for entry in pool:
            if entry.judged:
                _judge(entry, shown, works, mono, now, times, share)
        asked = not works and any(entry.state.round is not None for entry in pool)
        for entry in pool:
            entry.state.control = asked and entry.judged and entry.state.round is None


def _judge(
    entry: Erring,
    shown: Mapping[str, Counts],
    works: bool,
    mono: float,
    now: float,
    times: Times,
    share: float,
) -> None:
    state = entry.state
    state.suspected = state.counts.above(share) or state.idle_bad >= IDLE_STREAK
    others = [known for uid, known in shown.items() if uid != entry.uid]
    state.shared = bool(others) and _fail_too(others, share / 2)
    if not state.suspected and not state.sick:
        state.since = None
    elif state.since is None:
        state.since = now - state.counts.seconds
    asked = state.round
    if state.shared:
        state.sick = False
    elif works and asked is not None and asked.bad >= ROUND_BAD and mono - asked.began < times.erroring_again:
        state.sick, state.cleared = True, False
    if asked is not None and asked.told >= ROUND_CANARIES and asked.bad == 0:
        state.cleared = state.cleared or state.sick
        state.sick = False
    wanted = state.sick or (state.suspected and not state.shared)
    ended = asked is None or (asked.over(mono, times) and mono - asked.began >= times.erroring_again)
    if wanted and ended:
        state.round = Round(mono)


def _fail_too(siblings: Sequence[Counts], share: float) -> bool:
    """Whether one of the siblings, or all of them together, fail more than this share."""
    failed = sum([known.errors for known in siblings])
    if not failed:
        return False
    together = Counts(failed, sum([known.requests for known in siblings]), 0.0)
    return any(known.above(share) for known in (*siblings, together))


def control_due(state: ErrorState, mono: float, times: Times) -> bool:
    """Whether one canary goes out now to an engine that is not suspected: busy engines are asked nothing otherwise."""
    return state.control and (state.control_at is None or mono - state.control_at >= times.erroring_round)


def canaries_due(state: ErrorState, mono: float, times: Times) -> int:
    """How many canaries of the round go out now: spread over its time, few at once."""
    asked = state.round
    if asked is None or asked.over(mono, times):
        return 0
    still_open = asked.open
    schedule = int(ROUND_CANARIES * min(1.0, (mono - asked.began) / times.erroring_round)) + IN_PARALLEL
    lost = len(asked.outcomes) - still_open - asked.told
    wanted = min(ROUND_CANARIES, schedule) + lost - len(asked.outcomes)
    return max(0, min(wanted, IN_PARALLEL - still_open))
