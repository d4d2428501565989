"""Every gate, open and closed, with what it says; and the order in which they are heard."""

from dataclasses import replace
from typing import Any

import pytest

from kintsugi.api.status import ActiveRemediation, BreakerStatus
from kintsugi.core import gate
from kintsugi.core.finding import Detector, Verdict
from kintsugi.core.gate import GATES, STALL_WITHDRAWAL_GATES, Answer, Question, ask_gates, first_closed
from kintsugi.core.ledger import reserve
from kintsugi.core.moment import moment
from kintsugi.core.snapshot import Fleet
from tests.unit.core.decision.made import finding, spec
from tests.unit.core.decision.world import Pod, World, running_world


def question(
    world: World, pod: Pod | None = None, detector: Detector = Detector.FRAGMENTED, **more: Any
) -> Question:
    """May `pod` (the first one) be removed, as things stand?"""
    victim = pod or world.members()[0]
    snapshot = world.snapshot()
    view = world.view()
    values: dict[str, Any] = {
        "snapshot": snapshot,
        "status": snapshot.deployment.status,
        "storms": snapshot.deployment.status.remediations.storms,
        "times": world.times,
        "view": view,
        "instance": next(i for i in view.instances if i.uid == victim.uid),
        "finding": finding(detector, world.now - 100, world.now, world.times),
        "active": snapshot.deployment.status.remediations.active,
        "attempt": f"{victim.uid}-1",
        "removal": True,
        "rollout": "",
    }
    return Question(**(values | more))


def attempt(world: World, pod: Pod, **more: Any) -> ActiveRemediation:
    """A reservation for `pod`, made now."""
    snapshot = world.snapshot()
    instance = next(i for i in snapshot.instances if i.uid == pod.uid)
    about = finding(Detector.FRAGMENTED, world.now, world.now, world.times)
    made = reserve(snapshot, instance, about, "Recreate", 1, pod.uid)
    return made.model_copy(update=more)


def closed(answer: Answer, says: str) -> bool:
    return not answer.open and says in answer.message


def test_with_nothing_in_the_way_every_gate_is_open_and_says_so() -> None:
    answers = ask_gates(question(running_world(spec(4))))
    assert len(answers) == len(GATES)
    assert all(a.open and a.message for a in answers)
    assert first_closed(answers) is None


def test_a_stall_is_withdrawn_by_fewer_gates_than_it_is_removed_by() -> None:
    world = running_world(spec(4))
    stall = finding(Detector.STALLED, world.now - 100, world.now, world.times)
    withdrawal = ask_gates(question(world, finding=stall, removal=False))
    assert len(withdrawal) == len(STALL_WITHDRAWAL_GATES)
    assert len(ask_gates(question(world, finding=stall))) == len(GATES)


def test_paused_names_its_reasons() -> None:
    world = running_world(spec(4, healing={"pauseRequests": ["audit", "release"]}))
    assert closed(gate.paused(question(world)), "audit, release")


@pytest.mark.parametrize(
    ("healing", "name"),
    [
        ({"mode": "Observe"}, "mode"),
        ({"mode": "Recommend"}, "approval"),
        ({"triggers": {"fragmentation": {"mode": "Observe"}}}, "mode"),
    ],
)
def test_mode_closes_for_a_deployment_or_for_one_trigger(healing: dict[str, Any], name: str) -> None:
    world = running_world(spec(4, healing=healing))
    answer = gate.mode(question(world))
    assert closed(answer, "would")
    assert answer.gate == name


def test_a_trigger_that_acts_is_open_though_the_deployment_observes() -> None:
    world = running_world(
        spec(4, healing={"mode": "Observe", "triggers": {"fragmentation": {"mode": "Act"}}})
    )
    assert gate.mode(question(world)).open


def test_a_refused_spec_closes_with_its_problem() -> None:
    world = running_world(spec(4))
    assert closed(gate.spec_accepted(question(world, problems=("spec.x: wrong",))), "spec.x: wrong")


def test_data_closes_for_a_victim_without_a_fresh_page_unless_it_serves_nothing() -> None:
    world = running_world(spec(4))
    world.members()[0].blind = True
    assert closed(gate.data(question(world)), "no fresh reading of this instance")
    dead = finding(Detector.DEAD, world.now, world.now, world.times)
    assert gate.data(question(world, finding=dead)).open


