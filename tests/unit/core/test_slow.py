"""`slow`: step duration at equal work, against the own past and against siblings (slow paper §9)."""

import json
import math

import pytest

from kintsugi.core.detect.slow import ModelKey
from kintsugi.core.evidence import Memory
from kintsugi.core.finding import Detector, Severity
from kintsugi.core.learned import from_learned, learned
from tests.unit.core.staging import EPOCH, Engine, Rank, Stage, deployment
from tests.unit.core.step_fleet import TRAINING, StepFleet, Worker, fleet, trained


@pytest.fixture
def three() -> StepFleet:
    return trained(3)


@pytest.fixture
def two() -> StepFleet:
    return trained(2)


@pytest.fixture
def one() -> StepFleet:
    return trained(1)


def seconds_until(seen: list[tuple[float, dict[str, str]]], uid: str, verdict: str) -> float | None:
    """Seconds from the first pass of `seen` to the first `verdict` of `uid`."""
    start = seen[0][0]
    return next((mono - start for mono, verdicts in seen if verdicts[uid] == verdict), None)


def never(seen: list[tuple[float, dict[str, str]]], verdict: str) -> bool:
    return all(verdict not in verdicts.values() for _, verdicts in seen)


def reasons(played: StepFleet, uid: str) -> set[str]:
    assert played.stage.last is not None
    return {finding.reason for finding in played.stage.last.verdicts[uid].findings}


def test_a_healthy_pool_has_no_finding_for_an_hour(three: StepFleet) -> None:
    played = three

    seen = played.run(3_600)

    assert never(seen, "Sick")
    assert never(seen, "Suspect")


def test_steps_two_and_a_half_times_as_long_are_sick_after_ten_minutes(three: StepFleet) -> None:
    played = three
    played.workers[1].factor = 2.5

    seen = played.run(700)

    suspect = seconds_until(seen, "pod-1", "Suspect")
    sick = seconds_until(seen, "pod-1", "Sick")
    assert suspect is not None
    assert 270 <= suspect <= 340
    assert sick is not None
    assert 540 <= sick <= 640
    assert all(v["pod-0"] == v["pod-2"] == "Healthy" for _, v in seen)


def test_steps_at_the_line_itself_are_suspect_at_least(three: StepFleet) -> None:
    played = three
    played.workers[1].factor = 1.67

    seen = played.run(700)

    assert seconds_until(seen, "pod-1", "Suspect") is not None


def test_the_finding_shows_what_convinced(three: StepFleet) -> None:
    played = three
    played.workers[1].factor = 2.5

    played.run(700)

    assert played.stage.last is not None
    finding = played.stage.last.verdicts["pod-1"].sick()
    assert finding is not None
    assert (finding.detector, finding.reason) == (Detector.SLOW, "Slow")
    shown = {e.signal: e.value for e in finding.evidence}
    assert shown["step rate lost"] == pytest.approx(60, abs=4)
    assert shown["siblings compared"] == 2
    assert not finding.serves_nothing


def test_a_whole_pool_slow_at_once_is_the_pools_finding_and_nobodys_sickness(three: StepFleet) -> None:
    played = three
    for worker in played.workers:
        worker.factor = 2.5

    seen = played.run(900)

    assert never(seen, "Sick")
    assert played.stage.last is not None
    assert "PoolSlow" in played.stage.last.pool_findings["main"][0]


def test_a_pool_of_two_without_a_readable_sibling_is_unknown_and_resumes_with_it(two: StepFleet) -> None:
    played = two
    played.workers[0].factor = 2.5
    played.workers[1].lost = True

    blind = played.run(900)
    played.workers[1].lost = False
    seeing = played.run(700)

    assert never(blind, "Sick")
    sick = seconds_until(seeing, "pod-0", "Sick")
    assert sick is not None
    assert sick >= 300


def test_a_pool_of_one_is_suspect_for_ever_and_never_sick(one: StepFleet) -> None:
    played = one
    played.workers[0].factor = 2.5

    seen = played.run(3_600)

    assert never(seen, "Sick")
    assert seen[-1][1]["pod-0"] == "Suspect"
    assert reasons(played, "pod-0") == {"SlowAgainstItself"}


