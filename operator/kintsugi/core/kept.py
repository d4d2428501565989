"""What is kept of one engine process over a restart of the operator, and how the same process is known again."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kintsugi.core.detect.growing import Source
from kintsugi.core.sample import Sample
from kintsugi.core.snapshot import Answer

SAME_START = 1.0
"""Seconds by which two words on one start may differ: pages round it (as `sample.fell` reads it)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a page said of the process itself when it was kept; None where it said nothing.

    A pod's UID and its container's start don't change where an engine starts again inside the container: these do.
    """

    process_start: float | None = None
    """Epoch seconds."""
    steps: float | None = None
    tokens: float | None = None

    def of_the_process(self, sample: Sample) -> bool:
        """Whether `sample` shows the process of this mark, later on: something agrees, and nothing speaks against it."""
        now = mark_of(sample)
        agreed = False
        if self.process_start is not None and now.process_start is not None:
            if abs(now.process_start - self.process_start) > SAME_START:
                return False
            agreed = True
        for then, later in ((self.steps, now.steps), (self.tokens, now.tokens)):
            if then is not None and later is not None:
                if later < then:
                    return False
                agreed = True
        return agreed


@dataclass(frozen=True, slots=True)
class Answers:
    """What a process said to every known question at its start, and which of them its engine does not take."""

    first: Mapping[str, Answer]
    refused: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Kept:
    """What an earlier memory had learned of one process."""

    baseline: float | None = None
    counted: bool = False
    """How prompt tokens were counted for `baseline` (`Measure.counted`)."""
    references: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Fragmentation after warm-up, percent, by source and worker."""
    memory: tuple[Source, float] | None = None
    """Bytes that it used at its start, and who said so."""
    answers: Answers | None = None
    mark: Mark = field(default_factory=Mark)

    @property
    def empty(self) -> bool:
        """Whether nothing is known."""
        known = (
            self.baseline is not None
            or self.references
            or self.memory is not None
            or self.answers is not None
        )
        return not known


def mark_of(sample: Sample | None) -> Mark:
    """The mark of the process that gave `sample`; one that says nothing where there is no page."""
    if sample is None:
        return Mark()
    return Mark(sample.process_start, sample.total("steps"), sample.total("generation_tokens"))
