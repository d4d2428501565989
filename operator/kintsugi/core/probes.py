"""Which canaries go out in this pass: none to an engine that steps, three per suspicion, one a minute while idle."""

import re
from collections.abc import Iterable
from typing import Final

from kintsugi.core.detect.collapsed import Ask, ask_due
from kintsugi.core.detect.corrupted import Kind
from kintsugi.core.detect.corrupted_looks import may_be_asked
from kintsugi.core.detect.erroring import canaries_due, control_due
from kintsugi.core.detect.stalled import due, sent
from kintsugi.core.known_answers import NAMES, QUESTIONS, WITH_MARGIN
from kintsugi.core.look import Look
from kintsugi.core.page import DEFAULT_RANK
from kintsugi.core.snapshot import Canary, Failed, Failure
from kintsugi.core.times import Times
from kintsugi_engine.contract import CANARY_REQUEST_ID_PREFIX

IDLE_AT_ONCE: Final = 20
"""Canaries outside suspicion that one pass may send (hang §1.3)."""
QUESTIONS_AT_ONCE: Final = 20
"""Questions that one pass may send, to all engines of a deployment (chosen here, as for idle canaries)."""
QUESTIONS_IN_PARALLEL: Final = 4
"""Questions that may be open at one engine: a burst adds at most this many requests to a step (chosen here)."""
_PLAIN: Final = {question.name: question for question in QUESTIONS}
_MARGIN: Final = {question.name: question for question in WITH_MARGIN}
_RANK: Final = re.compile(r"[A-Za-z0-9._-]{1,32}")
"""Rank names that may go into a request header; others come from a page that nobody should believe."""


def canaries(looks: Iterable[Look], mono: float, times: Times) -> tuple[Canary, ...]:
    """The canaries to send now, noted in the evidence as sent."""
    found: list[Canary] = []
    idle = 0
    for look in looks:
        process = look.process
        if process is None or not _may_be_asked(look, mono, times):
            continue
        for rank in process.ranks or (DEFAULT_RANK,):
            clock = process.stall.clock(rank)
            entry = process.sample.rank(rank) if process.sample is not None else None
            why = due(clock, entry, mono, times, look.limit, not look.fresh)
            if not why or (why == "idle" and idle >= IDLE_AT_ONCE) or _RANK.fullmatch(rank) is None:
                continue
            idle += why == "idle"
            id_ = f"{CANARY_REQUEST_ID_PREFIX}{rank}-{look.instance.uid[:8]}-{round(mono * 1000)}"
            sent(clock, id_, mono, why, times)
            found.append(Canary(id_, process.key, rank, mono))
    return tuple(found)


def witnesses(looks: Iterable[Look], mono: float, times: Times) -> tuple[Canary, ...]:
    """The canaries of rounds that decide between a failing engine and failing requests, noted as sent."""
    found: list[Canary] = []
    for look in looks:
        process = look.process
        if process is None or (process.errors.round is None and not process.errors.control):
            continue
        if not _may_be_asked(look, mono, times):
            continue
        ranks = [rank for rank in process.ranks if _RANK.fullmatch(rank)] or [DEFAULT_RANK]
        if process.errors.round is None:
            if control_due(process.errors, mono, times):
                process.errors.control_at = mono
                id_ = f"{CANARY_REQUEST_ID_PREFIX}{ranks[0]}-{look.instance.uid[:8]}-{round(mono * 1000)}-c"
                found.append(Canary(id_, process.key, ranks[0], mono))
            continue
        outcomes = process.errors.round.outcomes
        for _ in range(canaries_due(process.errors, mono, times)):
            number = len(outcomes)
            rank = ranks[number % len(ranks)]
            id_ = f"{CANARY_REQUEST_ID_PREFIX}{rank}-{look.instance.uid[:8]}-{round(mono * 1000)}-w{number}"
            outcomes[id_] = None
            found.append(Canary(id_, process.key, rank, mono))
    return tuple(found)