def test_a_neighbour_of_450_s_makes_nobody_sick(three: StepFleet) -> None:
    played = three
    played.workers[2].factor = 2.5
    during = played.run(450)
    played.workers[2].factor = 1.0

    assert never(during + played.run(900), "Sick")


def test_two_neighbours_of_250_s_with_200_s_between_make_nobody_sick(three: StepFleet) -> None:
    played = three
    seen = []
    for factor, seconds in ((2.5, 250), (1.0, 200), (2.5, 250), (1.0, 600)):
        played.workers[2].factor = factor
        seen += played.run(seconds)

    assert never(seen, "Sick")


def test_half_the_tokens_per_second_at_the_same_step_time_is_healthy(three: StepFleet) -> None:
    played = three
    played.workers[1].acceptance = 0.5

    seen = played.run(1_200)

    assert never(seen, "Suspect")
    assert never(seen, "Sick")


def test_four_times_longer_prompts_on_one_instance_are_healthy(three: StepFleet) -> None:
    played = three
    played.workers[1].prompt_factor = 4.0

    seen = played.run(1_200)

    assert never(seen, "Suspect")
    assert never(seen, "Sick")


def test_a_recovered_instance_is_positively_cleared(three: StepFleet) -> None:
    played = three
    played.workers[1].factor = 2.5
    played.run(700)
    played.workers[1].factor = 1.0

    played.run(300)

    assert played.stage.last is not None
    assert Detector.SLOW in played.stage.last.verdicts["pod-1"].cleared


def test_a_sick_instance_that_can_not_be_read_is_unknown_and_not_cleared(three: StepFleet) -> None:
    played = three
    played.workers[1].factor = 2.5
    played.run(700)
    played.workers[1].lost = True

    seen = played.run(120)

    assert seen[-1][1]["pod-1"] == "Unknown"
    assert played.stage.last is not None
    assert Detector.SLOW not in played.stage.last.verdicts["pod-1"].cleared


def test_preempted_requests_that_wait_make_the_window_unknown(three: StepFleet) -> None:
    played = three
    rank = played.workers[1].engine.ranks[0]
    rank.itl_count += 60
    rank.long_gaps += 60
    rank.itl_sum += 60 * 6.0  # sixty gaps of six seconds: a fifth of a window's decode time and more

    played.look()

    process = next(p for p in played.stage.memory.processes.values() if p.key.uid == "pod-1")
    assert process.slow.measure is None


def test_an_operator_restart_keeps_the_baseline_and_starts_the_evidence_anew(three: StepFleet) -> None:
    played = three
    played.workers[1].factor = 2.5
    played.run(550)
    played.stage.memory = from_learned(json.loads(json.dumps(learned(played.stage.memory))))

    seen = played.run(720)

    sick = seconds_until(seen, "pod-1", "Sick")
    assert sick is not None
    assert sick >= 560  # as long as a first time: 600 s less the oldest tenth


def test_siblings_that_began_while_all_were_slow_are_no_witnesses_against_an_older_one(
    three: StepFleet,
) -> None:
    played = three
    for worker in played.workers:
        worker.factor = 2.2
    for worker in played.workers[1:]:
        worker.engine = Engine([Rank()], start=EPOCH + played.stage.mono)

    seen = played.run(5_400)

    assert never(seen, "Sick")


def test_without_the_store_nothing_is_known_for_half_an_hour(three: StepFleet) -> None:
    played = three
    played.workers[1].factor = 2.5
    played.stage.memory = Memory()

    seen = played.run(1_800)

    assert never(seen, "Sick")
    assert never(seen, "Suspect")


def test_a_store_that_can_not_be_read_is_learned_anew() -> None:
    half = {"version": 1, "models": [{"pool": 1}, {"numbers": [1.0]}], "processes": "x"}
    broken_values: tuple[object, ...] = (None, [], {"version": 9}, half)
    for broken in broken_values:
        memory = from_learned(broken)
        assert not memory.slow.models
        assert not memory.kept


