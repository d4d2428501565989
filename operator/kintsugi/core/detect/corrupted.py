"""`corrupted`: what is known of one process's answers to known questions (hang paper §4). `corrupted_pass` judges it.

A young process is asked one of them, for what its engine compiles (`probes.openers`). Every process is asked all of them
once, after its warm-up: what it is not sure of is struck out for it. From then on
one question goes out every five minutes; a wrong answer, or a counter of NaNs that rises, asks for bursts of all.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Final

from kintsugi.core.known_answers import LEAST_KNOWN, NAMES, SURE_NATS, TOKENS
from kintsugi.core.sample import Sample
from kintsugi.core.snapshot import Answer, Canary, CanaryOutcome, CanaryResult
from kintsugi.core.times import Times

WRONG: Final = 4
"""Wrong answers of a burst that speak for corruption (hang §4)."""
SLIPS: Final = 1
"""Wrong answers that a burst of a healthy process may hold: siblings must get at least 7 of 8 right (hang §4)."""
NANS: Final = 3.0
"""Requests with NaNs within the window that ask for a burst (hang §4)."""
TRIES: Final = 3
"""Times that a question without any answer is asked again at the start; then it is struck out (chosen here)."""
_NOT_ASKABLE: Final = frozenset({400, 422})
"""Statuses that mean this very question, too long for the engine or with parameters that it refuses."""


@unique
class Kind(Enum):
    """Why questions are asked."""

    FIRST = "first"
    """All, with their margins, right after the warm-up."""
    ROUTINE = "routine"
    """One, every five minutes."""
    BURST = "burst"
    """All that this process is judged by."""


@dataclass(slots=True)
class Round:
    """Questions asked together. `began` is monotonic, None until the first of them went out."""

    kind: Kind
    wanted: tuple[str, ...]
    rank: str
    began: float | None = None
    asked: dict[str, str] = field(default_factory=dict)
    """Names of questions by canary id."""
    told: dict[str, Answer | None] = field(default_factory=dict)
    """Answers by question; None where it ended without one."""

    def over(self, mono: float, times: Times) -> bool:
        """All have ended, or the time of a burst has passed; a slow look at the engine prolongs it."""
        if self.began is None:
            return False
        late = mono - self.began >= _patience(times)
        return late or all(name in self.told for name in self.wanted)

    def waiting(self) -> int:
        """Questions that are open."""
        return len(self.asked) - len(self.told)


@dataclass(frozen=True, slots=True)
class Marks:
    """What a burst came to: `wrong` of `told` answers."""

    wrong: int
    told: int

    @property
    def bad(self) -> bool:
        return self.wrong >= WRONG

    @property
    def good(self) -> bool:
        """Enough answers, and at most one slip."""
        return self.told >= LEAST_KNOWN and self.wrong <= SLIPS


@dataclass(frozen=True, slots=True)
class Shown:
    """The figures of the last pair of bursts, and of the siblings beside it."""

    first: Marks
    second: Marks
    right: int = 0
    """Siblings that answered the same questions right."""
    wrong: int = 0
    """Siblings that answered them wrong."""


@dataclass(slots=True)
class AnswerState:
    """What is known of one process. Monotonic seconds but for `since`."""

    first: dict[str, Answer] = field(default_factory=dict)
    """What it said at its start, by question."""
    retold: bool = False
    """That was kept over a restart of the operator, and has not been compared with siblings since."""
    refused: set[str] = field(default_factory=set)
    """Questions that the engine does not take."""
    opened: bool = False
    """It was asked for a margin when it was young, see `probes.openers`."""
    opener: Canary | None = None
    """That question, while it is open."""
    tries: int = 0
    round: Round | None = None
    judged_by: tuple[str, ...] = ()
    """Questions whose answers are known for this process."""
    off: str = ""
    """Why wrong answers are not looked for, in words; '' where they are, or where its start is not over."""
    differs: bool = False
    """That is so because it and a sibling have disagreed since their start."""
    next_at: float = 0.0
    turn: int = 0
    suspected: bool = False
    suspect_rank: str = ""
    since: float | None = None
    """Epoch seconds of when it was first suspected, for people."""
    calm_until: float = 0.0
    """No burst before this."""
    pair: list[Round] = field(default_factory=list)
    """Bursts of the present suspicion that are over."""
    last: Round | None = None
    """The newest burst that is over."""
    shown: Shown | None = None
    sick: bool = False
    cleared: bool = False
    """It was convicted, and a whole burst since was right."""
    shared: bool = False
    """Siblings answer wrong, too."""
    unsure: bool = False
    """Nobody could be compared with."""
    nans: deque[tuple[float, float]] = field(default_factory=deque)
    nan_rise: float = 0.0
    """Requests with NaNs within the window."""
    nan_since: float | None = None
    nans_answered: bool = False
    """A burst since the counter began to rise was right."""
    answered: int = 0
    """Questions answered in this process: to be subtracted from its counters."""
    tokens: float = 0.0
    """Prompt tokens of those."""

    def sure(self) -> Mapping[str, str]:
        """Tokens that it was sure of at its start, by question."""
        return {
            name: answer.token
            for name, answer in self.first.items()
            if answer.margin is not None and answer.margin >= SURE_NATS
        }

    def missing(self) -> tuple[str, ...]:
        """Questions of its start that are still to be asked."""
        if self.tries >= TRIES and (self.first or self.refused):
            return ()
        return tuple(name for name in NAMES if name not in self.first and name not in self.refused)

    def complete(self) -> bool:
        """All questions of its start were asked, and some answered."""
        return bool(self.first) and not self.missing()

    def open(self, rank: str | None = None) -> int:
        """Questions that run in the engine now, of one rank where it is named."""
        found, first = self.round, self.opener
        asked = found.waiting() if found is not None and rank in (None, found.rank) else 0
        return asked + (first is not None and rank in (None, first.rank))

    def forget(self) -> None:
        """Our own loop was late: a round under way proves nothing any more."""
        self.round, self.opener, self.pair = None, None, []


def _patience(times: Times) -> float:
    """Seconds after which a question without an end is not waited for any more."""
    return times.corrupted_burst + 2 * times.scrape_interval


def hear_answers(state: AnswerState, results: Iterable[CanaryResult]) -> None:
    """Take in questions that ended. What was refused, failed or was not answered in time is no answer at all."""
    for result in results:
        question, asked = result.canary.question, state.round
        if question is None:
            continue
        opens = state.opener is not None and state.opener.id == result.canary.id
        if opens:
            state.opener = None
        if result.outcome is CanaryOutcome.ANSWERED:
            state.answered += 1
            state.tokens += TOKENS.get(question.name, len(question.prompt))
        elif result.status in _NOT_ASKABLE and not opens:
            state.refused.add(question.name)
        if asked is not None and result.canary.id in asked.asked:
            asked.told[question.name] = result.answer if result.outcome is CanaryOutcome.ANSWERED else None


def see_nans(state: AnswerState, sample: Sample, times: Times, now: float) -> None:
    """Take in the counter of corrupted requests, where the engine has one. `now` in epoch seconds, for people."""
    total = sample.whole.corrupted
    if total is None:
        return
    marks = state.nans
    marks.append((sample.mono, total))
    while len(marks) > 1 and marks[1][0] <= sample.mono - times.corrupted_nan_window:
        marks.popleft()
    state.nan_rise = total - marks[0][1]
    if state.nan_rise < NANS:
        state.nan_since, state.nans_answered = None, False
    elif state.nan_since is None:
        state.nan_since = now - (sample.mono - marks[0][0])


def settle(state: AnswerState, known: Mapping[str, str], mono: float, times: Times) -> bool:
    """Close the round that is over and draw from it what it says; True where more is known of the start."""
    if state.opener is not None and mono - state.opener.sent >= _patience(times):
        state.opener = None  # its end was never told
    done = state.round
    if done is None or not done.over(mono, times):
        return False
    state.round = None
    if done.kind is Kind.FIRST:
        said = {name: answer for name, answer in done.told.items() if answer is not None}
        state.first |= said
        state.tries += bool(state.first or state.refused)
        state.next_at = mono + (0.0 if said and state.missing() else times.corrupted_every)
        return True
    if done.kind is Kind.BURST:
        state.last = done
        state.pair = [*state.pair, done] if state.suspected else []
        if marked(done, known).bad:
            suspect(state, done.rank)
    elif marked(done, known).wrong:
        suspect(state, done.rank)
    return False


def suspect(state: AnswerState, rank: str) -> None:
    """A burst of all questions is wanted, at `rank`."""
    if not state.suspected:
        state.suspected, state.suspect_rank, state.pair = True, rank, []


def marked(asked: Round, known: Mapping[str, str]) -> Marks:
    """How many answers of a round differ from what is known."""
    told = [
        (name, answer.token) for name, answer in asked.told.items() if answer is not None and name in known
    ]
    return Marks(sum(token != known[name] for name, token in told), len(told))
