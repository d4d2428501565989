"""Take one instance's newest page and canaries into the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kintsugi.core.detect import fragmented
from kintsugi.core.detect.cache_hit import see_cache
from kintsugi.core.detect.collapsed import Beside, hear_asks, see_queue
from kintsugi.core.detect.corrupted import hear_answers, see_nans
from kintsugi.core.detect.dead import PodState, see_pod
from kintsugi.core.detect.device import see_devices
from kintsugi.core.detect.diverging import see_ranks
from kintsugi.core.detect.erroring import hear as hear_errors
from kintsugi.core.detect.erroring import see_errors
from kintsugi.core.detect.gpu_use import see_gpu_use
from kintsugi.core.detect.growing import level_of, see_memory
from kintsugi.core.detect.load import see_load
from kintsugi.core.detect.preempting import see_preemptions
from kintsugi.core.detect.prefill_blocking import see_prefill
from kintsugi.core.detect.stalled import Limits, Watch, hear_canaries, see_failure, see_sample
from kintsugi.core.evidence import Memory, ProcessEvidence, take_page
from kintsugi.core.metric_contract import SOURCES, check
from kintsugi.core.sample import Sample
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import CanaryResult, Failed, Instance
from kintsugi.core.terms import Terms
from kintsugi.core.times import Times

TELEMETRY_AGE: Final = 30.0
"""Real seconds after which an engine-side sample is stale (hang §3); engines are not sped up in a rehearsal."""
_SAMPLE_AGE: Final = Signal.SAMPLE_AGE


@dataclass(slots=True)
class Look:
    """One instance with its evidence after this pass's page was taken in."""

    instance: Instance
    pod: PodState
    process: ProcessEvidence | None
    limit: Limits
    new_page: bool = False
    """A page of this pass counts as evidence."""
    up: bool = False
    """Its process has been Ready."""
    settled: bool = False
    """And that is longer ago than its warm-up, and it does not sleep."""
    fresh: bool = False
    """A page of its process was readable within the gap that evidence may have."""


def look(instance: Instance, memory: Memory, terms: Terms, proven: bool = False) -> Look:
    """Move the evidence on one instance.

    `proven`: a reservation for fragmentation is committed for this very process (see `FragmentationState.proven`).
    """
    mono, now, times = terms.mono, terms.now, terms.times
    pod = memory.pod(instance.uid)
    see_pod(pod, instance, mono, now, times)
    process = memory.process(instance, mono, now, times)
    if process is None:
        return Look(instance, pod, None, _limit(instance, None, terms))
    if instance.canaries:
        _hear(process, instance.canaries, times)
    see_devices(process.devices, instance.devices, mono, now, times)
    new_page = False
    if isinstance(instance.scrape, Failed):
        see_failure(process.stall, instance.scrape, times)
        process.blind = instance.scrape.as_reading()
    else:
        process, new_page = take_page(memory, process, instance, instance.scrape, times)
    limit = _limit(instance, process, terms)
    if new_page and process.sample is not None:
        _take_sample(process, process.sample, instance, times, limit, now)
        settled = process.settled(process.sample.mono, times)
        _see_queues(process, process.sample, settled, instance, times, memory, now)
        _see_advice(process, process.sample, settled, terms)
    _see_fragmentation(process, terms, new_page, proven)
    _see_memory(process, instance, new_page, mono, now, times)
    if instance.measured is not None or process.gpu_use.rows:
        see_gpu_use(process.gpu_use, instance.measured, *terms.gpu_band, mono, now, times)
    return Look(
        instance,
        pod,
        process,
        limit,
        new_page,
        up=process.ready_at is not None,
        settled=process.settled(mono, times),
        fresh=process.fresh(mono, times),
    )


def _limit(instance: Instance, process: ProcessEvidence | None, terms: Terms) -> Limits:
    chunked = instance.chunked_prefill or (process is not None and process.stall.chunked_proven)
    return terms.limits(chunked, instance.longest_prompt)


def _hear(process: ProcessEvidence, canaries: Sequence[CanaryResult], times: Times) -> None:
    """Take in the canaries of this process that ended since the last pass."""
    ours = [result for result in canaries if result.canary.process == process.key]
    mine = [result for result in ours if result.canary.question is None]
    hear_answers(process.answers, ours)
    read_at = process.sample.mono if process.sample is not None else None
    hear_canaries(process.stall, mine, read_at, times)
    hear_errors(process.errors, ours)
    hear_asks(process.queues, mine, times)