def test_the_learned_part_survives_a_round_trip(three: StepFleet) -> None:
    value = learned(three.stage.memory)

    again = from_learned(json.loads(json.dumps(value)))

    (old,), (new,) = three.stage.memory.slow.models.values(), again.slow.models.values()
    x = (1.0, 12.0, 40.0, 0.2, 12.0)
    assert new.cost(x) == pytest.approx(old.cost(x), rel=1e-3)
    assert len(again.kept) == 3


def test_a_wall_clock_that_jumps_an_hour_changes_nothing(three: StepFleet) -> None:
    played = three
    played.workers[1].factor = 2.5
    seen = played.run(300)
    played.stage.clock_jump = 3_600.0
    seen += played.run(200)
    played.stage.clock_jump = -3_600.0
    seen += played.run(200)

    sick = seconds_until(seen, "pod-1", "Sick")
    assert sick is not None
    assert 540 <= sick <= 640


def test_passes_that_come_late_leave_unknown_slots(three: StepFleet) -> None:
    played = three

    played.look(late_by=20.0)

    process = next(p for p in played.stage.memory.processes.values() if p.key.uid == "pod-0")
    assert process.slow.against.known(10) == 6
    assert process.slow.against.known(5) <= 1


def test_slow_since_the_start_is_advice_only() -> None:
    made = fleet(3)
    made.workers[0].level = 2.2

    seen = made.run(4_600)

    assert never(seen, "Sick")
    assert reasons(made, "pod-0") == {"SlowSinceStart"}
    assert made.stage.last is not None
    (finding,) = made.stage.last.verdicts["pod-0"].findings
    assert finding.severity is Severity.ADVICE


def test_a_replacement_as_slow_as_its_predecessor_is_suspect_within_its_probation(three: StepFleet) -> None:
    played = three
    played.workers[1] = Worker("pod-1", Engine([Rank()]), factor=2.5)
    born = EPOCH + played.stage.mono
    played.changes["pod_1"] = {"started_at": born, "ready_since": born}

    seen = played.run(1_200)

    suspect = seconds_until(seen, "pod-1", "Suspect")
    assert suspect is not None
    assert 600 <= suspect <= 1_100
    assert never(seen, "Sick")


def test_a_good_replacement_is_healthy_through_its_probation(three: StepFleet) -> None:
    played = three
    played.workers[1] = Worker("pod-1", Engine([Rank()]), level=1.1)
    born = EPOCH + played.stage.mono
    played.changes["pod_1"] = {"started_at": born, "ready_since": born}

    seen = played.run(1_800)

    assert never(seen, "Suspect")
    assert seen[-1][1]["pod-1"] == "Healthy"


def test_a_creep_of_sixty_percent_over_two_hours_is_found(two: StepFleet) -> None:
    played = two
    seen = []
    for minute in range(120):
        played.workers[1].factor = math.exp(minute / 120 * -math.log(0.4))
        seen += played.run(60)

    sick = seconds_until(seen, "pod-1", "Sick")
    assert sick is not None
    assert sick < 2 * 3600


def test_a_slower_revision_that_joins_is_measured_by_a_model_of_its_own(three: StepFleet) -> None:
    played = three
    newcomer = Worker("pod-new", Engine([Rank()]), level=1.6)
    played.workers.append(newcomer)
    played.changes["pod_new"] = {"revision": "r2", "started_at": EPOCH + 1, "ready_since": EPOCH + 1}

    seen = played.run(4_000)

    assert never(seen, "Sick")
    assert never(seen, "Suspect")
    assert set(played.stage.memory.slow.models) == {ModelKey("main", "r1"), ModelKey("main", "r2")}
    newcomer.factor = 2.5
    sick = seconds_until(played.run(700), "pod-new", "Sick")
    assert sick is not None  # its siblings are of the other revision: each is measured by its own past


def test_a_rehearsal_shrinks_windows_and_counts_alike() -> None:
    stage = Stage(deployment({"rehearsal": {"speedUp": 30}}))
    made = fleet(3, stage)
    made.run(TRAINING / 30)
    made.workers[1].factor = 2.5

    seen = made.run(700 / 30)

    sick = seconds_until(seen, "pod-1", "Sick")
    assert sick is not None
    assert 540 / 30 <= sick <= 660 / 30