def test_data_closes_where_more_than_half_of_the_siblings_cannot_be_read() -> None:
    world = running_world(spec(5))
    for pod in world.members()[1:3]:
        pod.blind = True
    assert gate.data(question(world)).open
    world.members()[3].blind = True
    assert closed(gate.data(question(world)), "3 of 4 siblings")


def test_siblings_that_are_sick_or_start_are_no_witnesses() -> None:
    world = running_world(spec(3))
    world.members()[1].faults[Detector.STALLED] = world.now - 100
    world.members()[2].ready_at = None
    assert gate.data(question(world)).open


def test_a_breaker_closes_for_its_own_pool_and_revision() -> None:
    world = running_world(spec(4))
    ended = attempt(
        world, world.members()[3], outcome="NotCured", finished_at=moment(world.now), message="why"
    )
    assert closed(gate.breaker(question(world, active=(ended,))), "why")
    elsewhere = ended.model_copy(update={"revision": "another"})
    assert gate.breaker(question(world, active=(elsewhere,))).open


def test_a_rollout_closes_with_what_it_does() -> None:
    assert closed(gate.rollout(question(running_world(spec(4)), rollout="scales up")), "scales up")


def test_in_flight_closes_at_one_attempt_and_names_it_and_lets_a_mere_withdrawal_pass() -> None:
    world = running_world(spec(8))
    other = attempt(world, world.members()[3])
    assert closed(gate.in_flight(question(world, active=(other,))), other.name)
    only_out = other.model_copy(update={"counts_towards_budget": False})
    assert gate.in_flight(question(world, active=(only_out,))).open


@pytest.mark.parametrize(("replicas", "limit"), [(4, 1), (8, 1), (9, 1), (20, 2), (30, 3)])
def test_a_tenth_of_a_large_pool_may_be_in_flight(replicas: int, limit: int) -> None:
    world = running_world(spec(replicas))
    others = tuple(attempt(world, pod) for pod in world.members()[1 : limit + 1])
    assert gate.in_flight(question(world, active=others[:-1])).open
    assert not gate.in_flight(question(world, active=others)).open


def test_another_member_that_does_not_come_up_closes_and_is_named() -> None:
    world = running_world(spec(4))
    other = world.members()[2]
    other.ready_at, other.never_starts = None, "ImagePullBackOff"
    assert closed(
        gate.replacement_pending(question(world)), f"{other.name} is not Ready yet (ImagePullBackOff)"
    )


@pytest.mark.parametrize(("replicas", "limit"), [(4, 2), (8, 2), (16, 2), (17, 3), (24, 3)])
def test_the_budget_of_a_pool_closes_at_its_limit_and_says_when_it_opens(replicas: int, limit: int) -> None:
    world = running_world(spec(replicas))
    others = tuple(
        attempt(world, pod, draining_since=moment(world.now - 60 * at))
        for at, pod in enumerate(world.members()[1 : limit + 1])
    )
    assert gate.pool_budget(question(world, active=others[:-1])).open
    answer = gate.pool_budget(question(world, active=others))
    assert closed(answer, f"at most {limit}")
    assert answer.next_check == world.now - 60 * (limit - 1) + world.times.budget_window


def test_the_hourly_budget_is_four_or_five_percent_of_all_instances() -> None:
    world = running_world(spec(4))
    for instances, used, is_open in ((10, 3, True), (10, 4, False), (400, 19, True), (400, 20, False)):
        world.fleet = Fleet(instances, 0, used)
        assert gate.hourly_budget(question(world)).open is is_open


def test_the_hourly_budget_counts_what_another_pool_takes_in_the_same_pass() -> None:
    world = running_world(spec(4))
    world.fleet = Fleet(10, 0, 3)
    other = attempt(world, world.members()[2], pool="another")
    assert not gate.hourly_budget(question(world, active=(other,))).open