def _take_sample(
    process: ProcessEvidence, sample: Sample, instance: Instance, times: Times, limit: Limits, now: float
) -> None:
    watch = Watch(times, limit, instance.max_num_seqs, now)
    see_sample(process.stall, process.before, sample, watch)
    if process.age(sample.mono) < times.stall_warm_up:
        process.stall.forget()
    asked = process.answers
    answered, still_open = asked.answered, asked.open()
    for clock in process.stall.ranks.values():
        answered += clock.answered
        still_open += clock.open()
    own = answered - process.answered
    see_load(process.load, process.before, sample, own, still_open, instance.max_num_seqs)
    process.answered = answered
    see_prefill(process.prefill, process.before, sample, times)
    check(process.contract, sample, times)
    process.slow.window.add(sample, answered, times, asked.tokens)
    see_errors(process.errors, sample, answered, times)
    see_nans(asked, sample, times, now)


def _see_queues(
    process: ProcessEvidence,
    sample: Sample,
    settled: bool,
    instance: Instance,
    times: Times,
    memory: Memory,
    now: float,
) -> None:
    if not settled:
        process.queues.forget()
        return
    if not process.queues.ranks and not any(rank.waiting for rank in sample.ranks):
        return
    asked = process.errors.round
    beside = Beside(
        clocks=process.stall.ranks,
        others_open=process.answers.open() + (0 if asked is None else asked.open),
        max_num_seqs=instance.max_num_seqs,
        model=memory.slow.any_model(instance.pool, instance.revision),
        times=times,
        now=now,
    )
    see_queue(process.queues, process.before, sample, beside)


def _see_advice(process: ProcessEvidence, sample: Sample, settled: bool, terms: Terms) -> None:
    """What no restart cures, and what a person should know."""
    times, now = terms.times, terms.now
    see_preemptions(process.preempting, sample, terms.max_preemptions, times, now)
    if not settled:
        process.diverging.forget()
        return
    see_cache(process.cache, sample, terms.min_hit_percent, times, now)
    if len(sample.ranks) > 1:
        see_ranks(process.diverging, process.before, sample, times, now)


def _see_fragmentation(process: ProcessEvidence, terms: Terms, new_page: bool, proven: bool) -> None:
    states, mono = process.fragmentation, terms.mono
    sample = process.sample if new_page else None
    for source in terms.sources:
        state = states.get(source)
        if state is None:
            state = states[source] = fragmented.FragmentationState()
        state.proven = state.proven or proven
        values: dict[str, float] = {}
        at = mono
        if sample is not None and (series := sample.telemetry.get(SOURCES[source])):
            values = _percents(series, sample.telemetry.get(_SAMPLE_AGE, {}))
            if values:
                at = sample.mono
            elif process.load.idle(mono, terms.times):
                continue
        fragmented.see(state, values or None, at, process.age(at), terms.line, terms.now)
    if len(states) > len(terms.sources):
        for gone in [source for source in states if source not in terms.sources]:
            del states[gone]


def _see_memory(
    process: ProcessEvidence, instance: Instance, new_page: bool, mono: float, now: float, times: Times
) -> None:
    """The engine's own word counts once for each page, a Prometheus server's as long as it is young.

    Of a pod that was Ready before this operator began and is not now, nobody knows how old its process is.
    """
    if process.ready_at is None and instance.served_before:
        return
    sample = process.sample
    telemetry = sample.telemetry if new_page and sample is not None else {}
    level = level_of(telemetry, instance.measured, instance.memory_limit, mono)
    see_memory(process.memory, level, process.age(mono), instance.offload, mono, now, times)


def _percents(series: Mapping[str, float], ages: Mapping[str, float]) -> dict[str, float]:
    """What the engine side measured of late, by worker. One age without a worker's name is that of all of them, and
    none at all means that it does not say: then all is of now."""
    if not ages:
        return {worker: 100.0 * v for worker, v in series.items()}
    of_all = next(iter(ages.values())) if len(ages) == 1 else 0.0
    return {worker: 100.0 * v for worker, v in series.items() if ages.get(worker, of_all) <= TELEMETRY_AGE}
