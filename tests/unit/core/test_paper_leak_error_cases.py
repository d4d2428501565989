"""The eighteen test cases of the paper on hangs, leaks, errors and storms (its §6), by number and in its words.

Most are tests of one detector or gate elsewhere; here they are played again as the paper lists them, so that none is
missing. Where a case asks for the whole loop over real pages, `tests/scenarios` has it (S15 to S20 over HTTP).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from kintsugi.core import gate
from kintsugi.core.detect.erroring import hear
from kintsugi.core.finding import Detector
from kintsugi.core.page import PageReader
from kintsugi.core.reading import Unreadable
from kintsugi.core.sample import read_sample
from kintsugi.core.snapshot import Canary, CanaryOutcome, CanaryResult, Fleet, Page, ProcessKey
from tests.unit.core import (
    test_corrupted,
    test_erroring,
    test_fragmented,
    test_growing,
    test_judge_scenarios,
    test_stall_scenarios,
)
from tests.unit.core.decision import (
    test_cancels,
    test_gates,
    test_pools_of_one,
    test_replacements,
    test_storms,
)
from tests.unit.core.decision.made import spec
from tests.unit.core.decision.world import running_world
from tests.unit.core.stall_engine import FAULT, Script, Story


def the_stories_are_complete() -> None:
    assert len(test_stall_scenarios.STORIES) == 28


def killed_at_250_s() -> None:
    story = Story(
        Script("hang", "removed", steps=test_stall_scenarios.hang, forget_at=FAULT + 250, ends=1_500)
    )
    assert story.play()[-1] == "removed"
    assert 250 + 300 <= story.when("removed") <= 250 + 320


def reset_at_59_s() -> None:
    at = FAULT + 59
    story = Story(Script("reset", "none", steps=test_stall_scenarios.hang, reset_at=at, ends=at + 300))
    assert story.play() == []


def rank_1_of_4() -> None:
    def steps(rank: int, t: int) -> bool:
        return rank != 1 or t < FAULT

    story = Story(Script("rank", "removed", ranks=4, steps=steps))
    assert story.play()[-1] == "removed"
    assert {canary.rank for canary in story.stage.sent if canary.sent >= FAULT} == {"1"}
    assert story.stage.last is not None
    (verdict,) = story.stage.last.verdicts.values()
    found = verdict.sick()
    assert found is not None
    assert "rank 1" in found.message


def abandoned_canaries() -> None:
    engine = test_erroring.Engine()
    engine.page(0.0)
    asked = [Canary(f"c-{n}", ProcessKey("pod-1", 0.0), "0", 0.0) for n in range(3)]
    hear(engine.state, [CanaryResult(each, CanaryOutcome.ABANDONED, 5.0) for each in asked])
    engine.page(125.0)
    assert (engine.state.counts.errors, engine.state.counts.requests) == (0.0, 0.0)
    assert not engine.state.suspected


def aborts_and_client_errors() -> None:
    text = (
        'vllm:request_success_total{engine="0",finished_reason="abort"} 50\n'
        'vllm:request_success_total{engine="0",finished_reason="stop"} 7\n'
        'vllm:num_requests_running{engine="0"} 1\n'
        'http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 80\n'
    )
    sample = read_sample(PageReader(), Page(text, 0.0))
    assert not isinstance(sample, Unreadable)
    assert (sample.total("finished"), sample.total("failed"), sample.http_failed) == (7.0, None, None)


def four_hundred_instances() -> None:
    world = running_world(spec(4))

    def is_open(used: int) -> bool:
        world.fleet = Fleet(400, 0, used)
        return gate.hourly_budget(test_gates.question(world)).open

    assert all(is_open(used) for used in range(12)), "12 independent dead in an hour: none is withheld"
    assert [is_open(used) for used in range(25)] == [True] * 20 + [False] * 5, "25: from the 21st on"


@dataclass(frozen=True)
class Case:
    """One case of the paper."""

    number: int
    words: str
    plays: tuple[Callable[[], object], ...]


MET = test_judge_scenarios
CASES = [
    Case(1, "the 28 scenarios as a table", (the_stories_are_complete,)),
    Case(
        2,
        "KV alternates, steps flat: Sick at 660 s",
        (MET.test_kv_usage_alone_is_progress_for_ten_minutes_only,),
    ),
    Case(
        3,
        "canary answered, counters flat: StaleGauges, never Sick",
        (MET.test_an_engine_that_answers_while_its_counters_stand_has_stale_gauges_and_is_never_sick,),
    ),
    Case(
        4,
        "S15, S16, S17 with and without the label, S18",
        (
            MET.test_s15_alive_but_frozen_is_sick_and_shows_its_evidence,
            MET.test_s16_busy_at_its_limit_is_saturated_and_gets_advice,
            partial(MET.test_s17_nobody_admitted_though_kv_is_empty_is_sick_with_or_without_the_label, True),
            partial(MET.test_s17_nobody_admitted_though_kv_is_empty_is_sick_with_or_without_the_label, False),
            MET.test_s18_one_giant_prefill_is_progress_and_gets_advice,
        ),
    ),
    Case(
        5,
        "canary answered just before K: rotation in, Cancelled, budget untouched",
        (
            MET.test_an_answer_just_before_the_removal_gives_the_instance_back,
            test_cancels.test_a_stall_that_steps_again_before_its_removal_is_put_back,
        ),
    ),
    Case(6, "operator killed at F = 250 s: removal later, never earlier", (killed_at_250_s,)),
    Case(7, "step counter resets at F = 59 s: F = 0", (reset_at_59_s,)),
    Case(8, "rank 1 of 4 hung: Sick naming rank 1", (rank_1_of_4,)),
    Case(9, "asleep for 10 min: no verdict", (MET.test_a_sleeping_engine_gets_no_canary_and_no_verdict,)),
    Case(
        10,
        "pool of one stalled: not withdrawn, replaced at K",
        (
            test_pools_of_one.test_a_stall_in_a_pool_of_one_is_not_withdrawn_before_it_is_removed,
            partial(
                test_pools_of_one.test_in_a_pool_of_one_without_room_what_serves_nothing_is_replaced,
                Detector.STALLED,
            ),
        ),
    ),
    Case(11, "three abandoned canaries: n of erroring unchanged", (abandoned_canaries,)),
    Case(
        12,
        "growing: S20 by hour 4; cache only is advice; fill that kvOffload explains; limit raised",
        (
            test_growing.test_the_leak_of_s20_is_found_by_hour_four_with_a_forecast_and_a_deadline,
            test_growing.test_the_working_set_alone_gives_advice_and_never_more,
            test_growing.test_a_linear_fill_that_kv_offload_explains_is_well,
            test_growing.test_a_raised_limit_starts_the_watch_again,
        ),
    ),
    Case(
        13,
        "fragmented: high since start, ramp over hours, 40 for 90 s, series gone",
        (
            test_fragmented.test_high_since_the_start_is_advice_whatever_it_dips_to,
            test_fragmented.test_a_slow_ramp_over_hours_is_sick_in_the_end,
            test_fragmented.test_ninety_seconds_at_forty_percent_are_nothing,
            test_fragmented.test_a_series_that_vanishes_in_mid_window_starts_it_again,
        ),
    ),
    Case(
        14,
        "erroring: 3 of 40, 9 of 20 clean, 3 bad canaries, 503s, aborts and 400s, siblings too",
        (
            test_erroring.test_three_errors_of_forty_are_no_finding,
            test_erroring.test_nine_of_twenty_with_clean_canaries_follow_the_requests,
            test_erroring.test_with_three_bad_canaries_of_twenty_it_is_sick,
            test_erroring.test_refusals_at_the_door_are_no_errors,
            aborts_and_client_errors,
            test_erroring.test_a_share_that_a_sibling_has_too_is_no_reason_to_act,
        ),
    ),
    Case(
        15,
        "streams that end in an error frame are counted",
        (test_erroring.test_streams_that_end_in_an_error_frame_count_though_http_said_200,),
    ),
    Case(
        16,
        "corrupted: 1 of 8 twice, 5 of 8 twice, siblings too, fewer than 6 calibrated",
        (
            partial(test_corrupted.test_less_than_four_wrong_answers_never_convict, 1),
            test_corrupted.test_five_of_eight_wrong_in_two_bursts_where_siblings_are_right_is_sick,
            test_corrupted.test_siblings_that_answer_wrong_too_make_it_everybodys_trouble,
            test_corrupted.test_fewer_than_six_sure_answers_switch_the_detector_off_and_it_says_so,
        ),
    ),
    Case(
        17,
        "storm: 299 and 301 s; others during the drain; 2 of 2 hung; NotCured",
        (
            test_storms.test_two_of_four_within_299_seconds_are_a_storm,
            test_storms.test_the_second_one_301_seconds_later_is_none,
            test_cancels.test_a_storm_that_opens_in_the_hold_puts_the_victim_back,
            partial(test_storms.test_k_of_n_truly_hung_are_all_replaced_one_after_the_other, 2, 2, 0),
            test_replacements.test_a_replacement_that_is_sick_too_is_not_cured,
            test_storms.test_a_bad_revision_costs_one_removal_and_then_stops,
        ),
    ),
    Case(18, "400 instances: 12 dead pass the hourly cap, of 25 twenty do", (four_hundred_instances,)),
]


def test_all_eighteen_are_here() -> None:
    assert [case.number for case in CASES] == list(range(1, 19))


@pytest.mark.parametrize("case", CASES, ids=[f"{case.number} {case.words}" for case in CASES])
def test_case(case: Case) -> None:
    for play in case.plays:
        play()