def test_the_attempt_that_asks_does_not_count_against_itself() -> None:
    world = running_world(spec(4))
    mine = attempt(world, world.members()[0])
    book = world.status.remediations.model_copy(update={"active": (mine,)})
    world.status = world.status.model_copy(update={"remediations": book})
    world.fleet = Fleet(10, 0, 4)
    asked = question(world, active=(mine,), attempt=mine.id)
    for each in (gate.in_flight, gate.pool_budget, gate.hourly_budget, gate.min_healthy):
        assert each(asked).open, each(asked)


@pytest.mark.parametrize(
    ("replicas", "percent", "out", "is_open"),
    [
        (2, 50, 0, True),
        (2, 50, 1, False),
        (3, 50, 0, True),
        (3, 50, 1, False),
        (4, 50, 1, True),
        (4, 50, 2, False),
        (4, 100, 0, False),
        (2, 0, 1, False),
        (8, 50, 3, True),
        (8, 50, 4, False),
    ],
)
def test_min_healthy_counts_what_serves_without_the_victim(
    replicas: int, percent: int, out: int, is_open: bool
) -> None:
    world = running_world(spec(replicas, healing={"budget": {"minHealthyPercent": percent}}))
    for pod in world.members()[1 : out + 1]:
        pod.in_rotation = False
    assert gate.min_healthy(question(world)).open is is_open


def test_min_healthy_does_not_protect_what_has_served_nobody_for_long() -> None:
    world = running_world(spec(2))
    world.members()[1].ready = False
    for lasted, is_open in ((1700, False), (1800, True)):
        stall = finding(Detector.STALLED, world.now - lasted, world.now, world.times)
        assert gate.min_healthy(question(world, finding=stall)).open is is_open
    slow = finding(Detector.SLOW, world.now - 9999, world.now, world.times)
    assert not gate.min_healthy(question(world, finding=slow)).open


def test_min_healthy_counts_the_victims_of_other_attempts_as_out() -> None:
    world = running_world(spec(3))
    other = attempt(world, world.members()[1])
    assert not gate.min_healthy(question(world, active=(other,))).open


def test_a_pool_of_one_opens_for_room_or_for_what_serves_nothing() -> None:
    world = running_world(spec(1), gpus=1)
    world.nodes_asked = True
    assert closed(gate.pool_of_one(question(world)), "a person is asked")
    dead = finding(Detector.DEAD, world.now, world.now, world.times)
    assert gate.pool_of_one(question(world, finding=dead)).open
    world.gpus = 2
    assert gate.pool_of_one(question(world)).open


def test_an_unknown_verdict_of_the_victim_itself_is_no_reason_to_go_on() -> None:
    world = running_world(spec(4))
    view = replace(world.view(), verdicts={})
    assert view.verdict("nobody") is Verdict.UNKNOWN
    assert not gate.data(question(world, view=view)).open


def test_an_open_storm_closes_and_says_when_a_trial_may_come_and_half_open_lets_one_through() -> None:
    world = running_world(spec(4))
    for pod in world.members()[:2]:
        pod.faults[Detector.FRAGMENTED] = world.now
    world.step()
    answer = gate.storm(question(world))
    assert closed(answer, "2 instances fell sick together")
    fell = max(s.last_sick_at for s in world.status.remediations.storms).timestamp()
    assert answer.next_check == fell + world.times.storm_trial
    world.run(1900, every=50)
    half = tuple(s.model_copy(update={"state": "HalfOpen"}) for s in world.status.remediations.storms)
    alone = question(world, storms=half, active=())
    assert gate.storm(alone).open
    other = attempt(world, world.members()[3])
    assert closed(gate.storm(question(world, storms=half, active=(other,))), other.name)
    held = other.model_copy(update={"counts_towards_budget": False})
    assert gate.storm(question(world, storms=half, active=(held,))).open


def test_a_standing_breaker_closes_with_its_reason() -> None:
    world = running_world(spec(8))
    entry = BreakerStatus.model_validate(
        {
            "pool": "main",
            "revision": world.members()[0].revision,
            "reason": "NotCured",
            "since": moment(world.now),
            "message": "why",
        }
    )
    book = world.status.remediations.model_copy(update={"breakers": (entry,)})
    world.status = world.status.model_copy(update={"remediations": book})
    assert closed(gate.breaker(question(world)), "removals are stopped (NotCured): why")
