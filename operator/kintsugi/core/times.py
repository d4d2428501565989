"""Every time the judge and the gates use, in one value, so that a rehearsal can speed all of them up together."""

from dataclasses import dataclass, fields, replace
from typing import Final

from kintsugi.api.effective import pool_of
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.pod.seconds import UNKNOWN_START_SECONDS, start_budget_seconds

LATE_FLOOR: Final = 2.0
"""Real seconds: even in a rehearsal our loop is not called late below this, since a busy machine delays any loop."""
RECENT_FLOOR: Final = 4.0
"""Real seconds: even in a rehearsal a page of this age is recent, being the last before a loop that was just in time."""
GAP_FLOOR: Final = 4.0
"""Real seconds: in a rehearsal too, evidence on a busy machine has gaps as long as this; if it began anew after each, no
fault would ever be called."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. Sources: the two detection papers of the design (section numbers in brackets)."""

    scrape_interval: float = 5.0
    """Between two readings of one engine (design §2, monitoring.scrapeIntervalSeconds)."""
    warm_up: float = 600.0
    """After the first Ready of a process, before anything but `dead` and `stalled` is judged (slow §2)."""
    stall_withdraw: float = 60.0
    """W: no step for this long, three canaries unanswered: Sick, withdrawn (hang §1.3)."""
    stall_remove: float = 300.0
    """K: still no step: removed (hang §1.3); also vLLM's own executor timeout."""
    stall_warm_up: float = 600.0
    """After the first Ready of a process, before a stall is judged (hang §1.3, safety rule 4)."""
    unchunked_withdraw: float = 300.0
    unchunked_remove: float = 600.0
    canary_first: float = 10.0
    canary_second: float = 20.0
    canary_third: float = 40.0
    canary_before_removal: float = 20.0
    """A last canary goes out this long before the removal time."""
    canary_idle: float = 60.0
    """One canary each, to an engine that shows no work and no step."""
    recent: float = 10.5
    """A page of this age at most proves something of now: two intervals (hang §1.3), and half a second for the pass."""
    readable_gap: float = 30.0
    """A gap between readable scrapes longer than this counts for nothing."""
    kv_only_progress: float = 600.0
    """KV usage that moves while the step counter stands is progress for this long at most."""
    loop_late: float = 3.0
    """Our own loop late by more than this: every clock starts again (hang §1.3)."""
    silent: float = 300.0
    not_admitting: float = 300.0
    not_admitting_remove: float = 600.0
    not_admitting_canary: float = 60.0
    fragmentation_window: float = 600.0
    fragmentation_reference: float = 600.0
    """Its median after warm-up is what a restart is known to give back (hang §3)."""
    fragmentation_clear: float = 300.0
    fragmentation_gap: float = 30.0
    throughput_window: float = 600.0
    throughput_suspect: float = 300.0
    throughput_clear: float = 120.0
    slow_row_window: float = 60.0
    """One window of the step-cost model (slow §2)."""
    slow_minute: float = 60.0
    """One sample of the cost model a minute (slow §3)."""
    slow_solve: float = 600.0
    slow_own_following: float = 360.0
    """Minutes in which the own baseline follows an improvement (slow §3), as a number of samples."""
    slow_since_start: float = 1800.0
    """Slower than its siblings for this long, with no change of its own: advice (slow §3)."""
    dead_restarts_window: float = 1800.0
    hold: float = 240.0
    """Between verdict and release or eviction (storm.holdSeconds, hang §5)."""
    storm_window: float = 300.0
    storm_cooldown: float = 600.0
    storm_trial: float = 1800.0
    probation: float = 600.0
    drain_timeout: float = 300.0
    budget_window: float = 1800.0
    budget_hour: float = 3600.0
    protection_waiver: float = 1800.0
    """A victim dead or without a step for this long is not protected by min-healthy (design §9)."""
    erroring_window: float = 120.0
    erroring_longest: float = 900.0
    """The window is stretched back to 20 requests, this far at most (hang §4)."""
    erroring_round: float = 60.0
    """A round of 20 canaries takes this long."""
    erroring_again: float = 300.0
    """Between the beginnings of two rounds while the suspicion lasts."""
    corrupted_every: float = 300.0
    """Between two known-answer questions to one process, and between two pairs of bursts (hang §4)."""
    corrupted_burst: float = 60.0
    """A burst of questions is over after this, and the second one of a pair begins no earlier (hang §4)."""
    corrupted_nan_window: float = 120.0
    """The window of the counter of corrupted requests (hang §4)."""
    starved_window: float = 180.0
    """A queue that stands for so long with nothing to explain it makes a suspect (slow §4)."""
    starved_canary: float = 60.0
    """Each of the three canaries that convict waits so long (slow §4)."""
    device_unhealthy: float = 60.0
    """A GPU that Kubernetes calls unhealthy for so long (triggers.deviceHealth.forSeconds)."""
    growth_sample: float = 60.0
    """Between two samples of memory that count (hang §2)."""
    growth_young: float = 7200.0
    """Memory of a process younger than this may grow: pools fill (hang §2)."""
    growth_bucket_short: float = 900.0
    growth_bucket_long: float = 3600.0
    """Length of one of the six buckets, by the age of the process (hang §2)."""
    growth_look: float = 600.0
    """Between two looks at the slope (hang §2)."""
    growth_horizon: float = 7200.0
    """A forecast to reach the limit within this time counts (triggers.memoryGrowth.horizonSeconds)."""
    growth_gap: float = 300.0
    """Without a sample for so long nothing is known of the memory now. Five samples; judgement."""
    advice_window: float = 600.0
    """The window of the prefix cache's hit rate."""
    preemption_window: float = 60.0
    """The window of the rate of preemptions."""
    learned_settle: float = 300.0
    """What was newly learned is written this long after it was noticed, so that a fleet's warm-up is one write."""
    learned_write: float = 3600.0
    """At most one write of what was learned in this time."""
    lineage_memory: float = 7200.0
    """A new fault later than this after a cure is a new incident (safety rule 21)."""

    strike_first: float = 7200.0
    """A node from which an instance was moved away is avoided for so long: as long as the memory of a line."""
    strike_again: float = 86_400.0
    """The same, where it happens again within `strike_memory`. Assumed: a working day and a night to mend a node."""
    strike_memory: float = 604_800.0
    """A week: what recurs within it is not a new incident (safety rule 21, NVSentinel)."""
    compact_answer: float = 60.0
    """An engine that was asked to release its cached memory answers within this time, or the rung has failed."""
    compact_settle: float = 60.0
    """After its answer: fragmentation that is still above the line did not fall."""
    compact_timeout: float = 900.0
    """The rung's end: three times what it takes to see that fragmentation stays low (`fragmentation_clear`)."""

    @property
    def late_limit(self) -> float:
        """Seconds of lateness of our own loop beyond which no clock of the judge may go on."""
        return max(self.loop_late, LATE_FLOOR)

    def sped_up(self, factor: float) -> "Times":
        """Every time divided by `factor` (≥ 1), for a rehearsal. Counts of samples stay."""
        if factor < 1:
            raise ValueError(f"rehearsal.speedUp must be at least 1, not {factor}")
        kept = {"slow_own_following"}
        return Times(
            **{f.name: getattr(self, f.name) / (1 if f.name in kept else factor) for f in fields(self)}
        )


