"""What the judge remembers between passes. Losing it delays every verdict and hastens none.

Evidence is kept by process (pod UID and container start), so nothing crosses a restart; a process that is gone is
forgotten. Windows are measured on the monotonic clock; the wall clock is only for people.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kintsugi.core.detect.cache_hit import CacheState
from kintsugi.core.detect.collapsed import QueueState
from kintsugi.core.detect.corrupted import TRIES, AnswerState
from kintsugi.core.detect.corrupted_pass import AnswerMemory
from kintsugi.core.detect.dead import PodState
from kintsugi.core.detect.device import DeviceState
from kintsugi.core.detect.diverging import DivergeState
from kintsugi.core.detect.erroring import ErrorState
from kintsugi.core.detect.fragmented import FragmentationState, WorkerState
from kintsugi.core.detect.gpu_use import GpuUseState
from kintsugi.core.detect.growing import MemoryState
from kintsugi.core.detect.load import LoadState
from kintsugi.core.detect.preempting import PreemptState
from kintsugi.core.detect.prefill_blocking import PrefillState
from kintsugi.core.detect.slow import SlowMemory, SlowState
from kintsugi.core.detect.stalled import StallState
from kintsugi.core.kept import Answers, Kept, mark_of
from kintsugi.core.metric_contract import ContractState
from kintsugi.core.page import PageReader
from kintsugi.core.reading import Unreadable
from kintsugi.core.sample import Sample, fell, missing_ranks, read_sample
from kintsugi.core.snapshot import Instance, Page, ProcessKey
from kintsugi.core.terms import Terms
from kintsugi.core.times import Times

REPEATED = "RepeatedPage: the same page again, down to the process's own CPU time"


@dataclass(slots=True)
class ProcessEvidence:
    """All that is known of one engine process. Monotonic seconds."""

    key: ProcessKey
    stall: StallState
    first_seen: float
    ready_at: float | None = None
    """When it was first Ready, as far as known; None where it never was."""
    unready_at: float | None = None
    """When it was last seen not to have been Ready ever; None where it was Ready at first sight."""
    sample: Sample | None = None
    before: Sample | None = None
    """The readable page before `sample`."""
    page_hash: int | None = None
    blind: Unreadable | None = None
    """Why the newest page could not be read; None where it could."""
    fragmentation: dict[str, FragmentationState] = field(default_factory=dict)
    """By source."""
    ranks: tuple[str, ...] = ()
    """Every rank seen in this process, in order."""
    missing_ranks: tuple[str, ...] = ()
    slow: SlowState = field(default_factory=SlowState)
    load: LoadState = field(default_factory=LoadState)
    errors: ErrorState = field(default_factory=ErrorState)
    answers: AnswerState = field(default_factory=AnswerState)
    queues: QueueState = field(default_factory=QueueState)
    devices: DeviceState = field(default_factory=DeviceState)
    cache: CacheState = field(default_factory=CacheState)
    preempting: PreemptState = field(default_factory=PreemptState)
    memory: MemoryState = field(default_factory=MemoryState)
    gpu_use: GpuUseState = field(default_factory=GpuUseState)
    contract: ContractState = field(default_factory=ContractState)
    prefill: PrefillState = field(default_factory=PrefillState)
    diverging: DivergeState = field(default_factory=DivergeState)
    answered: int = 0
    """Own canaries and questions answered up to the last page."""

    def age(self, mono: float) -> float:
        """Seconds since this process was first Ready; negative where it never was."""
        return -1.0 if self.ready_at is None else mono - self.ready_at

    def settled(self, mono: float, times: Times) -> bool:
        """Past its warm-up, and awake."""
        return self.age(mono) >= times.warm_up and not self.stall.sleeping

    def fresh(self, mono: float, times: Times) -> bool:
        """Whether a page was readable within the gap that evidence may have."""
        return self.sample is not None and mono - self.sample.mono <= times.readable_gap


@dataclass(slots=True)
class Memory:
    """The judge's memory of one deployment. A new one is what an operator restart leaves."""

    reader: PageReader = field(default_factory=PageReader)
    pods: dict[str, PodState] = field(default_factory=dict)
    processes: dict[ProcessKey, ProcessEvidence] = field(default_factory=dict)
    slow: SlowMemory = field(default_factory=SlowMemory)
    answers: AnswerMemory = field(default_factory=AnswerMemory)
    kept: dict[ProcessKey, Kept] = field(default_factory=dict)
    """What was learned before an operator restart, until a page shows whether its process still runs (`core.learned`)."""
    last_mono: float | None = None
    terms: Terms | None = None
    """Of the last pass."""

    def begin(self, mono: float, late_by: float, times: Times, instances: Iterable[Instance]) -> bool:
        """Start a pass: forget what is gone; True where our own loop was late, so that every clock starts again."""
        self._forget_all_but({i.uid: i.started_at for i in instances})
        gap = 0.0 if self.last_mono is None else mono - self.last_mono
        self.last_mono = mono
        late = late_by > times.late_limit or gap > times.readable_gap + times.late_limit
        if late:
            for process in self.processes.values():
                process.stall.forget()
                process.queues.forget()
                process.devices.forget()
                process.answers.forget()
        return late

    def _forget_all_but(self, started: Mapping[str, float | None]) -> None:
        """Keep pods that are here, and processes that still run. `started`: when each pod's process began, by UID."""
        for uid in [uid for uid in self.pods if uid not in started]:
            del self.pods[uid]
        for key in [key for key in self.processes if started.get(key.uid) != key.started_at]:
            del self.processes[key]
        for key in [key for key in self.kept if key.uid not in started]:
            del self.kept[key]

    def pod(self, uid: str) -> PodState:
        """The evidence of one pod over its processes."""
        found = self.pods.get(uid)
        if found is None:
            found = self.pods[uid] = PodState()
        return found

    def process(self, instance: Instance, mono: float, now: float, times: Times) -> ProcessEvidence | None:
        """The evidence of the instance's running process; None while none runs."""
        key = instance.process
        if key is None:
            return None
        found = self.processes.get(key)
        if found is None:
            found = self.processes[key] = new_process(key, mono, times)
        if found.ready_at is None and not instance.ready:
            found.unready_at = mono
        elif found.ready_at is None:
            ready_for = 0.0 if instance.ready_since is None else max(0.0, now - instance.ready_since)
            if found.unready_at is not None:  # the kubelet's clock and ours may differ, what we saw does not
                ready_for = min(ready_for, mono - found.unready_at)
            found.ready_at = mono - ready_for
        return found

    def restart(self, old: ProcessEvidence, instance: Instance, mono: float, times: Times) -> ProcessEvidence:
        """A counter fell: a new process under the old key. Everything starts again, its warm-up too."""
        fresh = self.processes[old.key] = new_process(old.key, mono, times)
        fresh.ready_at = mono if instance.ready else None
        return fresh


