"""The one place where durations of the spec become times of the judge."""

import pytest

from kintsugi.api.effective import pools_of
from kintsugi.core.render import pod_template, pool_labels
from kintsugi.core.times import (
    GAP_FLOOR,
    LATE_FLOOR,
    RECENT_FLOOR,
    Times,
    effective_times,
    start_budget,
)
from tests.unit.core.staging import deployment


def test_an_empty_spec_gives_the_papers_times() -> None:
    assert effective_times(deployment().spec) == Times()


def test_the_users_durations_are_honoured() -> None:
    triggers = {
        "stall": {"forSeconds": 120, "removeAfterSeconds": 400},
        "fragmentation": {"forSeconds": 900},
        "throughput": {"forSeconds": 1200},
    }
    times = effective_times(deployment({"triggers": triggers, "storm": {"holdSeconds": 100}}).spec)

    assert (times.stall_withdraw, times.stall_remove) == (120, 400)
    assert times.fragmentation_window == 900
    assert (times.throughput_window, times.throughput_suspect) == (1200, 300)
    assert times.hold == 100


def test_a_short_fragmentation_time_does_not_shorten_the_evidence() -> None:
    times = effective_times(deployment({"triggers": {"fragmentation": {"forSeconds": 60}}}).spec)

    assert times.fragmentation_window == 600


def test_a_removal_never_comes_before_its_withdrawal_and_canaries_fit_before_both() -> None:
    stall = {"forSeconds": 500, "removeAfterSeconds": 600}
    long = effective_times(deployment({"triggers": {"stall": stall}}).spec)
    short = effective_times(deployment({"triggers": {"stall": {"forSeconds": 30}}}).spec)

    assert (long.unchunked_withdraw, long.unchunked_remove) == (500, 600)
    assert short.canary_third < short.stall_withdraw


@pytest.mark.parametrize("factor", [1, 7.5, 120])
def test_a_rehearsal_divides_every_time_but_the_floors(factor: float) -> None:
    times = effective_times(deployment({"rehearsal": {"speedUp": factor}}).spec)

    assert times.stall_remove == pytest.approx(300 / factor)
    assert times.warm_up == pytest.approx(600 / factor)
    assert times.readable_gap >= GAP_FLOOR
    assert times.fragmentation_gap >= GAP_FLOOR
    assert times.late_limit >= LATE_FLOOR
    assert times.recent >= RECENT_FLOOR
    assert times.slow_own_following == 360


@pytest.mark.parametrize(("interval", "recent"), [(1, 2.5), (5, 10.5), (30, 60.5)])
def test_a_page_is_recent_for_two_intervals(interval: int, recent: float) -> None:
    assert effective_times(deployment(monitoring={"scrapeIntervalSeconds": interval}).spec).recent == recent


def test_a_slow_scrape_interval_leaves_room_for_jitter() -> None:
    times = effective_times(deployment(monitoring={"scrapeIntervalSeconds": 30}).spec)

    assert times.readable_gap > 30


def test_the_start_budget_of_a_pool_wins_over_the_deployments() -> None:
    pools = [{"name": "a", "engine": {"startBudgetSeconds": 100}}, {"name": "b"}]
    spec = deployment(engine={"startBudgetSeconds": 500}, pools=pools).spec

    assert (start_budget(spec, "a"), start_budget(spec, "b")) == (100, 500)


def test_the_judge_waits_as_long_for_a_start_as_the_pods_own_probe() -> None:
    spec = deployment(model={"id": "deepseek-ai/DeepSeek-V4-Pro"}).spec
    probe = pod_template(spec, pools_of(spec)[0], pool_labels("chat", "main"))["spec"]["containers"][0][
        "startupProbe"
    ]

    assert start_budget(spec, "main") == probe["periodSeconds"] * probe["failureThreshold"]


def test_a_factor_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="speedUp"):
        Times().sped_up(0.5)
