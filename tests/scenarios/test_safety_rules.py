"""One test for each of the 28 safety rules that the project learned from the incidents of others, named after it.

The second half, from rule 15 on, is in `test_safety_rules_of_acting.py`.
"""

from typing import Any

import pytest

from kintsugi.core.snapshot import Failure
from kintsugi.testing.cluster.kubelet import Start
from kintsugi.testing.cluster.store import Json
from tests.scenarios.stage import Scene, warm

SICK: dict[str, Any] = {"fragmentation": 0.4}
WELL: dict[str, Any] = {"fragmentation": 0.05}


async def fleet(pool: int = 4, spare: int = 1, **more: Any) -> tuple[Scene, list[str]]:
    """A warm pool with a spare GPU, and the names of its pods."""
    scene = await warm({"short": pool}, nodes=pool + spare, **more)
    return scene, scene.names_of("short")


async def test_rule_01_a_condition_must_last_and_be_sampled_an_instant_is_nothing() -> None:
    scene, (victim, *_) = await fleet()
    for _ in range(6):
        scene.engines.change(victim, **SICK)
        await scene.run(180)
        scene.engines.change(victim, **WELL)
        await scene.run(240)
    assert (scene.remediations(), scene.rotation(victim)) == ([], "in")
    scene.engines.change(victim, **SICK)
    assert await scene.until_withdrawn(victim) >= 300, "more than half of its window of 600 s"


async def test_rule_02_unknown_is_neither_sick_nor_well() -> None:
    scene, names = await fleet()
    for name in names:
        scene.engines.change(name, failure=Failure.CONNECT_TIMEOUT)
    await scene.run(3600)
    assert (scene.remediations(), scene.condition("DataFresh")[0]) == ([], "False")
    for name in names:
        scene.engines.change(name, failure=None)
    await scene.run(300)
    scene.engines.change(names[0], **SICK)
    await scene.until_withdrawn(names[0])
    scene.engines.change(names[0], failure=Failure.CONNECT_TIMEOUT)
    await scene.run(1800)
    assert (scene.removals(), scene.rotation(names[0])) == ([], "out"), "neither killed nor given back"


async def test_rule_03_two_witnesses_before_anything_destructive() -> None:
    scene, (frozen, hung, always, *_) = await fleet()
    scene.engines.change(frozen, steps_per_second=0.0)  # no step, and it answers
    await scene.run(1200)
    assert scene.remediations() == []
    scene.engines.change(frozen, steps_per_second=20.0)
    scene.engines.change(hung, hung=True)
    done = await scene.until_done()
    seen = {each.signal for each in done.status.evidence}
    assert {"canaries unanswered", "seconds without a step of rank 0"} <= seen
    assert scene.removals() == [hung]
    assert always in scene.names_of("short")


async def test_rule_04_starting_is_not_failing() -> None:
    scene = Scene(nodes=4)
    scene.cluster.on_start(lambda pod: Start(boot_seconds=1200.0))
    scene.deploy({"short": 3})
    await scene.run(1230)
    names = scene.names_of("short")
    scene.engines.change(names[0], **SICK)
    scene.engines.change(names[1], hung=True)
    await scene.run(480)  # inside of the warm-up that follows the first Ready
    assert (scene.remediations(), scene.serving()) == ([], 3)


async def test_rule_05_idle_is_not_hung_and_saturated_is_not_hung() -> None:
    scene, (idle, full, lost, _) = await fleet()
    scene.engines.change(idle, running=0.0, kv_usage=0.0)
    scene.engines.change(full, running=256.0, waiting=900.0, kv_usage=1.0, slow=1.3)
    scene.engines.change(lost, failure=Failure.CONNECT_TIMEOUT)
    await scene.run(3600)
    verdicts = {each.name: each.verdict for each in scene.status.instances}
    assert (verdicts[idle], scene.remediations()) == ("Idle", [])
    assert verdicts[full] in ("Saturated", "Healthy")
    assert verdicts[lost] == "Unknown", "a connect timeout proves nothing"


async def test_rule_06_min_healthy_is_checked_against_live_state_right_before_the_kill() -> None:
    scene, (victim, *others) = await fleet(healing={"budget": {"minHealthyPercent": 75}})
    scene.engines.change(victim, **SICK)
    await scene.until_phase("Quarantined")
    listed, plain = [0.0], scene.cluster.list_pods

    async def list_pods(key: Any) -> list[Json]:
        """Between what the pass saw and its action, somebody else falls."""
        now = scene.cluster.clock.mono()
        scene.cluster.set_ready("llm", others[0], now != listed[0])
        listed[0] = now
        return await plain(key)

    scene.cluster.list_pods = list_pods  # type: ignore[method-assign]
    await scene.run(1500)
    assert scene.removals() == [], "the pass's own view allowed it, the live one does not"
    scene.cluster.list_pods = plain  # type: ignore[method-assign]
    scene.cluster.set_ready("llm", others[0], True)
    await scene.until_removed()
    assert scene.removals() == [victim]


async def test_rule_07_one_budget_for_healing_rollout_and_scale_down() -> None:
    scene, (victim, *_) = await fleet()
    scene.engines.change(victim, **SICK)
    await scene.run(330)
    scene.edit(engine={"image": "vllm/vllm-openai:v0.33.1"})
    least = scene.serving()
    while scene.condition("Progressing")[1] != "AsWanted" or scene.cluster.clock.mono() < 2000:
        await scene.run(30)
        least = min(least, scene.serving())
        assert scene.cluster.clock.mono() < 9000
    assert least >= 3, "a rollout and a remediation never add up"
    assert scene.removals() == [], "the rollout replaced the sick one"