def effective_times(spec: DeploymentSpec) -> Times:
    """The times in force for one deployment: the user's durations over the papers', all divided by the rehearsal factor.

    The only place where durations of the spec become times of the judge, the gates and the ladder. Counts of samples
    are never set here: detectors derive them from ratios of these times, so that a rehearsal shrinks them alike.
    """
    healing, plain = spec.healing, Times()
    stall, storm = healing.triggers.stall, healing.storm
    interval = float(spec.monitoring.scrape_interval_seconds)
    withdraw = float(stall.for_seconds or plain.stall_withdraw)
    remove = max(withdraw, float(stall.remove_after_seconds or plain.stall_remove))
    early = min(1.0, withdraw / plain.stall_withdraw)
    written = replace(
        plain,
        scrape_interval=interval,
        recent=2 * interval + 0.5,
        readable_gap=max(plain.readable_gap, 1.2 * interval),
        fragmentation_gap=max(plain.fragmentation_gap, 1.2 * interval),
        stall_withdraw=withdraw,
        stall_remove=remove,
        unchunked_withdraw=max(withdraw, plain.unchunked_withdraw),
        unchunked_remove=max(remove, plain.unchunked_remove),
        canary_first=plain.canary_first * early,
        canary_second=plain.canary_second * early,
        canary_third=plain.canary_third * early,
        fragmentation_window=max(
            plain.fragmentation_window, float(healing.triggers.fragmentation.for_seconds)
        ),
        throughput_window=float(healing.triggers.throughput.for_seconds),
        throughput_suspect=min(plain.throughput_suspect, float(healing.triggers.throughput.for_seconds)),
        device_unhealthy=float(healing.triggers.device_health.for_seconds),
        growth_horizon=float(healing.triggers.memory_growth.horizon_seconds),
        hold=float(storm.hold_seconds),
        storm_window=float(storm.window_seconds),
        storm_cooldown=float(storm.cooldown_seconds),
        storm_trial=float(storm.trial_after_seconds),
        probation=float(healing.probation_seconds),
        drain_timeout=float(healing.drain.timeout_seconds),
    )
    fast = written.sped_up(healing.speed_up)
    return replace(
        fast,
        recent=max(fast.recent, min(RECENT_FLOOR, written.recent)),
        readable_gap=max(fast.readable_gap, GAP_FLOOR),
        fragmentation_gap=max(fast.fragmentation_gap, GAP_FLOOR),
    )


def start_budget(spec: DeploymentSpec, pool: str) -> float:
    """Seconds that a start may take, before any rehearsal: what the pod's own start-up probe allows."""
    found = pool_of(spec, pool)
    return float(start_budget_seconds(found) if found is not None else UNKNOWN_START_SECONDS)