def starved(looks: Iterable[Look], mono: float, times: Times) -> tuple[Canary, ...]:
    """The canaries that ask a rank with a queue that nothing explains, noted as sent."""
    found: list[Canary] = []
    for look in looks:
        process = look.process
        if process is None or not process.queues.ranks or not _may_be_asked(look, mono, times):
            continue
        for rank, queue in process.queues.ranks.items():
            if _RANK.fullmatch(rank) is None or not ask_due(queue, mono, times):
                continue
            id_ = f"{CANARY_REQUEST_ID_PREFIX}{rank}-{look.instance.uid[:8]}-{round(mono * 1000)}-q"
            queue.asks.append(Ask(id_, mono))
            found.append(Canary(id_, process.key, rank, mono))
    return tuple(found)


def questions(looks: Iterable[Look], mono: float, times: Times) -> tuple[Canary, ...]:
    """The known-answer questions to send now, noted as sent; those that decide about a suspect come first."""
    due = [
        (process.answers.round.kind is not Kind.BURST, look.instance.uid, process, process.answers.round)
        for look in looks
        if (process := look.process) is not None
        and process.answers.round is not None
        and len(process.answers.round.asked) < len(process.answers.round.wanted)
        and _may_be_asked(look, mono, times)
    ]
    due.sort(key=lambda each: each[:2])
    found: list[Canary] = []
    for _, uid, process, asked in due:
        known = _MARGIN if asked.kind is Kind.FIRST else _PLAIN
        left = [name for name in asked.wanted if name not in asked.asked.values()]
        for name in left[: max(0, QUESTIONS_IN_PARALLEL - asked.waiting())]:
            if len(found) >= QUESTIONS_AT_ONCE or _RANK.fullmatch(asked.rank) is None:
                break
            id_ = f"{CANARY_REQUEST_ID_PREFIX}{asked.rank}-{uid[:8]}-{round(mono * 1000)}-{name}"
            asked.asked[id_] = name
            asked.began = mono if asked.began is None else asked.began
            found.append(Canary(id_, process.key, asked.rank, mono, known[name]))
    return tuple(found)


def openers(looks: Iterable[Look], mono: float, times: Times, most: int) -> tuple[Canary, ...]:
    """The shortest question with its margin, once to each process in its warm-up, noted as sent; no more than `most` of
    them, and none that would still be open when the warm-up is over.

    vLLM compiles what margins need at the first request that asks for them, and makes no step meanwhile (measured on
    0.32, two CPU cores: 8 s): that pause is of our making, so it is had while silence does not count and few streams run.
    """
    found: list[Canary] = []
    for look in looks:
        process = look.process
        if process is None or process.answers.opened or process.answers.first or len(found) >= most:
            continue
        left = times.stall_warm_up - process.age(mono)
        if not look.fresh or not _in_reach(look) or left <= times.corrupted_burst:
            continue
        rank = (process.ranks or (DEFAULT_RANK,))[0]
        if may_be_asked(process) and _RANK.fullmatch(rank) is not None:
            id_ = f"{CANARY_REQUEST_ID_PREFIX}{rank}-{look.instance.uid[:8]}-{round(mono * 1000)}-opens"
            found.append(Canary(id_, process.key, rank, mono, _MARGIN[NAMES[0]]))
            process.answers.opened, process.answers.opener = True, found[-1]
    return tuple(found)


def _may_be_asked(look: Look, mono: float, times: Times) -> bool:
    """Only a process that is in reach and past its warm-up."""
    return _in_reach(look) and look.process is not None and look.process.age(mono) >= times.stall_warm_up


def _in_reach(look: Look) -> bool:
    """Whether the process has been Ready, is awake, and neither refuses nor goes away."""
    process, scrape = look.process, look.instance.scrape
    if process is None or process.ready_at is None or look.instance.deleting:
        return False
    unreachable = isinstance(scrape, Failed) and scrape.failure in (Failure.REFUSED, Failure.NO_ADDRESS)
    return not unreachable and not process.stall.sleeping
