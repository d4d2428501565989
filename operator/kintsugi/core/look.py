"""Take one instance's newest page and canaries into the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kintsugi.api.healing import FragmentationTrigger, Triggers
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
from kintsugi.core.detect.stalled import Limits, Watch, hear_canaries, limits, see_failure, see_sample
from kintsugi.core.evidence import Memory, ProcessEvidence, take_page
from kintsugi.core.metric_contract import SOURCES, check
from kintsugi.core.sample import Sample
from kintsugi.core.series import Signal
from kintsugi.core.snapshot import CanaryResult, Failed, Instance
from kintsugi.core.times import Times

TELEMETRY_AGE: Final = 30.0
"""Real seconds after which an engine-side sample is stale (hang §3); engines are not sped up in a rehearsal."""


@dataclass(slots=True)
class Look:
    """One instance with its evidence after this pass's page was taken in."""

    instance: Instance
    pod: PodState
    process: ProcessEvidence | None
    limit: Limits
    new_page: bool
    """A page of this pass counts as evidence."""


def look(
    instance: Instance,
    mono: float,
    now: float,
    times: Times,
    memory: Memory,
    triggers: Triggers,
    proven: bool = False,
) -> Look:
    """Move the evidence on one instance. `mono` and `now` are the pass's times.

    `proven`: a reservation for fragmentation is committed for this very process (see `FragmentationState.proven`).
    """
    pod = memory.pod(instance.uid)
    see_pod(pod, instance, mono, now, times)
    process = memory.process(instance, mono, now, times)
    if process is None:
        return Look(instance, pod, None, _limit(instance, None, times), False)
    if instance.canaries:
        _hear(process, instance.canaries, times)
    see_devices(process.devices, instance.devices, mono, now, times)
    new_page = False
    if isinstance(instance.scrape, Failed):
        see_failure(process.stall, instance.scrape, times)
        process.blind = instance.scrape.as_reading()
    else:
        process, new_page = take_page(memory, process, instance, instance.scrape, times)
    limit = _limit(instance, process, times)
    if new_page and process.sample is not None:
        _take_sample(process, process.sample, instance, times, limit, now)
        _see_queues(process, process.sample, instance, times, memory, now)
        _see_advice(process, process.sample, triggers, times, now)
    _see_fragmentation(process, mono, now, times, triggers.fragmentation, new_page, proven)
    _see_memory(process, instance, new_page, mono, now, times)
    if instance.measured is not None or process.gpu_use.rows:
        band = triggers.gpu_utilization
        least, most = float(band.min_percent), float(band.max_percent)
        see_gpu_use(process.gpu_use, instance.measured, least, most, mono, now, times)
    return Look(instance, pod, process, limit, new_page)


def _limit(instance: Instance, process: ProcessEvidence | None, times: Times) -> Limits:
    chunked = instance.chunked_prefill or (process is not None and process.stall.chunked_proven)
    return limits(times, chunked, instance.longest_prefill)


def _hear(process: ProcessEvidence, canaries: Sequence[CanaryResult], times: Times) -> None:
    """Take in the canaries of this process that ended since the last pass."""
    ours = [result for result in canaries if result.canary.process == process.key]
    mine = [result for result in ours if result.canary.question is None]
    hear_answers(process.answers, ours)
    read_at = process.sample.mono if process.sample is not None else None
    hear_canaries(process.stall, mine, read_at, times)
    hear_errors(process.errors, mine)
    hear_asks(process.queues, mine, times)


def _take_sample(
    process: ProcessEvidence, sample: Sample, instance: Instance, times: Times, limit: Limits, now: float
) -> None:
    watch = Watch(times, limit, instance.max_num_seqs, now)
    see_sample(process.stall, process.before, sample, watch)
    if process.age(sample.mono) < times.stall_warm_up:
        process.stall.forget()
    clocks = process.stall.ranks.values()
    asked = process.answers
    answered = sum([clock.answered for clock in clocks]) + asked.answered
    still_open = sum([clock.open() for clock in clocks]) + asked.open()
    own = answered - process.answered
    see_load(process.load, process.before, sample, own, still_open, instance.max_num_seqs)
    process.answered = answered
    see_prefill(process.prefill, process.before, sample, times)
    check(process.contract, sample, times)
    process.slow.window.add(sample, answered, times, asked.tokens)
    see_errors(process.errors, sample, answered, times)
    see_nans(asked, sample, times, now)


def _see_queues(
    process: ProcessEvidence, sample: Sample, instance: Instance, times: Times, memory: Memory, now: float
) -> None:
    if process.age(sample.mono) < times.warm_up or process.stall.sleeping:
        process.queues.forget()
        return
    if not process.queues.ranks and not any(rank.waiting for rank in sample.ranks):
        return
    asked = process.errors.round
    beside = Beside(
        clocks=process.stall.ranks,
        others_open=process.answers.open() + (0 if asked is None else asked.open),
        max_num_seqs=instance.max_num_seqs,
        model=memory.slow.models.get((instance.pool, instance.revision)),
        times=times,
        now=now,
    )
    see_queue(process.queues, process.before, sample, beside)


def _see_advice(
    process: ProcessEvidence, sample: Sample, triggers: Triggers, times: Times, now: float
) -> None:
    """What no restart cures, and what a person should know."""
    see_preemptions(process.preempting, sample, triggers.preemptions.max_per_second, times, now)
    if process.age(sample.mono) < times.warm_up or process.stall.sleeping:
        process.diverging.forget()
        return
    see_cache(process.cache, sample, float(triggers.cache_hit_rate.min_percent), times, now)
    if len(sample.ranks) > 1:
        see_ranks(process.diverging, process.before, sample, times, now)


def _see_fragmentation(
    process: ProcessEvidence,
    mono: float,
    now: float,
    times: Times,
    trigger: FragmentationTrigger,
    new_page: bool,
    proven: bool,
) -> None:
    line = fragmented.Line(float(trigger.threshold_percent), times)
    sample = process.sample if new_page else None
    for gone in [source for source in process.fragmentation if source not in trigger.sources]:
        del process.fragmentation[gone]
    for source in trigger.sources:
        state = process.fragmentation.get(source)
        if state is None:
            state = process.fragmentation[source] = fragmented.FragmentationState()
        state.proven = state.proven or proven
        values: dict[str, float] = {}
        at = mono
        if sample is not None and (series := sample.telemetry.get(SOURCES[source])):
            values = _percents(series, sample.telemetry.get(Signal.SAMPLE_AGE, {}))
            if values:
                at = sample.mono
            elif process.load.idle(mono, times):
                continue
        fragmented.see(state, values or None, at, process.age(at), line, now)


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
