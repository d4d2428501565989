"""The world of the decision: history, but for what it would have done; the judge sees none of it."""

from dataclasses import replace
from typing import Any

from kintsugi.core.backtest.moments import Moment
from kintsugi.core.backtest.world import ASSUMED, SIZE_SECONDS, World
from kintsugi.core.finding import Verdict
from kintsugi.core.plan import Evict, Plan, Release, Restore, Withdraw
from kintsugi.core.revision import revision_of
from kintsugi.core.snapshot import Instance, Snapshot
from kintsugi.core.times import Times
from tests.unit.core.staging import deployment, instance

TIMES = Times()


def world(**more: Any) -> World:
    made = deployment(pools=[{"name": "main", "replicas": 7}], hardware={"gpusPerInstance": 2})
    return World(made, (), start_seconds=100.0, free_gpu=True, **more)


def pods(*uids: str, **changes: Any) -> tuple[Instance, ...]:
    return tuple(instance(uid, **changes) for uid in uids)


def see(stage: World, now: float, instances: tuple[Instance, ...]) -> Snapshot:
    return stage.acted_on(stage.recorded(Moment(now, instances, len(instances))), TIMES)


def do(stage: World, seen: Snapshot, *actions: Any) -> None:
    stage.apply(Plan(status=seen.deployment.status, actions=actions), seen)


def test_a_pool_is_as_large_as_it_was_of_late() -> None:
    stage = world()
    assert see(stage, 0.0, pods("a", "b", "c")).deployment.spec.pools[0].replicas == 3
    assert see(stage, 60.0, pods("a", "b")).deployment.spec.pools[0].replicas == 3
    assert see(stage, SIZE_SECONDS + 30.0, pods("a", "b")).deployment.spec.pools[0].replicas == 2


def test_the_revision_that_most_lately_came_is_the_wanted_one() -> None:
    stage = world()
    seen = see(stage, 0.0, pods("a", "b"))
    wanted = revision_of(stage.deployment.spec, stage.deployment.spec.pools[0])
    assert {i.revision for i in seen.instances} == {wanted}
    assert [(s.revision, s.wanted, s.actual) for s in seen.replica_sets] == [(wanted, 2, 2)]


def test_a_rollout_in_the_history_is_one_to_the_decision() -> None:
    stage = world()
    new = instance("c", revision="r2", created_at=instance().created_at + 60)
    seen = see(stage, 0.0, (*pods("a", "b"), new))
    assert sorted((s.wanted, s.actual) for s in seen.replica_sets) == [(1, 1), (2, 2)]


def test_what_was_withdrawn_is_out_until_it_is_put_back() -> None:
    stage = world()
    do(stage, see(stage, 0.0, pods("a", "b")), Withdraw("a", "a", "a-1"))
    assert [i.in_rotation for i in see(stage, 5.0, pods("a", "b")).instances] == [False, True]
    do(stage, see(stage, 5.0, pods("a", "b")), Restore("a", "a", "a-1"))
    assert [i.in_rotation for i in see(stage, 10.0, pods("a", "b")).instances] == [True, True]


def test_the_judge_sees_what_was_recorded() -> None:
    stage = world()
    do(stage, see(stage, 0.0, pods("a", "b")), Withdraw("a", "a", "a-1"), Evict("a", "a", "a-1", None))
    recorded = stage.recorded(Moment(5.0, pods("a", "b"), 2))
    assert [(i.uid, i.in_rotation) for i in recorded.instances] == [("a", True), ("b", True)]


def test_a_released_pod_gets_one_replacement_that_is_well_after_its_start() -> None:
    stage = world()
    do(stage, see(stage, 0.0, pods("a", "b")), Release("a", "a", "a-1"))
    seen = see(stage, 5.0, pods("a", "b"))
    assert [(i.uid, i.member, i.ready) for i in seen.instances] == [
        ("a", False, True),
        ("b", True, True),
        (f"{ASSUMED}-a", True, False),
    ]
    do(stage, seen, Evict("a", "a", "a-1", None))
    later = see(stage, 101.0, pods("a", "b"))
    assert [(i.uid, i.ready) for i in later.instances] == [("b", True), (f"{ASSUMED}-a", True)]
    verdicts = stage.verdicts({}, 101.0)
    assert {uid: said.verdict for uid, said in verdicts.items()} == {f"{ASSUMED}-a": Verdict.HEALTHY}
    assert later.answers == {f"{ASSUMED}-a": True}


def test_the_history_s_own_replacement_takes_the_place_of_the_assumed_one() -> None:
    stage = world()
    do(stage, see(stage, 0.0, pods("a", "b")), Evict("a", "a", "a-1", None))
    assert [i.uid for i in see(stage, 200.0, pods("b", "c")).instances] == ["b", "c"]
    assert not stage.removed


def test_there_is_room_for_one_more_or_for_none() -> None:
    (node,) = see(world(), 0.0, pods("a")).nodes or ()
    assert (node.gpus_free, node.ready, node.schedulable) == (2, True, True)
    full = replace(world(), free_gpu=False)
    assert see(full, 0.0, pods("a")).nodes == ()
