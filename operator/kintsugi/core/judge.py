"""Judge one deployment: what every instance is, why, and which canaries must go out. Pure but for its own memory.

Same snapshot and memory, same answer. Missing data never counts towards Sick nor towards recovery, and nothing can be
Sick before a full window of this very process has been watched.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from operator import attrgetter
from typing import Final, NamedTuple

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
from kintsugi.core.frozen import frozen
from kintsugi.core.look import Look, look
from kintsugi.core.metric_contract import NOTHING_OWED, Owed, owed
from kintsugi.core.page import PageReader
from kintsugi.core.probes import QUESTIONS_AT_ONCE, canaries, openers, questions, starved, witnesses
from kintsugi.core.sample import Sample
from kintsugi.core.signals import signal_values, user_running
from kintsugi.core.snapshot import Canary, Instance, Snapshot
from kintsugi.core.terms import Terms, terms_of
from kintsugi.core.times import Times, start_budget
from kintsugi.core.verdict import name_verdict

__all__ = ["Judgement", "Memory", "judge"]

_DEAD: Final = Detector.DEAD
_STALLED: Final = Detector.STALLED
_SLOW: Final = Detector.SLOW
_FRAGMENTED: Final = Detector.FRAGMENTED
"""Nearly every look at an instance asks for these, and a member costs ten times what a name does."""


@frozen
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
        known = self.known - one.up
        return (self.readable - (one.up and one.new_page)) / known if known else 1.0


def judge(snapshot: Snapshot, times: Times, memory: Memory) -> Judgement:
    """The verdicts on all instances of `snapshot`. `times` from `effective_times`; `memory` is moved on and returned."""
    mono = snapshot.mono
    terms = memory.terms = terms_of(snapshot, times, memory.terms)
    late = memory.begin(mono, snapshot.late_by, times, snapshot.instances)
    if memory.reader.prefix != terms.metric_prefix:
        memory.reader = PageReader(prefix=terms.metric_prefix)
    reserved = _reserved(snapshot)
    looks = [look(i, memory, terms, (i.uid, i.started_at) in reserved) for i in snapshot.instances]
    up = [one for one in looks if one.up]
    revisions = {(one.instance.pool, one.instance.revision) for one in up}
    revisions |= {(rs.pool, rs.revision) for rs in snapshot.replica_sets}
    by_pool = _by_pool(up)
    _judge_steps(up, memory, revisions, terms)
    _judge_errors(up, terms)
    _judge_queues(up, by_pool, snapshot, times)
    judge_answers(up, memory.answers, revisions, snapshot, times)
    siblings = _Siblings(
        known=len(up),
        readable=sum([one.new_page for one in up]),
        by_pool=by_pool,
        start_budgets={
            pool: start_budget(terms.spec, pool)
            for pool in {i.pool for i in snapshot.instances if not i.ready or i.started_at is None}
        },
    )
    verdicts = {one.instance.uid: _judge_one(one, siblings, terms) for one in looks}
    state = data_state(verdicts.values(), snapshot.instances, snapshot.unmeasured)
    asked = questions(looks, mono, times)
    longest = max([one.limit.remove for one in looks], default=times.stall_remove)
    return Judgement(
        verdicts=verdicts,
        memory=memory,
        probes=(*canaries(looks, mono, times), *witnesses(looks, mono, times), *starved(looks, mono, times)),
        questions=(*asked, *openers(looks, mono, times, QUESTIONS_AT_ONCE - len(asked))),
        answer_within=times.corrupted_burst,
        abandon_after=longest + times.canary_idle,
        pool_findings=pool_slow(memory.slow, times),
        data_fresh=state.fresh,
        data_reason=state.reason,
        data_message=state.message,
        late=late,
    )


def _by_pool(up: Iterable[Look]) -> dict[str, int]:
    """How many instances each pool has. Written out: for the few of a pass a `Counter` costs several times as much."""
    counts: dict[str, int] = {}
    for one in up:
        pool = one.instance.pool
        counts[pool] = counts.get(pool, 0) + 1
    return counts


def _judge_steps(up: Sequence[Look], memory: Memory, revisions: set[tuple[str, str]], terms: Terms) -> None:
    times = terms.times
    for gone in [key for key in memory.slow.models if (key.pool, key.revision) not in revisions]:
        del memory.slow.models[gone]
    entries = [
        Entry(
            pool=one.instance.pool,
            revision=one.instance.revision,
            state=process.slow,
            fresh=one.new_page and one.settled,
            watched=process.age(process.first_seen) < times.warm_up,
        )
        for one in up
        if (process := one.process) is not None and not one.instance.deleting
    ]
    slow_pass(entries, memory.slow, terms.mono, terms.now, times, terms.max_drop_percent)


def _judge_errors(up: Sequence[Look], terms: Terms) -> None:
    entries = [
        Erring(
            uid=one.instance.uid,
            pool=one.instance.pool,
            state=process.errors,
            judged=one.settled and one.fresh and not one.instance.deleting,
        )
        for one in up
        if (process := one.process) is not None
    ]
    errors_pass(entries, terms.mono, terms.now, terms.times, terms.max_error_percent)


def _judge_queues(up: Sequence[Look], by_pool: Mapping[str, int], snapshot: Snapshot, times: Times) -> None:
    mono = snapshot.mono
    entries = [
        Queueing(
            uid=one.instance.uid,
            pool=one.instance.pool,
            state=process.queues,
            judged=one.settled and one.fresh and not one.instance.deleting,
        )
        for one in up
        if (process := one.process) is not None and process.queues.ranks
    ]
    if entries:
        queues_pass(entries, by_pool, mono, times)


def _reserved(snapshot: Snapshot) -> set[tuple[str, float | None]]:
    """Processes (pod UID and container start) for which a remediation of fragmentation is committed and not over."""
    return {
        (a.uid, a.started_at.timestamp() if a.started_at else None)
        for a in snapshot.deployment.status.remediations.active
        if a.trigger == Detector.FRAGMENTED.value and a.outcome is None
    }


def _judge_one(one: Look, siblings: _Siblings, terms: Terms) -> InstanceVerdict:
    instance, process, mono, times = one.instance, one.process, terms.mono, terms.times
    owes = _owed(process, instance, terms) if process is not None and one.fresh else NOTHING_OWED
    found = [] if instance.deleting else _findings(one, siblings, terms)
    found.sort(key=attrgetter("severity"), reverse=True)
    named = name_verdict(one, found, mono, times)
    running = None if process is None else user_running(process, one.fresh)
    return InstanceVerdict(
        uid=instance.uid,
        name=instance.name,
        pool=instance.pool,
        verdict=named.verdict,
        reason=named.reason,
        message=named.message,
        findings=tuple(found),
        signals={} if process is None else signal_values(process, one.fresh, running, mono, times),
        fresh=one.fresh,
        missing=owes.names,
        lacking=owes.lacking,
        running=running,
        page_age=mono - process.sample.mono if process is not None and process.sample is not None else 0.0,
        last_progress_seconds=None if process is None else _last_progress(process, mono),
        cleared=_cleared(one, found, terms),
    )


def _findings(one: Look, siblings: _Siblings, terms: Terms) -> list[Finding]:
    process, mono, now, times, fresh = one.process, terms.mono, terms.now, terms.times, one.fresh
    found = _of_life(one, siblings, terms)
    if process is None or not one.up:
        return found
    reach = Reach(fresh, _recent(process, mono, times))
    found += stall_findings(process.stall, process.sample, reach, times, one.limit)
    if process.stall.silent >= times.silent:
        found.append(silent_finding(process.stall, one.instance.ready, siblings.share_without(one), now))
    for source, state in process.fragmentation.items():
        about = fragmented.finding(state, source, terms.line, fresh)
        found += [about] if about is not None else []
    failing = error_finding(process.errors, fresh, terms.max_error_percent, now)
    found += [failing] if failing is not None else []
    if process.memory.forecast is not None:
        found += growth_findings(process.memory, mono, now, times)
    found += corrupted_findings(process.answers, fresh, now, times)
    if one.instance.measured is not None:
        found += gpu_trouble_findings(one.instance.measured, now)
        used = gpu_use_finding(process.gpu_use, *terms.gpu_band)
        found += [used] if used is not None else []
    if process.devices.clocks:
        found += device_findings(process.devices, one.instance.node, now, times)
    if process.queues.ranks:
        found += collapsed_findings(process.queues, process.stall.ranks, fresh, mono, now, times)
    found += slow_findings(process.slow, siblings.by_pool[one.instance.pool], now, times)
    if fresh and process.sample is not None:
        found += load_findings(process.load, process.sample, process.missing_ranks, now, times)
        found += _advice(process, process.sample, terms)
    return found


def _of_life(one: Look, siblings: _Siblings, terms: Terms) -> list[Finding]:
    """What is to be said of the pod's life and of its start."""
    instance, mono, now = one.instance, terms.mono, terms.now
    budget = siblings.start_budgets.get(instance.pool, math.inf) / terms.speed_up
    about = dead_finding(one.pod, instance, mono, budget, terms.times)
    found = [] if about is None else [about]
    if not instance.ready:
        start = start_finding(one.pod, instance, now, budget, start_failure(instance, terms.spec))
        found += [] if start is None else [start]
    return found