def new_process(key: ProcessKey, mono: float, times: Times) -> ProcessEvidence:
    """Evidence of a process of which nothing is known yet; its first idle canary falls at its own place in a minute."""
    place = zlib.crc32(key.uid.encode()) / 2**32
    return ProcessEvidence(key, StallState(first_canary=mono + place * times.canary_idle), mono)


def kept_of(process: ProcessEvidence) -> Kept:
    """What is worth keeping of `process` over a restart of the operator: what its start was like, and no evidence."""
    references = {
        source: {name: w.reference for name, w in state.workers.items() if w.reference is not None}
        for source, state in process.fragmentation.items()
    }
    memory, asked = process.memory, process.answers
    began = memory.reference if memory.from_start else None
    return Kept(
        baseline=process.slow.baseline,
        counted=bool(process.slow.counted),
        references={source: workers for source, workers in references.items() if workers},
        memory=None if began is None or memory.source is None else (memory.source, began),
        answers=Answers(dict(asked.first), frozenset(asked.refused)) if asked.complete() else None,
        mark=mark_of(process.sample),
    )


def _restore(process: ProcessEvidence, kept: Kept | None, sample: Sample) -> None:
    """Give a process back what is kept of it, where its first page shows that it is the same one."""
    if kept is None or not kept.mark.of_the_process(sample):
        return
    if kept.baseline is not None:
        process.slow.baseline, process.slow.counted = kept.baseline, kept.counted
    for source, workers in kept.references.items():
        state = process.fragmentation.setdefault(source, FragmentationState())
        state.workers = {name: WorkerState(reference=value) for name, value in workers.items()}
    if kept.memory is not None:
        process.memory = MemoryState(source=kept.memory[0], reference=kept.memory[1], from_start=True)
    if kept.answers is not None:
        asked = process.answers
        asked.first, asked.refused = dict(kept.answers.first), set(kept.answers.refused)
        asked.tries, asked.round, asked.retold = TRIES, None, True


def take_page(
    memory: Memory, process: ProcessEvidence, instance: Instance, page: Page, times: Times
) -> tuple[ProcessEvidence, bool]:
    """Read one page into the evidence. The process's evidence (a new one after a reset), and whether the page counts."""
    if process.sample is not None and page.mono <= process.sample.mono:
        return process, False
    page_hash = hash(page.text) if page.sample is None else None
    repeated = page_hash is not None and page_hash == process.page_hash
    if repeated and process.sample is not None and process.sample.moves_by_itself:
        process.blind = Unreadable(REPEATED)
        return process, False
    sample = page.sample or read_sample(memory.reader, page)
    if isinstance(sample, Unreadable):
        process.blind = sample
        return process, False
    if process.sample is not None and fell(process.sample, sample) is not None:
        process = memory.restart(process, instance, page.mono, times)
    if process.sample is None:
        _restore(process, memory.kept.pop(process.key, None), sample)
    process.before, process.sample, process.page_hash, process.blind = process.sample, sample, page_hash, None
    _see_ranks(process, sample)
    return process, True


def _see_ranks(process: ProcessEvidence, sample: Sample) -> None:
    names = tuple([rank.rank for rank in sample.ranks])
    if names == process.ranks:
        process.missing_ranks = ()
        return
    process.missing_ranks = missing_ranks(process.ranks, sample)
    process.ranks = tuple(sorted({*process.ranks, *names}))
