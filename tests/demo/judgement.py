"""From what a scenario left and what its clients met to its outcome."""

from collections.abc import Sequence

from tests.demo.acts import Chapter
from tests.demo.facts import Facts
from tests.demo.outcome import EXPECTED, HEALED, HELD_BACK, WRONG, Outcome
from tests.demo.traffic import Sent, account, swallowed_by

LEAVES_WITHIN = 1.0
"""Seconds from an instance's withdrawal until no new request reaches it: the bar of the design. What a hung engine swallows
up to then was sent before the withdrawal could be felt; what it swallows later counts as failed."""


def outcomes(chapters: Sequence[Chapter], facts: Facts, sent: Sequence[Sent]) -> list[Outcome]:
    """One outcome a chapter, in their order."""
    return [_outcome(chapter, facts, sent) for chapter in chapters]


def _outcome(chapter: Chapter, facts: Facts, sent: Sequence[Sent]) -> Outcome:
    kind, _ = EXPECTED[chapter.name]
    victim = chapter.victim
    withdrawn = victim.withdrawn if victim and victim.withdrawn else chapter.end
    count = account(
        sent, chapter.pools, chapter.begin, chapter.end, swallowed_by(chapter.log, withdrawn + LEAVES_WITHIN)
    )
    sick = facts.first_sick.get((victim.uid, chapter.trigger)) if victim else None
    if kind == HEALED:
        right = (
            chapter.cured
            and chapter.replacement is not None
            and victim is not None
            and victim.ending is not None
        )
        outcome = HEALED if right else WRONG
    else:
        outcome = HELD_BACK if chapter.ended == 0 and not chapter.remarks else WRONG
    return Outcome(
        name=chapter.name,
        outcome=outcome,
        withheld_by=None if kind == HEALED else chapter.withheld_by,
        replaced=chapter.ended,
        requests=count.requests,
        requests_failed=count.failed,
        requests_lost=count.lost,
        detect_seconds=_between(chapter.begin, sick) if victim else None,
        withdraw_seconds=_between(sick, victim.withdrawn) if victim else None,
        replace_seconds=_between(
            chapter.allowed, chapter.replacement.created if chapter.replacement else None
        ),
        remark="; ".join((*chapter.remarks, *count.errors)),
    )


def _between(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else max(0.0, end - begin)