async def test_rule_08_one_in_flight_in_a_pool() -> None:
    scene, (first, second, *_) = await fleet(5)
    scene.engines.change(first, **SICK)
    await scene.until_withdrawn(first)
    await scene.run(300)
    scene.engines.change(second, **SICK)
    await scene.run(700)
    assert (scene.removals(), scene.withheld()) == ([first], {second: "inFlight"})
    await scene.until_removed(2)
    assert "Cured" in scene.outcomes()


async def test_rule_09_a_windowed_breaker_by_counts() -> None:
    budget = {"maxInFlightPerPool": 3}
    scene, names = await fleet(6, healing={"probationSeconds": 60, "budget": budget})
    for name in names[:3]:
        scene.cluster.fail_pod("llm", name)
        await scene.run(310)
    await scene.until_removed(2)
    await scene.run(120)
    (held,) = scene.status.remediations.withheld
    assert (held.gate, held.next_check is not None) == ("budget", True)
    await scene.until_removed(3)
    at = sorted(w.at for w in scene.cluster.writes if w.verb == "evict")
    assert at[2] - at[0] >= 1800, "it closes by itself when its window has passed"


async def test_rule_10_a_storm_stops_new_harm_only() -> None:
    scene, (first, second, *_) = await fleet()
    scene.engines.change(first, **SICK)
    await scene.run(100)
    scene.engines.change(second, **SICK)
    await scene.until_withdrawn(first)
    await scene.run(300)
    assert scene.condition("HealingAllowed") == ("False", "Storm")
    assert (scene.rotation(first), scene.removals()) == ("in", []), "it goes on giving back"
    scene.engines.change(first, **WELL)
    await scene.run(900)
    verdicts = {each.name: each.verdict for each in scene.status.instances}
    assert (verdicts[first], verdicts[second]) == ("Healthy", "Sick"), "and it goes on looking"


async def test_rule_11_a_reset_needs_a_person_and_starts_from_now() -> None:
    scene, (first, second, *_) = await fleet()
    known = scene.uids()
    scene.cluster.on_start(lambda pod: Start(image_ok=pod["metadata"]["uid"] in known))
    scene.engines.change(first, **SICK)
    await scene.until_done()
    scene.cluster.on_start(lambda pod: Start())
    (broken,) = (name for name in scene.names_of("short") if scene.uid(name) not in known)
    scene.cluster.remove("Pod", "llm", broken)  # a person mends what was broken, and nothing else
    scene.engines.change(second, **SICK)
    await scene.run(7200)
    assert (scene.removals(), scene.withheld()[second]) == ([first], "breaker")
    scene.reset()
    before = scene.cluster.clock.mono()
    await scene.until_withdrawn(second, within=3600)
    assert scene.cluster.clock.mono() - before >= 300, "two hours of old evidence count for nothing"


async def test_rule_12_a_storm_is_followed_by_a_cool_down() -> None:
    scene, names = await fleet(3)
    for name in names:
        scene.engines.change(name, hung=True)
    await scene.run(150)
    assert scene.condition("HealingAllowed") == ("False", "Storm")
    for name in names:
        scene.engines.change(name, hung=False)
    await scene.run(150)
    assert scene.serving() == 3, "all are well again"
    scene.cluster.fail_pod("llm", names[0])  # what would be replaced at once at any other time
    await scene.run(90)
    assert (scene.removals(), scene.withheld()) == ([], {names[0]: "storm"})
    await scene.until_removed()
    assert scene.removals() == [names[0]], "and goes on by itself"


async def test_rule_13_withdraw_then_drain_then_evict_and_a_refusal_is_waited_for() -> None:
    scene, (victim, *_) = await fleet(3, spare=0, then=5)
    scene.engines.change(victim, drain_seconds=400.0, **SICK)
    done = await scene.until_done()
    steps = done.status.timeline
    assert None not in (steps.withdrawn, steps.drained, steps.deleted)
    assert steps.withdrawn is not None
    assert steps.drained is not None
    assert (steps.drained - steps.withdrawn).total_seconds() >= 350, "its streams ran to their end"
    assert done.status.streams_cut == 0
    assert scene.writes("delete") == [], "evicted, so that disruption budgets count"
    evicted = next(i for i, w in enumerate(scene.cluster.writes) if w.verb == "evict")
    assert any(w.verb == "patch" and w.name == victim for w in scene.cluster.writes[:evicted])


@pytest.mark.parametrize("spare", [0, 1])
async def test_rule_14_cancel_really_cancels_and_only_its_own_attempt(spare: int) -> None:
    scene, (victim, *_) = await fleet(3, spare=spare)
    uid = scene.uid(victim)
    scene.engines.change(victim, **SICK)
    await scene.until_phase("Quarantined")
    scene.engines.change(victim, **WELL)
    await scene.run_until(lambda _: scene.outcomes() == ["Cancelled"], 1200)
    assert (scene.rotation(victim), scene.uid(victim), scene.removals()) == ("in", uid, [])
    scene.engines.change(victim, **SICK)
    await scene.run_until(lambda _: scene.outcomes()[1:] not in ([], [""]), 3600)
    assert (scene.outcomes(), scene.removals()) == (["Cancelled", "Cured"], [victim])
    first, second = (each.spec.attempt_id for each in scene.remediations())
    assert first != second


def test_each_rule_has_its_test() -> None:
    from tests.scenarios import test_safety_rules_of_acting as others

    named = [name for name in (*globals(), *vars(others)) if name.startswith("test_rule_")]
    numbers = [int(name.split("_")[2]) for name in named]
    assert sorted(set(numbers)) == list(range(1, 29))
