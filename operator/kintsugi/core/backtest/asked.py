"""Canaries in a history: nobody can be asked any more, so what they would have said is either proved, or not known.

An engine that has work of its users and makes no step can have answered no canary either: an answer takes a step, and
the page counts it. Such a canary stays open, as it would have, for as long as the page says so. Every other canary was
not sent, and says nothing. An engine that answers and does not count it (S11) can't be told from one that hangs: what
rests on open canaries is marked in the report.
"""

from collections.abc import Iterable, Mapping

from kintsugi.core.evidence import Memory, ProcessEvidence
from kintsugi.core.page import PageReader
from kintsugi.core.reading import Unreadable
from kintsugi.core.sample import Sample, read_sample
from kintsugi.core.snapshot import Canary, CanaryOutcome, CanaryResult, Instance, Page


class Asked:
    """The canaries that the judge asked for. `infer` False: every one of them says nothing."""

    def __init__(self, infer: bool = True) -> None:
        self._infer = infer
        self._open: dict[str, Canary] = {}
        self._unsent: list[Canary] = []
        self._reader = PageReader()
        self.wanted: dict[str, int] = {}
        """By pod UID: canaries beside the idle ones, which the operator would have sent."""

    def note(self, probes: Iterable[Canary], memory: Memory) -> None:
        """Take in the canaries of one pass."""
        for canary in probes:
            process = memory.processes.get(canary.process)
            busy = process is not None and _busy(process.sample, canary.rank)
            of_stall = _held(process, canary)
            if busy or not of_stall:
                self.wanted[canary.process.uid] = self.wanted.get(canary.process.uid, 0) + 1
            if self._infer and busy and of_stall:
                self._open[canary.id] = canary
            else:
                self._unsent.append(canary)

    def results(
        self, instances: Iterable[Instance], memory: Memory, mono: float
    ) -> Mapping[str, tuple[CanaryResult, ...]]:
        """By pod UID: the canaries that end now, without a word. To be asked before the pass is judged."""
        ending, self._unsent = self._unsent, []
        self._settle(memory)
        if self._open:
            pages = {i.process: i.scrape for i in instances if isinstance(i.scrape, Page)}
            for canary in list(self._open.values()):
                page = pages.get(canary.process)
                if page is None:
                    continue
                sample = page.sample or read_sample(self._reader, page)
                if isinstance(sample, Unreadable) or not _busy(sample, canary.rank):
                    ending.append(self._open.pop(canary.id))
        found: dict[str, list[CanaryResult]] = {}
        for canary in ending:
            result = CanaryResult(canary, CanaryOutcome.NOT_SENT, mono)
            found.setdefault(canary.process.uid, []).append(result)
        return {uid: tuple(results) for uid, results in found.items()}

    def _settle(self, memory: Memory) -> None:
        """Those whose span is over are nobody's evidence any more."""
        for canary in list(self._open.values()):
            if not _held(memory.processes.get(canary.process), canary):
                del self._open[canary.id]


def _held(process: ProcessEvidence | None, canary: Canary) -> bool:
    """Whether the stall clocks wait for it: only there does a page without a step prove that it was not answered."""
    clock = process.stall.ranks.get(canary.rank) if process is not None else None
    if clock is None:
        return False
    asked = clock.admit_ping is not None and clock.admit_ping.id == canary.id
    return asked or any(ping.id == canary.id for ping in clock.pings)


def _busy(sample: Sample | None, rank: str) -> bool:
    found = sample.rank(rank) if sample is not None else None
    return found is not None and (found.load() or 0.0) > 0
