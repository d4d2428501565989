"""A recorded hour with one fault in it: the backtest names that fault, and nothing else."""

import random
from typing import Any

import pytest

from kintsugi.core.snapshot import Failure
from tests.backtest.recorded import (
    EVERY,
    advised,
    backtest,
    change,
    done,
    fleet,
    found,
    names_of,
    policy,
    record,
    suspected,
)
from tests.scenarios.stage import warm

FAULT_AT = 1500.0


async def test_a_hang_is_named_and_nothing_else_is() -> None:
    scene = await fleet()
    victim = names_of(scene)[1]
    text = await record(scene, [(FAULT_AT, change(victim, hung=True))])
    made = backtest(text, policy())
    assert found(made) == [(victim, "stall")]
    assert done(made) == [("Withdraw", victim), ("Release", victim), ("Evict", victim)]
    (incident,) = made.timeline.incidents
    assert made.first is not None
    onset = made.first + FAULT_AT
    assert 60 <= incident.sick_at - onset <= 90
    withdrawn, released, _ = (deed.time - onset for deed in made.deeds)
    assert withdrawn <= 90
    assert 300 <= released <= 320
    assert incident.inferred
    assert incident.ended == "stillSick"
    assert incident.finding.evidence[0].value >= 60
    assert [outcome for outcome, _ in made.outcomes.values()] == ["Cured"]
    assert suspected(made) == {(victim, "stall")}


async def test_a_slow_engine_is_named_and_nothing_else_is() -> None:
    scene = await fleet()
    victim = names_of(scene)[0]
    text = await record(scene, [(2000.0, change(victim, slow=3.0))])
    made = backtest(text, policy())
    assert found(made) == [(victim, "throughput")]
    assert {name for _, name in done(made)} == {victim}
    assert not made.timeline.incidents[0].inferred


async def test_fragmentation_is_named_where_the_record_begins_with_the_engine() -> None:
    scene = await fleet(seconds=120.0)
    victim = names_of(scene)[2]
    text = await record(scene, [(FAULT_AT, change(victim, fragmentation=0.5))])
    assert found(backtest(text, policy())) == [(victim, "fragmentation")]


async def test_fragmentation_of_an_engine_whose_youth_was_not_recorded_is_advice() -> None:
    scene = await fleet()
    victim = names_of(scene)[2]
    text = await record(scene, [(600.0, change(victim, fragmentation=0.5))], seconds=2400.0)
    made = backtest(text, policy())
    assert found(made) == []
    assert done(made) == []
    assert advised(made, "fragmentation") == {victim}
    assert suspected(made) == set()


async def test_a_healthy_hour_holds_nothing() -> None:
    text = await record(await fleet())
    made = backtest(text, policy())
    assert made.pages == 3 * 360
    assert (found(made), done(made), made.held, suspected(made)) == ([], [], [], set())
    assert [len(track.processes) for track in made.timeline.tracks.values()] == [1, 1, 1]


async def test_a_pause_that_ends_by_itself_is_a_candidate_for_a_false_positive() -> None:
    scene = await fleet()
    victim = names_of(scene)[0]
    pause = [(600.0, change(victim, hung=True)), (800.0, change(victim, hung=False))]
    made = backtest(await record(scene, pause, seconds=1800.0), policy())
    (incident,) = made.timeline.incidents
    assert incident.candidate
    assert done(made) == [("Withdraw", victim), ("Restore", victim)]


async def test_without_inferred_canaries_a_stall_stays_a_suspicion() -> None:
    scene = await fleet()
    victim = names_of(scene)[0]
    text = await record(scene, [(600.0, change(victim, hung=True))], seconds=1800.0)
    made = backtest(text, policy(), infer=False)
    assert (found(made), done(made)) == ([], [])
    assert suspected(made) == {(victim, "stall")}
    assert made.canaries[scene.uid(victim)] > 2


async def test_a_hang_without_work_is_not_imagined() -> None:
    scene = await fleet()
    victim = names_of(scene)[0]
    text = await record(scene, [(600.0, change(victim, hung=True, running=0.0))], seconds=1800.0)
    made = backtest(text, policy())
    assert (found(made), done(made)) == ([], [])


async def test_requests_that_go_away_take_their_suspicion_with_them() -> None:
    scene = await fleet()
    victim = names_of(scene)[0]
    acts = [(600.0, change(victim, hung=True)), (655.0, change(victim, running=0.0))]
    made = backtest(await record(scene, acts, seconds=1800.0), policy())
    assert (found(made), done(made)) == ([], [])


async def test_a_policy_that_observes_says_what_it_would_have_done() -> None:
    scene = await fleet()
    victim = names_of(scene)[0]
    text = await record(scene, [(600.0, change(victim, hung=True))], seconds=1500.0)
    made = backtest(text, policy(mode="Observe"))
    assert found(made) == [(victim, "stall")]
    assert done(made) == []
    assert {(held.instance, held.gate) for held in made.held} == {(victim, "mode")}


async def test_two_that_hang_together_are_a_storm_and_none_is_removed() -> None:
    scene = await fleet(replicas=4)
    one, other = names_of(scene)[:2]
    acts = [(600.0, change(one, hung=True)), (620.0, change(other, hung=True))]
    made = backtest(await record(scene, acts, seconds=1800.0), policy())
    assert {name for name, _ in found(made)} == {one, other}
    assert not {what for what, _ in done(made)} & {"Release", "Evict"}
    assert "storm" in {held.gate for held in made.held}


