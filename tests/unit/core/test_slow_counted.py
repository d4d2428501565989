"""`slow` by prompt tokens that our telemetry counts step by step, and what a count that can't be believed must not do."""

import json

import pytest

from kintsugi.core.detect.slow import ModelKey
from kintsugi.core.learned import from_learned, learned
from tests.unit.core.staging import EPOCH, Engine, Rank
from tests.unit.core.step_fleet import TRAINING, StepFleet, Worker, fleet, trained
from tests.unit.core.test_slow import never, seconds_until


@pytest.fixture
def three() -> StepFleet:
    return trained(3)


def prefilling(factor: float) -> StepFleet:
    """Three engines whose steps carry thousands of prompt tokens each, as in a pool of long prompts."""
    made = fleet(3)
    for worker in made.workers:
        worker.prompt_factor = factor
    return made


def counting(made: StepFleet) -> StepFleet:
    """Let the telemetry of all count prompt tokens step by step, from now on."""
    for worker in made.workers:
        worker.engine.ranks[0].mixed_prefill = 0.0
    return made


def test_a_pool_whose_steps_carry_whole_chunks_is_measured_where_they_are_counted_step_by_step() -> None:
    made = counting(prefilling(180.0))
    made.run(TRAINING)
    made.workers[1].factor = 2.5

    seen = made.run(700)

    sick = seconds_until(seen, "pod-1", "Sick")
    assert sick is not None
    assert 540 <= sick <= 640
    assert set(made.stage.memory.slow.models) == {ModelKey("main", "r1", counted=True)}


def test_a_pool_whose_steps_carry_whole_chunks_is_unknown_where_only_the_engine_counts_them() -> None:
    made = prefilling(180.0)
    made.run(TRAINING)
    made.workers[1].factor = 2.5

    seen = made.run(900)

    assert never(seen, "Sick")
    assert never(seen, "Suspect")
    assert not made.stage.memory.slow.models


@pytest.mark.parametrize("leap", [5e6, 1.4e7, 2.8e7, 1e9, 1e12])
def test_a_count_that_leaps_once_in_one_engine_convicts_no_sibling_of_longer_prompts(leap: float) -> None:
    made = counting(fleet(4))
    for worker in made.workers:
        worker.prompt_factor = 20.0
    made.run(TRAINING)
    made.workers[1].engine.ranks[0].mixed_prefill = (
        made.workers[1].engine.ranks[0].mixed_prefill or 0.0
    ) + leap
    seen = made.run(600)
    made.workers[2].prompt_factor = 200.0

    seen += made.run(2_400)

    assert never(seen, "Sick")


def test_an_engine_that_was_learned_by_its_own_count_is_told_by_it_though_the_telemetry_counts_too(
    three: StepFleet,
) -> None:
    played = counting(three)
    played.workers[1].factor = 2.5

    sick = seconds_until(played.run(700), "pod-1", "Sick")

    assert sick is not None
    assert 540 <= sick <= 640


def test_telemetry_that_ends_in_a_running_engine_leaves_its_steps_unknown() -> None:
    made = counting(prefilling(20.0))
    made.run(TRAINING)
    broken = made.workers[1]
    broken.factor = 2.5
    rank = broken.engine.ranks[0]
    standing = rank.mixed_prefill

    seen = []
    for _ in range(240):
        rank.mixed_prefill, broken.engine.count_age = standing, broken.engine.count_age + 5.0
        seen.append(made.look())

    assert never(seen, "Sick")
    assert never(seen, "Suspect")
    process = next(p for p in made.stage.memory.processes.values() if p.key.uid == "pod-1")
    assert process.slow.measure is None


def test_engines_of_one_revision_are_measured_as_most_of_them_can_be() -> None:
    few, many = prefilling(5.0), prefilling(5.0)
    few.workers[0].engine.ranks[0].mixed_prefill = 0.0
    for worker in many.workers[:2]:
        worker.engine.ranks[0].mixed_prefill = 0.0
    ways = []
    for made in (few, many):
        made.run(TRAINING)
        again = from_learned(json.loads(json.dumps(learned(made.stage.memory))))
        assert set(again.slow.models) == set(made.stage.memory.slow.models)
        ways.append([kept.counted for _, kept in sorted(again.kept.items(), key=lambda item: item[0].uid)])

    assert ways == [[False, False, False], [True, True, False]]


def test_a_store_of_the_version_before_is_one_of_tokens_that_the_engine_counted(three: StepFleet) -> None:
    value = learned(three.stage.memory)
    value["version"] = 2
    for item in (*value["models"], *value["processes"]):
        del item["counted"]

    again = from_learned(value)

    assert set(again.slow.models) == {ModelKey("main", "r1")}
    assert len(again.kept) == 3
    assert not any(kept.counted for kept in again.kept.values())


def test_a_process_without_a_past_is_counted_as_its_siblings_are_and_compared_with_them(
    three: StepFleet,
) -> None:
    played = counting(three)  # three that were learned by the engine's own count
    played.workers[1] = Worker("pod-1", Engine([Rank(mixed_prefill=0.0)]), factor=2.5)
    born = EPOCH + played.stage.mono
    played.changes["pod_1"] = {"started_at": born, "ready_since": born}

    seen = played.run(1_200)

    suspect = seconds_until(seen, "pod-1", "Suspect")
    assert suspect is not None
    assert suspect <= 1_100


def test_a_page_that_comes_late_as_an_engine_is_learned_does_not_decide_how_it_is_counted() -> None:
    made = counting(prefilling(180.0))
    made.workers[1].engine.count_age = 12.0
    made.run(1_200)
    made.workers[1].engine.count_age = 0.5
    made.run(TRAINING)
    made.workers[1].factor = 2.5

    assert seconds_until(made.run(700), "pod-1", "Sick") is not None


def test_an_engine_with_far_more_prefill_than_was_ever_taught_is_unknown_until_its_cost_is_learned() -> None:
    for phase in range(0, 600, 120):
        made = counting(prefilling(1.0))
        made.run(TRAINING + phase)
        made.workers[0].prompt_factor = 200.0

        seen = made.run(1_500)

        assert never(seen, "Sick"), phase


def test_counts_that_leap_again_and_again_convict_no_sibling() -> None:
    made = counting(fleet(3))
    for worker in made.workers:
        worker.prompt_factor = 5.0
    made.run(TRAINING)
    seen = []
    for minute in range(60):
        leaping = made.workers[1].engine.ranks[0]
        leaping.mixed_prefill = (leaping.mixed_prefill or 0.0) + 5e6 * (minute % 2)
        made.workers[2].prompt_factor = 20.0 if minute >= 20 else 5.0
        seen += made.run(60)

    assert never(seen, "Sick")