def _advice(process: ProcessEvidence, sample: Sample, terms: Terms) -> list[Finding]:
    """What is to be said of cache, preemptions and ranks; most instances have nothing of it."""
    found: list[Finding | None] = []
    if process.cache.below_since is not None:
        found.append(cache_finding(process.cache, terms.min_hit_percent))
    if process.preempting.over_since is not None:
        full = process.load.saturated(terms.times)
        found.append(preempt_finding(process.preempting, sample, full, terms.max_preemptions))
    if process.diverging.apart:
        found += diverge_findings(process.diverging, terms.now, terms.times)
    if process.prefill.ranks:
        found.append(prefill_finding(process.prefill, sample, terms.now, terms.times))
    return [finding for finding in found if finding is not None]


def _recent(process: ProcessEvidence, mono: float, times: Times) -> bool:
    """Whether the newest readable page is recent enough for a removal: at most two scrape intervals old (hang §1.3)."""
    return process.sample is not None and mono - process.sample.mono <= times.recent


def _owed(process: ProcessEvidence, instance: Instance, terms: Terms) -> Owed:
    ranks = len(process.sample.ranks) if process.sample is not None else 0
    return owed(process.contract, ranks, process.memory, terms.written, instance, terms.mono, terms.times)


def _last_progress(process: ProcessEvidence, mono: float) -> float | None:
    seen = [clock.last_progress for clock in process.stall.ranks.values() if clock.last_progress is not None]
    return mono - max(seen) if seen else None


def _cleared(one: Look, found: Sequence[Finding], terms: Terms) -> frozenset[Detector]:
    """Detectors whose symptom is positively gone: fresh data says so, absence never does."""
    process, cleared = one.process, set[Detector]()
    if one.instance.ready:
        cleared.add(_DEAD)
    if process is not None and one.fresh:
        if is_clear(process.stall):
            cleared.add(_STALLED)
        if process.slow.cleared:
            cleared.add(_SLOW)
        if process.errors.cleared:
            cleared.add(Detector.ERRORING)
        if process.answers.cleared:
            cleared.add(Detector.CORRUPTED)
        if process.devices.cleared:
            cleared.add(Detector.DEVICE)
        if process.queues.cleared:
            cleared.add(Detector.COLLAPSED)
        known = [state.cleared for state in process.fragmentation.values() if state.value is not None]
        if known and all(known):
            cleared.add(_FRAGMENTED)
    if found:
        cleared -= {finding.detector for finding in found if finding.severity >= Severity.SUSPECT}
    grew = process.memory if process is not None and one.fresh else None
    if grew is not None and grew.cleared and grew.fresh(terms.mono, terms.times):
        cleared.add(Detector.GROWING)
    return frozenset(cleared)