@pytest.mark.parametrize("failure", [Failure.SILENT, Failure.REFUSED, Failure.CONNECT_TIMEOUT])
async def test_pages_that_can_not_be_read_lead_to_nothing(failure: Failure) -> None:
    scene = await fleet()
    acts = [(300.0, change(name, failure=failure)) for name in names_of(scene)]
    made = backtest(await record(scene, acts, seconds=1500.0), policy())
    assert (found(made), done(made)) == ([], [])
    assert made.data["MetricsUnavailable"] > 100


@pytest.mark.parametrize("seed", range(3))
async def test_pages_of_which_anything_may_be_missing_lead_to_nothing(seed: int) -> None:
    chance = random.Random(seed)
    text = await record(await fleet(), seconds=1800.0)

    def damaged(line: str) -> str:
        if line.startswith("#") or chance.random() > 0.3:
            return line
        series, _, _ = line.rpartition(" ")
        return chance.choice(["", f"{series} NaN\n", f"{series} +Inf\n", "garbage\n"])

    made = backtest("".join(damaged(line) for line in text.splitlines(keepends=True)), policy())
    assert (found(made), done(made)) == ([], [])


@pytest.mark.parametrize("series", ["_total", "vllm:num_requests_", "vllm:"])
async def test_a_hang_that_the_pages_do_not_show_is_not_guessed_at(series: str) -> None:
    scene = await fleet()
    text = await record(scene, [(300.0, change(names_of(scene)[0], hung=True))], seconds=1200.0)
    kept = [line for line in text.splitlines(keepends=True) if line.startswith("#") or series not in line]
    made = backtest("".join(kept), policy())
    assert (found(made), done(made)) == ([], [])


async def test_a_record_with_holes_leads_to_nothing() -> None:
    scene = await fleet()
    text = await record(scene, [(600.0, change(names_of(scene)[0], hung=True))], seconds=900.0)
    pages = text.split("# kintsugi-page")
    kept = [page for index, page in enumerate(pages) if index < 2 or index // 3 % 4 == 0]
    made = backtest("# kintsugi-page".join(kept), policy(), every=30.0)
    assert (found(made), done(made)) == ([], [])


async def test_a_pod_that_was_replaced_in_the_history_is_followed_by_its_replacement() -> None:
    scene = await fleet()
    victim = names_of(scene)[0]
    uid = scene.uid(victim)
    acts = [
        (600.0, change(victim, hung=True)),
        (1200.0, lambda scene: scene.cluster.remove("Pod", "llm", victim)),
    ]
    made = backtest(await record(scene, acts, seconds=3000.0), policy())
    assert found(made) == [(victim, "stall")]
    assert made.timeline.incidents[0].ended == "gone"
    assert len(made.timeline.tracks) == 4
    assert [name for _, name in done(made)] == [victim] * 3
    assert made.timeline.tracks[uid].spans[-1].verdict.value in ("Sick", "Unknown")


async def test_a_process_that_ends_is_followed_by_its_next_one() -> None:
    scene = await fleet()
    victim = names_of(scene)[0]
    acts = [
        (600.0, lambda scene: scene.cluster.exit_container("llm", victim, exit_code=137, reason="OOMKilled"))
    ]
    made = backtest(await record(scene, acts, seconds=1800.0), policy())
    assert (found(made), done(made)) == ([], [])
    track = made.timeline.tracks[scene.uid(victim)]
    assert len(track.processes) == 2
    assert "Starting" in {span.verdict.value for span in track.spans}


@pytest.mark.parametrize("fault", [{"hung": True}, {"slow": 3.0}], ids=["hang", "slow"])
async def test_what_it_says_is_what_the_operator_does(fault: dict[str, Any]) -> None:
    """The same fault, once recorded and replayed, once healed by the operator itself: the same steps at the same times."""
    past = await fleet()
    victim = names_of(past)[0]
    after = 2700.0  # a judge learns for 40 minutes before it can call an engine slow
    made = backtest(await record(past, [(after, change(victim, **fault))], after + 1500.0), policy())
    assert made.first is not None
    said = {deed.what: deed.time - made.first - after for deed in made.deeds}
    live = await warm({"short": 3}, then=EVERY, healing={"mode": "Act"})
    pod = names_of(live)[0]
    await live.run(after)
    onset = live.cluster.clock.now()
    live.engines.change(pod, **fault)
    await live.until_removed()
    timeline = live.newest().status.timeline
    assert timeline.withdrawn is not None
    assert timeline.released is not None
    assert said["Withdraw"] == pytest.approx(timeline.withdrawn.timestamp() - onset, abs=2 * EVERY)
    assert said["Release"] == pytest.approx(timeline.released.timestamp() - onset, abs=2 * EVERY)
    assert said["Evict"] - said["Release"] <= 300.0 + 2 * EVERY


async def test_a_pod_that_failed_is_removed_at_once() -> None:
    scene = await fleet(seconds=700.0)
    victim = names_of(scene)[0]
    text = await record(scene, [(600.0, lambda scene: scene.cluster.fail_pod("llm", victim))], seconds=1800.0)
    made = backtest(text, policy())
    assert found(made) == [(victim, "dead")]
    assert {name for _, name in done(made)} == {victim}
    assert made.deeds[-1].what == "Evict"
    assert made.deeds[-1].time - made.timeline.incidents[0].sick_at <= 2 * EVERY


async def test_a_container_that_ends_again_and_again_is_one_incident() -> None:
    scene = await fleet(seconds=700.0)
    victim = names_of(scene)[0]
    ends = [
        (600.0 + 200.0 * number, lambda scene: scene.cluster.exit_container("llm", victim))
        for number in range(6)
    ]
    made = backtest(await record(scene, ends, seconds=2400.0), policy())
    assert found(made) == [(victim, "dead")]
    assert "dead/RestartsRepeat" in made.timeline.incidents[0].reasons
    assert not made.timeline.incidents[0].candidate
    assert done(made)[-1] == ("Evict", victim)
