"""Nodes fail, people delete pods, the kubelet restarts containers, all in the middle of a remediation."""

import pytest

from tests.scenarios.stage import Scene, warm


async def in_phase(phase: str, nodes: int = 4, sickness: str = "stall") -> tuple[Scene, str]:
    """A pool of three on `nodes` nodes of one GPU, whose first instance is being healed and is in `phase`."""
    seconds = 720 if sickness == "stall" else 1300
    scene = await warm({"short": 3}, nodes=nodes, seconds=seconds, healing={"probationSeconds": 120})
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, **({"hung": True} if sickness == "stall" else {"fragmentation": 0.4}))
    await scene.until_phase(phase)
    return scene, victim


async def settled(scene: Scene, seconds: float = 3600) -> None:
    """Run on; then nothing is under way and the pool is whole."""
    await scene.run(seconds)
    assert scene.status.remediations.active == ()
    assert scene.serving() == 3
    living = [pod for pod in scene.pods() if "deletionTimestamp" not in pod["metadata"]]
    assert len(living) == 3


@pytest.mark.parametrize("phase", ["Quarantined", "Draining", "Replacing", "Warming"])
async def test_the_victims_node_loses_power_in_the_middle(phase: str) -> None:
    scene, victim = await in_phase(phase, nodes=5)
    pod = scene.pod(victim)
    node = str(pod["spec"]["nodeName"]) if pod else "node1"
    others = scene.removals()
    scene.cluster.power_off(node)
    await settled(scene)
    assert set(scene.removals()) <= {victim, *others}


async def test_the_node_of_the_replacement_loses_power_before_it_is_ready() -> None:
    scene, victim = await in_phase("Replacing", nodes=5)
    await scene.run_until(lambda _: scene.newest().status.replacement is not None, 120)
    made = scene.newest().status.replacement
    assert made is not None
    scene.cluster.power_off(scene.node(made.name))
    await scene.run(2400)
    assert scene.removals() == [victim]
    assert scene.serving() == 3


async def test_a_siblings_node_loses_power_during_the_hold_and_the_sick_one_that_serves_is_kept() -> None:
    scene, victim = await in_phase("Quarantined", nodes=3, sickness="fragmentation")
    lost = next(name for name in scene.names_of("short") if name != victim)
    scene.cluster.power_off(scene.node(lost))
    await scene.run(1800)
    assert scene.removals() == []
    assert scene.withheld()[victim] in ("minHealthy", "replacementPending")


@pytest.mark.parametrize("phase", ["Quarantined", "Draining"])
async def test_somebody_deletes_the_victim_in_the_middle(phase: str) -> None:
    scene, victim = await in_phase(phase)
    scene.cluster.remove("Pod", "llm", victim)
    await settled(scene)
    assert len(scene.outcomes()) == 1
    assert scene.status.remediations.breakers == ()


@pytest.mark.parametrize("phase", ["Replacing", "Warming", "Probation"])
async def test_somebody_deletes_the_replacement_in_the_middle(phase: str) -> None:
    scene, victim = await in_phase(phase)
    await scene.run_until(lambda _: scene.newest().status.replacement is not None, 120)
    made = scene.newest().status.replacement
    assert made is not None
    scene.cluster.remove("Pod", "llm", made.name)
    await settled(scene)
    assert scene.removals() == [victim]


async def test_the_kubelet_restarts_the_victim_in_the_hold_and_its_new_process_is_given_back() -> None:
    scene, victim = await in_phase("Quarantined")
    uid = scene.uid(victim)
    scene.cluster.exit_container("llm", victim, 1)
    await settled(scene, 900)
    assert (scene.removals(), scene.uid(victim), scene.rotation(victim)) == ([], uid, "in")
    assert scene.outcomes() == ["Cancelled"]


async def test_the_kubelet_restarts_the_replacement_during_its_warm_up_and_it_is_still_the_replacement() -> (
    None
):
    scene, victim = await in_phase("Warming")
    made = scene.newest().status.replacement
    assert made is not None
    scene.cluster.exit_container("llm", made.name, 0)
    await settled(scene)
    assert scene.removals() == [victim]
    assert made.uid in scene.uids()


async def test_an_engine_that_exits_with_0_is_brought_back_in_place_and_counts_as_down() -> None:
    scene = await warm({"short": 3}, seconds=720)
    pod = scene.names_of("short")[0]
    uid = scene.uid(pod)
    scene.cluster.exit_container("llm", pod, 0, "Completed")
    await scene.run(15)
    assert scene.serving() == 2
    await scene.run(300)
    assert (scene.serving(), scene.uid(pod), scene.remediations()) == (3, uid, [])


async def test_a_pod_that_ended_for_good_with_0_is_replaced() -> None:
    scene = await warm({"short": 3}, seconds=720)
    pod = scene.names_of("short")[0]
    scene.cluster.world.store.update_status(
        "Pod", "llm", pod, lambda held: {**held, "status": {**held["status"], "phase": "Succeeded"}}
    )
    await settled(scene, 1800)
    assert scene.pod(pod) is None


async def test_the_third_restart_within_half_an_hour_gets_a_fresh_pod() -> None:
    scene = await warm({"short": 3}, seconds=720)
    pod = scene.names_of("short")[0]
    for _ in range(3):
        assert scene.removals() == []
        scene.cluster.exit_container("llm", pod, 1)
        await scene.run(180)
    await scene.until_removed(within=900)
    done = await scene.until_done()
    assert (scene.removals(), done.spec.trigger, done.status.outcome) == ([pod], "dead", "Cured")


async def test_the_wall_clock_jumps_and_nobody_is_hurt() -> None:
    scene = await warm({"short": 3}, seconds=720)
    for seconds in (3600, -7200, 86400):
        scene.cluster.clock.jump(seconds)
        await scene.run(600)
    assert (scene.remediations(), scene.serving()) == ([], 3)


async def test_a_drained_node_moves_its_engine_without_a_remediation() -> None:
    scene = await warm({"short": 3}, nodes=4, seconds=720)
    moved = scene.names_of("short")[0]
    node = scene.node(moved)
    scene.cluster.cordon(node)
    await scene.cluster.client().evict("llm", moved, scene.uid(moved), None)
    await settled(scene, 900)
    assert scene.remediations() == []
    assert node not in {scene.node(name) for name in scene.names_of("short")}


async def test_a_quota_that_forbids_the_replacement_stops_the_removal_until_there_is_room() -> None:
    scene = await warm({"short": 4}, nodes=5, seconds=720)
    first = scene.names_of("short")[0]
    scene.engines.change(first, hung=True)
    await scene.until_withdrawn(first)
    scene.cluster.set_quota("llm", pods=3)
    await scene.run(2400)
    assert scene.removals() == [], "not even with the place that it would free"
    assert scene.withheld() == {first: "capacity"}
    assert scene.rotation(first) == "out", "what answers nobody stays withdrawn"
    scene.cluster.set_quota("llm", pods=4)
    await scene.until_removed()
    assert scene.newest().status.path == "DeleteFirst", "a full quota lets nothing start beside it"
    await scene.run(2400)
    assert scene.serving() == 4
