"""Judge one deployment: what every instance is, why, and which canaries must go out. Pure but for its own memory.

Same snapshot and memory, same answer. Missing data never counts towards Sick nor towards recovery, and nothing can be
Sick before a full window of this very process has been watched.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.classify.of_instance import start_failure
from kintsugi.core.data_state import data_state
from kintsugi.core.detect import fragmented
from kintsugi.core.detect.cache_hit import cache_finding
from kintsugi.core.detect.collapsed import Queueing, queues_pass
from kintsugi.core.detect.collapsed_findings import collapsed_findings
from kintsugi.core.detect.corrupted_findings import corrupted_findings
from kintsugi.core.detect.corrupted_looks import judge_answers
from kintsugi.core.detect.dead import dead_finding, start_finding
from kintsugi.core.detect.device_findings import device_findings
from kintsugi.core.detect.diverging import diverge_findings
from kintsugi.core.detect.error_findings import error_finding
from kintsugi.core.detect.erroring import Erring, errors_pass
from kintsugi.core.detect.gpu_trouble import gpu_trouble_findings
from kintsugi.core.detect.gpu_use import gpu_use_finding
from kintsugi.core.detect.growing_findings import growth_findings
from kintsugi.core.detect.load import load_findings
from kintsugi.core.detect.preempting import preempt_finding
from kintsugi.core.detect.prefill_blocking import prefill_finding
from kintsugi.core.detect.slow import Entry, slow_pass
from kintsugi.core.detect.slow_findings import pool_slow, slow_findings
from kintsugi.core.detect.stall_findings import Reach, silent_finding
from kintsugi.core.detect.stall_findings import findings as stall_findings
from kintsugi.core.detect.stalled import is_clear
from kintsugi.core.evidence import Memory, ProcessEvidence
from kintsugi.core.finding import Detector, Finding, InstanceVerdict, Severity
from kintsugi.core.look import Look, look
from kintsugi.core.metric_contract import NOTHING_OWED, Owed, owed
from kintsugi.core.page import PageReader
from kintsugi.core.probes import canaries, questions, starved, witnesses
from kintsugi.core.sample import Sample
from kintsugi.core.signals import signal_values, user_running
from kintsugi.core.snapshot import Canary, Instance, Snapshot
from kintsugi.core.times import Times, start_budget
from kintsugi.core.verdict import name_verdict

__all__ = ["Judgement", "Memory", "judge"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one pass found. `memory` is the one given, moved on."""

    verdicts: Mapping[str, InstanceVerdict]
    """By pod UID."""
    memory: Memory
    probes: tuple[Canary, ...] = ()
    """Canaries to send now."""
    questions: tuple[Canary, ...] = ()
    """Questions with known answers to send now; they are closed after `answer_within` seconds."""
    answer_within: float = 60.0
    abandon_after: float = 360.0
    """Seconds after which an unanswered canary may be closed: later than any verdict that it is evidence for."""
    pool_findings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By pool: what holds for all of it (`PoolSlow`)."""
    data_fresh: bool = True
    """Whether every instance that is up can be read. Missing telemetry series alone leave it True, with a reason."""
    data_reason: str = "AllRead"
    """One CamelCase word: AllRead, NothingToRead, SeriesMissing, Watching or MetricsUnavailable."""
    data_message: str = ""
    late: bool = False
    """Our own loop was late, so that every stall clock started again."""


class _Siblings(NamedTuple):
    """How many instances that were Ready once gave a page in this pass, and how long a start may take in each pool.

    `start_budgets` holds the pools in which somebody is not Ready: nobody else is asked for it, and it costs a search.
    """

    known: int
    readable: int
    by_pool: Mapping[str, int]
    start_budgets: Mapping[str, float]

    def share_without(self, one: Look) -> float:
        """The readable share of all others; 1 where there are none."""
        counted = _was_ready(one)
        known = self.known - counted
        return (self.readable - (counted and one.new_page)) / known if known else 1.0


def judge(snapshot: Snapshot, times: Times, memory: Memory) -> Judgement:
    """The verdicts on all instances of `snapshot`. `times` from `effective_times`; `memory` is moved on and returned."""
    spec, mono, now = snapshot.deployment.spec, snapshot.mono, snapshot.now
    late = memory.begin(mono, snapshot.late_by, times, snapshot.instances)
    if memory.reader.prefix != (prefix := spec.monitoring.prometheus.metric_prefix):
        memory.reader = PageReader(prefix=prefix)
    reserved = _reserved(snapshot)
    looks = [
        look(i, mono, now, times, memory, spec.healing.triggers, (i.uid, i.started_at) in reserved)
        for i in snapshot.instances
    ]
    up = [one for one in looks if _was_ready(one)]
    _judge_steps(up, memory, snapshot, times)
    _judge_errors(up, snapshot, times)
    _judge_queues(up, snapshot, times)
    judge_answers(up, memory.answers, snapshot, times)
    siblings = _Siblings(
        known=len(up),
        readable=sum(one.new_page for one in up),
        by_pool=Counter(one.instance.pool for one in up),
        start_budgets={
            pool: start_budget(spec, pool)
            for pool in {i.pool for i in snapshot.instances if not i.ready or i.started_at is None}
        },
    )
    verdicts = {one.instance.uid: _judge_one(one, siblings, snapshot, times) for one in looks}
    state = data_state(verdicts.values(), snapshot.instances, snapshot.unmeasured)
    longest = max((one.limit.remove for one in looks), default=times.stall_remove)
    return Judgement(
        verdicts=verdicts,
        memory=memory,
        probes=(*canaries(looks, mono, times), *witnesses(looks, mono, times), *starved(looks, mono, times)),
        questions=questions(looks, mono, times),
        answer_within=times.corrupted_burst,
        abandon_after=longest + times.canary_idle,
        pool_findings=pool_slow(memory.slow, times),
        data_fresh=state.fresh,
        data_reason=state.reason,
        data_message=state.message,
        late=late,
    )


def _judge_steps(up: Sequence[Look], memory: Memory, snapshot: Snapshot, times: Times) -> None:
    mono = snapshot.mono
    revisions = {(one.instance.pool, one.instance.revision) for one in up}
    revisions |= {(rs.pool, rs.revision) for rs in snapshot.replica_sets}
    memory.slow.models = {key: model for key, model in memory.slow.models.items() if key in revisions}
    entries = [
        Entry(
            pool=one.instance.pool,
            revision=one.instance.revision,
            state=process.slow,
            fresh=one.new_page and process.age(mono) >= times.warm_up and not process.stall.sleeping,
            watched=process.age(process.first_seen) < times.warm_up,
        )
        for one in up
        if (process := one.process) is not None and not one.instance.deleting
    ]
    drop = float(snapshot.deployment.spec.healing.triggers.throughput.drop_percent)
    slow_pass(entries, memory.slow, mono, snapshot.now, times, drop)


def _judge_errors(up: Sequence[Look], snapshot: Snapshot, times: Times) -> None:
    mono = snapshot.mono
    entries = [
        Erring(
            uid=one.instance.uid,
            pool=one.instance.pool,
            state=process.errors,
            judged=process.warm(mono, times) and not one.instance.deleting,
        )
        for one in up
        if (process := one.process) is not None
    ]
    limit = float(snapshot.deployment.spec.healing.triggers.errors.max_percent)
    errors_pass(entries, mono, snapshot.now, times, limit)


def _judge_queues(up: Sequence[Look], snapshot: Snapshot, times: Times) -> None:
    mono = snapshot.mono
    entries = [
        Queueing(
            uid=one.instance.uid,
            pool=one.instance.pool,
            state=process.queues,
            judged=process.warm(mono, times) and not one.instance.deleting,
        )
        for one in up
        if (process := one.process) is not None and process.queues.ranks
    ]
    if entries:
        queues_pass(entries, Counter(one.instance.pool for one in up), mono, times)


def _reserved(snapshot: Snapshot) -> set[tuple[str, float | None]]:
    """Processes (pod UID and container start) for which a remediation of fragmentation is committed and not over."""
    return {
        (a.uid, a.started_at.timestamp() if a.started_at else None)
        for a in snapshot.deployment.status.remediations.active
        if a.trigger == Detector.FRAGMENTED.value and a.outcome is None
    }


def _judge_one(one: Look, siblings: _Siblings, snapshot: Snapshot, times: Times) -> InstanceVerdict:
    instance, process, mono = one.instance, one.process, snapshot.mono
    spec = snapshot.deployment.spec
    fresh = process is not None and process.fresh(mono, times)
    owes = _owed(process, instance, snapshot, times) if process is not None and fresh else NOTHING_OWED
    found = [] if instance.deleting else _findings(one, siblings, snapshot, times)
    found.sort(key=lambda finding: -finding.severity)
    named = name_verdict(one, found, mono, times)
    running = None if process is None else user_running(process, mono, times)
    return InstanceVerdict(
        uid=instance.uid,
        name=instance.name,
        pool=instance.pool,
        verdict=named.verdict,
        reason=named.reason,
        message=named.message,
        findings=tuple(found),
        signals={} if process is None else signal_values(process, running, mono, times),
        fresh=fresh,
        missing=owes.names,
        lacking=owes.lacking,
        running=running,
        page_age=mono - process.sample.mono if process is not None and process.sample is not None else 0.0,
        last_progress_seconds=None if process is None else _last_progress(process, mono),
        cleared=_cleared(one, found, mono, times, spec),
    )


def _findings(one: Look, siblings: _Siblings, snapshot: Snapshot, times: Times) -> list[Finding]:
    instance, process, mono, now = one.instance, one.process, snapshot.mono, snapshot.now
    spec = snapshot.deployment.spec
    budget = siblings.start_budgets.get(instance.pool, math.inf) / spec.healing.speed_up
    about_life = (
        dead_finding(one.pod, instance, mono, budget, times),
        start_finding(one.pod, instance, now, budget, start_failure(instance, spec)),
    )
    found = [finding for finding in about_life if finding is not None]
    if process is None or process.ready_at is None:
        return found
    fresh = process.fresh(mono, times)
    reach = Reach(fresh, _recent(process, mono, times))
    found += stall_findings(process.stall, process.sample, reach, times, one.limit)
    if process.stall.silent >= times.silent:
        found.append(silent_finding(process.stall, instance.ready, siblings.share_without(one), now))
    line = fragmented.Line(float(spec.healing.triggers.fragmentation.threshold_percent), times)
    for source, state in process.fragmentation.items():
        about = fragmented.finding(state, source, line, fresh)
        found += [about] if about is not None else []
    limit = float(spec.healing.triggers.errors.max_percent)
    failing = error_finding(process.errors, fresh, limit, now)
    found += [failing] if failing is not None else []
    if process.memory.forecast is not None:
        found += growth_findings(process.memory, mono, now, times)
    found += corrupted_findings(process.answers, fresh, now, times)
    if instance.measured is not None:
        found += gpu_trouble_findings(instance.measured, now)
        band = spec.healing.triggers.gpu_utilization
        used = gpu_use_finding(process.gpu_use, float(band.min_percent), float(band.max_percent))
        found += [used] if used is not None else []
    if process.devices.clocks:
        found += device_findings(process.devices, instance.node, now, times)
    if process.queues.ranks:
        found += collapsed_findings(process.queues, process.stall.ranks, fresh, mono, now, times)
    found += slow_findings(process.slow, siblings.by_pool[instance.pool], now, times)
    if fresh and process.sample is not None:
        found += load_findings(process.load, process.sample, process.missing_ranks, now, times)
        found += _advice(process, process.sample, spec, now, times)
    return found


def _advice(
    process: ProcessEvidence, sample: Sample, spec: DeploymentSpec, now: float, times: Times
) -> list[Finding]:
    """What is to be said of cache, preemptions and ranks; most instances have nothing of it."""
    triggers = spec.healing.triggers
    found: list[Finding | None] = []
    if process.cache.below_since is not None:
        found.append(cache_finding(process.cache, float(triggers.cache_hit_rate.min_percent)))
    if process.preempting.over_since is not None:
        most, full = triggers.preemptions.max_per_second, process.load.saturated(times)
        found.append(preempt_finding(process.preempting, sample, full, most))
    if process.diverging.apart:
        found += diverge_findings(process.diverging, now, times)
    found.append(prefill_finding(process.prefill, sample, now, times))
    return [finding for finding in found if finding is not None]


def _recent(process: ProcessEvidence, mono: float, times: Times) -> bool:
    """Whether the newest readable page is recent enough for a removal: at most two scrape intervals old (hang §1.3)."""
    return process.sample is not None and mono - process.sample.mono <= times.recent


def _was_ready(one: Look) -> bool:
    return one.process is not None and one.process.ready_at is not None


def _owed(process: ProcessEvidence, instance: Instance, snapshot: Snapshot, times: Times) -> Owed:
    ranks = len(process.sample.ranks) if process.sample is not None else 0
    spec = snapshot.deployment.spec
    return owed(process.contract, ranks, process.memory, spec, instance, snapshot.mono, times)


def _last_progress(process: ProcessEvidence, mono: float) -> float | None:
    seen = [clock.last_progress for clock in process.stall.ranks.values() if clock.last_progress is not None]
    return mono - max(seen) if seen else None


def _cleared(
    one: Look, found: Sequence[Finding], mono: float, times: Times, spec: DeploymentSpec
) -> frozenset[Detector]:
    """Detectors whose symptom is positively gone: fresh data says so, absence never does."""
    process = one.process
    cleared: set[Detector] = set()
    sick = {finding.detector for finding in found if finding.severity >= Severity.SUSPECT} if found else set()
    if one.instance.ready and Detector.DEAD not in sick:
        cleared.add(Detector.DEAD)
    if process is None or not process.fresh(mono, times):
        return frozenset(cleared)
    if is_clear(process.stall) and Detector.STALLED not in sick:
        cleared.add(Detector.STALLED)
    if process.slow.cleared and Detector.SLOW not in sick:
        cleared.add(Detector.SLOW)
    if process.errors.cleared and Detector.ERRORING not in sick:
        cleared.add(Detector.ERRORING)
    if process.answers.cleared and Detector.CORRUPTED not in sick:
        cleared.add(Detector.CORRUPTED)
    if process.devices.cleared and Detector.DEVICE not in sick:
        cleared.add(Detector.DEVICE)
    if process.memory.cleared and process.memory.fresh(mono, times):
        cleared.add(Detector.GROWING)
    if process.queues.cleared and Detector.COLLAPSED not in sick:
        cleared.add(Detector.COLLAPSED)
    states = [
        process.fragmentation[s]
        for s in spec.healing.triggers.fragmentation.sources
        if s in process.fragmentation
    ]
    known = [state for state in states if state.value is not None]
    if known and all(state.cleared for state in known) and Detector.FRAGMENTED not in sick:
        cleared.add(Detector.FRAGMENTED)
    return frozenset(cleared)
