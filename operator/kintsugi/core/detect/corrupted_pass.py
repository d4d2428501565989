"""`corrupted` over a pool: what a revision's processes agree on, who is asked next, and who is convicted (hang §4).

Nobody is convicted by its own past alone: two bursts a minute apart must be wrong, in words that at least two processes
of the same revision once agreed on with certainty, while siblings answer the same questions right.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from kintsugi.core.detect.corrupted import (
    NANS,
    AnswerState,
    Kind,
    Marks,
    Round,
    Shown,
    marked,
    settle,
    suspect,
)
from kintsugi.core.known_answers import LEAST_KNOWN, NAMES
from kintsugi.core.times import Times

WITNESSES: Final = 3
"""Siblings that are asked beside a suspect; two must be right, one where the suspect has only one sibling (hang §4)."""
AGREED: Final = 2
"""Processes that must have given the same sure answer before anybody is convicted by it (chosen here)."""


@dataclass(slots=True)
class Known:
    """Answers of one pool and revision, by question; `sure`: at least two processes agreed on them."""

    tokens: dict[str, str] = field(default_factory=dict)
    sure: set[str] = field(default_factory=set)

    def learn(self, states: Iterable[AnswerState]) -> None:
        """Let the processes vote. What is known gives way only to more votes than it has itself."""
        votes: dict[str, Counter[str]] = {}
        for state in states:
            for name, token in state.sure().items():
                votes.setdefault(name, Counter())[token] += 1
        for name, cast in votes.items():
            (best, count), *others = cast.most_common(2)
            held = self.tokens.get(name)
            tied = bool(others) and others[0][1] == count
            if held is None:
                if tied:
                    continue
                self.tokens[name] = best
            elif best != held and not tied and count >= AGREED and count > cast[held]:
                self.tokens[name] = best
                self.sure.discard(name)
            if cast[self.tokens[name]] >= AGREED:
                self.sure.add(name)


@dataclass(slots=True)
class AnswerMemory:
    """What each build of a revision answers, by pool, revision and image.

    A tag may move while the revision stays: what one image answers is never held against another.
    """

    known: dict[tuple[str, str, str], Known] = field(default_factory=dict)


@dataclass(slots=True)
class Answering:
    """One process as one pass sees it. `may_be_asked`: warm, awake, freshly read, and nobody waits in its queue."""

    uid: str
    pool: str
    revision: str
    image: str
    """Digest of the image that runs, as the node tells it; '' where it does not."""
    state: AnswerState
    may_be_asked: bool
    ranks: tuple[str, ...]


class _Moment(NamedTuple):
    mono: float
    now: float
    times: Times


def answers_pass(
    entries: Iterable[Answering], memory: AnswerMemory, mono: float, now: float, times: Times
) -> None:
    """Draw conclusions from what was answered, and set up what is to be asked. `now` in epoch seconds, for people."""
    moment = _Moment(mono, now, times)
    groups: dict[tuple[str, str, str], list[Answering]] = {}
    for entry in sorted(entries, key=attrgetter("uid")):  # who is asked first must not depend on a listing
        groups.setdefault((entry.pool, entry.revision, entry.image), []).append(entry)
    for key, group in groups.items():
        known = memory.known.get(key)
        if known is None:
            known = memory.known[key] = Known()
        news = [settle(entry.state, known.tokens, mono, times) for entry in group]
        if any(news) or any(entry.state.retold for entry in group):
            known.learn(entry.state for entry in group)
            for entry in group:
                entry.state.retold = False
                _choose(entry.state, known)
        for entry in group:
            if not _quiet(entry.state, mono):
                _judge(entry, group, known, moment)


def _quiet(state: AnswerState, mono: float) -> bool:
    """Nothing is due: the case of nearly every process in nearly every pass."""
    return not state.suspected and mono < state.next_at and state.nan_rise < NANS


def _choose(state: AnswerState, known: Known) -> None:
    """By which questions the process is judged: what it said with certainty as its siblings did.

    Where it disagrees on more than near ties could explain, it is judged by what at least two siblings agree on.
    """
    mine = state.sure()
    agreed = tuple(name for name in NAMES if name in mine and known.tokens.get(name) == mine[name])
    others = tuple(name for name in NAMES if name in known.sure and name not in state.refused)
    state.off, state.differs = "", False
    if len(agreed) >= LEAST_KNOWN:
        state.judged_by = agreed
    elif len(others) >= LEAST_KNOWN:
        state.judged_by = others
    else:
        state.judged_by = ()
        if not state.missing():
            state.off = _why_off(state, mine, known)


def _why_off(state: AnswerState, mine: Mapping[str, str], known: Known) -> str:
    if state.refused:
        return f"the engine takes only {len(NAMES) - len(state.refused)} of {len(NAMES)} questions"
    if len(mine) < LEAST_KNOWN:
        return f"it is sure of only {len(mine)} of {len(NAMES)} answers"
    state.differs = True
    differ = sum(known.tokens.get(name) != token for name, token in mine.items())
    return f"it and a sibling of its revision differ in {differ} of {len(NAMES)} answers since their start"


def _judge(entry: Answering, group: Sequence[Answering], known: Known, moment: _Moment) -> None:
    state, mono, times = entry.state, moment.mono, moment.times
    if state.nan_rise >= NANS and not state.nans_answered and state.judged_by:
        suspect(state, entry.ranks[0])
    if state.suspected and state.since is None:
        state.since = moment.now
    if state.pair:
        _weigh(entry, group, known, moment)
    if state.round is not None or not entry.may_be_asked:
        return
    if state.missing():
        if mono >= state.next_at:
            state.round = Round(Kind.FIRST, state.missing(), entry.ranks[0])
    elif not state.judged_by:
        state.next_at = mono + times.corrupted_every
    elif state.suspected:
        if not state.pair and mono >= state.calm_until:
            state.round = _burst(state, entry)
    elif mono >= state.next_at:
        state.next_at = mono + times.corrupted_every
        name = state.judged_by[state.turn % len(state.judged_by)]
        rank = entry.ranks[state.turn // len(state.judged_by) % len(entry.ranks)]
        state.turn += 1
        state.round = Round(Kind.ROUTINE, (name,), rank)


def _burst(state: AnswerState, entry: Answering) -> Round:
    rank = state.suspect_rank if state.suspect_rank in entry.ranks else entry.ranks[0]
    return Round(Kind.BURST, state.judged_by, rank)


def _weigh(entry: Answering, group: Sequence[Answering], known: Known, moment: _Moment) -> None:
    """Go on from the bursts that are over: to the second one, to a verdict, or back to peace."""
    state, mono, times = entry.state, moment.mono, moment.times
    marks = [marked(each, known.tokens) for each in state.pair]
    began = state.pair[0].began or 0.0
    if not marks[-1].bad:
        _end(state, marks[-1], state.pair[-1].began or 0.0, times)
    elif len(marks) == 1:
        if state.round is None and entry.may_be_asked and mono - began >= times.corrupted_burst:
            state.round = _burst(state, entry)
            _call_witnesses(entry, group, WITNESSES, mono - times.corrupted_burst)
    else:
        _convict(entry, group, known, marks, moment)


def _end(state: AnswerState, marks: Marks, began: float, times: Times) -> None:
    """A burst without four wrong answers: only one that is right as a whole clears a conviction."""
    state.pair, state.calm_until = [], began + times.corrupted_every
    if marks.good:
        state.cleared = state.cleared or state.sick
        state.nans_answered = state.nan_since is not None
        state.sick = state.shared = state.unsure = False
    if not (state.sick or state.shared or state.unsure):
        state.suspected, state.since = False, None


def _call_witnesses(entry: Answering, group: Sequence[Answering], most: int, recent: float) -> None:
    """Ask siblings the same questions beside the second burst, at `most` so many, those that wait for nothing and have not
    been asked since `recent` (monotonic seconds)."""
    free = [
        other
        for other in group
        if other is not entry
        and other.may_be_asked
        and other.state.judged_by
        and not other.state.suspected
        and (other.state.round is None or other.state.round.kind is Kind.ROUTINE)
        and (other.state.last is None or (other.state.last.began or 0.0) < recent)
    ]
    for other in free[:most]:
        other.state.round = Round(Kind.BURST, other.state.judged_by, other.ranks[0])


def _convict(
    entry: Answering, group: Sequence[Answering], known: Known, marks: Sequence[Marks], moment: _Moment
) -> None:
    """Both bursts are wrong: compare with siblings, once they have answered or their time is over."""
    state, times = entry.state, moment.times
    since, second = state.pair[0].began or 0.0, state.pair[1].began or 0.0
    siblings = [other.state for other in group if other is not entry]
    seen = [marked(s.last, known.tokens) for s in siblings if s.last and (s.last.began or 0.0) >= since]
    right, wrong = sum(each.good for each in seen), sum(each.bad for each in seen)
    needed = min(2, max(1, len(siblings)))
    asking = sum(s.round is not None and s.round.kind is Kind.BURST for s in siblings)
    # Whoever had a queue as the second burst began may have none a moment later.
    may_come = any(s.judged_by and not s.suspected for s in siblings)
    lack = WITNESSES - len(seen) - asking
    waits = right < needed and (asking > 0 or (may_come and lack > 0))
    if waits and moment.mono - second < 2 * times.corrupted_burst + 2 * times.scrape_interval:
        _call_witnesses(entry, group, max(0, lack), since)
        return
    agreed = {name: known.tokens[name] for name in known.sure}
    state.shared = wrong > right
    surely = all(marked(each, agreed).bad for each in state.pair)
    state.sick = surely and right >= needed and not state.shared
    state.unsure = not state.sick and not state.shared
    state.cleared = state.cleared and not state.sick
    state.shown = Shown(marks[0], marks[1], right, wrong)
    state.pair, state.calm_until = [], second + times.corrupted_every
