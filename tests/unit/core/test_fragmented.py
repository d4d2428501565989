"""`fragmented`: lasting, measured, and known to be cured by a restart (hang paper §3, §6.13)."""

import pytest

from kintsugi.core.detect.fragmented import FragmentationState, Line, finding, see
from kintsugi.core.evidence import Memory
from kintsugi.core.finding import Detector, Finding, InstanceVerdict, Severity, Verdict
from kintsugi.core.times import Times
from tests.unit.core.staging import EPOCH, Engine, Rank, Stage, deployment, only

FRESH = {"started_at": EPOCH, "ready_since": EPOCH}
"""A process that became Ready when the play began."""


class Play:
    """One instance whose allocator fragmentation is set by hand, passed every five seconds."""

    def __init__(self, stage: Stage | None = None, **fields: object) -> None:
        self.stage = stage or Stage(deployment())
        self.engine = Engine([Rank(running=2)], gpu_fragmentation={"0": 0.10}, orphaned=0.0)
        self.fields = {**FRESH, **fields}
        self.verdicts: list[InstanceVerdict] = []

    def go(self, seconds: float, **ratios: float) -> InstanceVerdict:
        """Hold these ratios (keys `w0`, `w1` … by worker) for a while."""
        for name, value in ratios.items():
            self.engine.gpu_fragmentation[name[1:]] = value
        for _ in range(round(seconds / self.stage.step)):
            rank = self.engine.ranks[0]
            rank.steps, rank.generation = rank.steps + 50, rank.generation + 100
            self.verdicts.append(only(self.stage.look({"pod-a": self.engine.page()}, pod_a=self.fields)))
        return self.verdicts[-1]

    def found(self) -> Finding | None:
        """The present finding on fragmentation."""
        return next((f for f in self.verdicts[-1].findings if f.detector is Detector.FRAGMENTED), None)

    def ever(self, verdict: Verdict) -> bool:
        return any(v.verdict is verdict for v in self.verdicts)


def test_ten_minutes_above_the_line_after_a_good_start_are_sick() -> None:
    play = Play()
    play.go(1_800, w0=0.10)

    verdict = play.go(700, w0=0.35)

    found = play.found()
    assert verdict.verdict is Verdict.SICK
    assert found is not None
    assert (found.reason, found.severity) == ("Fragmented", Severity.SICK)
    shown = {e.signal: e.value for e in found.evidence}
    assert shown == {"fragmentation (Allocator)": 35, "fragmentation after warm-up": pytest.approx(10)}


def test_a_slow_ramp_over_hours_is_sick_in_the_end() -> None:
    play = Play()
    play.go(1_800, w0=0.10)
    for step in range(60):
        play.go(120, w0=0.10 + 0.25 * step / 60)

    assert play.ever(Verdict.SICK)


def test_half_an_hour_at_twenty_percent_with_short_spikes_is_nothing() -> None:
    play = Play()
    play.go(1_800, w0=0.15)
    for _ in range(20):
        play.go(60, w0=0.45)
        play.go(120, w0=0.15)

    assert not play.ever(Verdict.SICK)


def test_ninety_seconds_at_forty_percent_are_nothing() -> None:
    play = Play()
    play.go(1_800)

    play.go(90, w0=0.40)
    play.go(600, w0=0.10)

    assert not play.ever(Verdict.SICK)


def test_high_since_the_start_is_advice_whatever_it_dips_to() -> None:
    play = Play()
    for _ in range(30):
        play.go(100, w0=0.28)
        play.go(20, w0=0.22)
    play.go(100, w0=0.28)

    found = play.found()
    assert not play.ever(Verdict.SICK)
    assert found is not None
    assert (found.reason, found.severity) == ("HighSinceStart", Severity.ADVICE)


def test_a_process_first_seen_late_has_no_reference_and_gets_advice() -> None:
    play = Play(started_at=EPOCH - 50_000, ready_since=EPOCH - 49_000)

    play.go(3_600, w0=0.40)

    found = play.found()
    assert not play.ever(Verdict.SICK)
    assert found is not None
    assert found.reason == "ReferenceUnknown"


def test_lost_memory_never_makes_a_process_a_candidate_that_was_none() -> None:
    play = Play()
    play.go(1_800, w0=0.24)
    play.stage.memory = Memory()
    play.go(1_200, w0=0.10)

    play.go(1_200, w0=0.40)

    assert not play.ever(Verdict.SICK)


