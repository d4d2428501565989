"""GPUs that fall sick under a running engine (S55), and queues that no load explains (S17)."""

from tests.scenarios.stage import UNHURRIED, Scene, warm

FAST = {"storm": {"holdSeconds": 60}}


def set_health(scene: Scene, pod: str, health: str | None) -> None:
    scene.cluster.set_device_health(scene.key.namespace, pod, health)


async def test_s55_a_sick_gpu_that_serves_is_told_and_left_where_no_other_node_has_room() -> None:
    scene = await warm({"short": 3}, nodes=3, then=5)
    victim = scene.names_of("short")[0]
    set_health(scene, victim, "Unhealthy")
    await scene.run(30)
    assert scene.condition("Degraded")[0] == "False", "nothing before its time"
    await scene.run(60)
    entry = next(each for each in scene.status.instances if each.name == victim)
    assert (entry.verdict, entry.reason) == ("Sick", "DeviceUnhealthy")
    assert scene.withheld() == {victim: "elsewhere"}
    await scene.run(600)
    assert scene.removals() == []
    assert scene.rotation(victim) == "in"
    set_health(scene, victim, "Healthy")
    await scene.run(90)
    assert scene.condition("Degraded")[0] == "False"
    assert scene.withheld() == {}


async def test_s55_recovery_in_time_an_unknown_word_and_an_older_cluster_do_nothing() -> None:
    scene = await warm({"short": 3}, then=5)
    first, second, third = scene.names_of("short")
    assert scene.condition("DataFresh") == ("True", "AllRead")
    set_health(scene, first, "Unhealthy")
    set_health(scene, second, "Unknown")
    await scene.run(20)
    set_health(scene, first, "Healthy")
    await scene.run(300)
    assert {each.verdict for each in scene.status.instances} == {"Healthy"}
    assert scene.condition("DataFresh") == ("True", "SeriesMissing")
    set_health(scene, third, None)
    await scene.run(300)
    (fresh,) = [each for each in scene.status.conditions if each.type == "DataFresh"]
    assert "says Unknown" in fresh.message
    assert "no device health" in fresh.message
    assert scene.removals() == []


async def test_s17_an_engine_that_lets_hardly_anybody_in_is_replaced() -> None:
    scene = await warm({"short": 3}, then=5, healing=FAST, seconds=3600)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, running=1.0, waiting=20.0, kv_usage=0.05, answer_seconds=10_000.0)
    assert await scene.until_withdrawn(victim) <= 400
    done = await scene.until_done(every=UNHURRIED)
    assert (done.spec.trigger, done.status.outcome) == ("starvedAdmission", "Cured")
    assert scene.removals() == [victim]


async def test_s17_a_queue_that_every_engine_has_removes_nobody() -> None:
    scene = await warm({"short": 3}, then=5, healing=FAST, seconds=3600)
    for name in scene.names_of("short"):
        scene.engines.change(name, running=1.0, waiting=20.0, kv_usage=0.05, answer_seconds=10_000.0)
    await scene.run(900)
    assert scene.removals() == []


async def test_a_storm_names_the_node_that_its_victims_share() -> None:
    scene = await warm({"short": 6}, then=5, nodes=3, gpus=2)
    node = scene.node(scene.names_of("short")[0])
    victims = [name for name in scene.names_of("short") if scene.node(name) == node]
    assert len(victims) == 2
    for name in victims:
        scene.engines.change(name, hung=True)
    await scene.run(150)
    assert scene.condition("HealingAllowed") == ("False", "Storm")
    (said,) = [each for each in scene.status.conditions if each.type == "HealingAllowed"]
    assert f"In common: stall on 2 of 6 instances: 2 of 2 on node {node}, 0 of 4 elsewhere" in said.message
    assert scene.removals() == []