def test_a_series_that_vanishes_in_mid_window_starts_it_again() -> None:
    play = Play()
    play.go(1_800)
    play.go(300, w0=0.40)
    del play.engine.gpu_fragmentation["0"]
    play.go(60)
    play.go(500, w0=0.40)
    assert not play.ever(Verdict.SICK)

    play.go(150, w0=0.40)

    assert play.ever(Verdict.SICK)


def test_a_sick_instance_whose_series_vanishes_is_unknown_and_not_recovered() -> None:
    play = Play()
    play.go(1_800)
    play.go(700, w0=0.40)
    del play.engine.gpu_fragmentation["0"]

    verdict = play.go(60)

    assert verdict.verdict is Verdict.UNKNOWN
    assert Detector.FRAGMENTED not in verdict.cleared
    assert "kintsugi_gpu_memory_fragmentation_ratio" in verdict.missing


def test_five_minutes_below_the_lower_line_clear_it() -> None:
    play = Play()
    play.go(1_800)
    play.go(700, w0=0.40)

    between = play.go(400, w0=0.22)
    below = play.go(400, w0=0.12)

    assert between.verdict is Verdict.SICK
    assert below.verdict is Verdict.HEALTHY
    assert Detector.FRAGMENTED in below.cleared


def test_the_worst_worker_counts_and_a_missing_one_is_left_out() -> None:
    play = Play()
    play.go(1_800, w0=0.10, w1=0.12)
    del play.engine.gpu_fragmentation["0"]

    verdict = play.go(700, w1=0.40)

    assert verdict.verdict is Verdict.SICK
    assert verdict.signals["fragmentation_percent"] == 40


def test_a_worker_high_since_its_start_does_not_convict_the_others() -> None:
    play = Play()
    play.go(1_800, w0=0.10, w1=0.40)

    play.go(1_800, w0=0.10, w1=0.40)

    assert not play.ever(Verdict.SICK)


def test_orphaned_blocks_are_a_source_of_their_own() -> None:
    play = Play()
    play.go(1_800)
    play.engine.orphaned = 0.4

    verdict = play.go(700)

    assert verdict.verdict is Verdict.SICK
    assert "blocks that no request explains 40 %, above 25 % in most readings of 600 s" in verdict.message


def test_block_waste_is_not_judged_unless_the_user_adds_it() -> None:
    plain, added = (
        Play(),
        Play(Stage(deployment({"triggers": {"fragmentation": {"sources": ["BlockWaste"]}}}))),
    )
    for play in (plain, added):
        play.engine.block_waste = 0.1
        play.go(1_800)
        play.engine.block_waste = 0.84
        play.go(700)

    assert not plain.ever(Verdict.SICK)
    assert added.ever(Verdict.SICK)


def test_a_stale_stamp_adds_no_sample() -> None:
    play = Play()
    play.go(1_800)
    play.engine.sample_age = 45.0

    verdict = play.go(900, w0=0.40)

    assert not play.ever(Verdict.SICK)
    assert verdict.signals["fragmentation_percent"] == 10


def test_the_users_line_and_duration_are_honoured() -> None:
    trigger = {"fragmentation": {"thresholdPercent": 50, "forSeconds": 1200}}
    play = Play(Stage(deployment({"triggers": trigger})))
    play.go(1_800)
    play.go(1_500, w0=0.45)
    assert not play.ever(Verdict.SICK)

    play.go(300, w0=0.20)
    play.go(1_000, w0=0.60)
    assert not play.ever(Verdict.SICK)
    play.go(250, w0=0.60)

    assert play.ever(Verdict.SICK)


def test_a_rehearsal_needs_a_thirtieth_of_the_time() -> None:
    play = Play(Stage(deployment({"rehearsal": {"speedUp": 30}})))
    play.go(1_800 / 30)

    verdict = play.go(700 / 30, w0=0.40)

    assert verdict.verdict is Verdict.SICK


def test_too_few_samples_of_a_window_convince_nobody() -> None:
    state, line = FragmentationState(), Line(25.0, Times())
    for k in range(400):
        calm, seen = k < 280, k < 280 or k % 2 == 0
        values = {"0": 10.0 if calm else 40.0} if seen else None
        see(state, values, 5.0 * k, 5.0 * k, line, EPOCH)

    found = finding(state, "Allocator", line, True)
    assert found is None or found.severity is not Severity.SICK
