"""What was learned of a fleet outlives the operator's process; evidence of a fault never does."""

import json

import pytest

from kintsugi.core import names
from kintsugi.ports.errors import Forbidden, Unavailable
from kintsugi.runtime.keeping import DATA_KEY, shelf_name
from kintsugi.testing.cluster.store import Json
from kintsugi.testing.fleet import Behaviour
from tests.scenarios.stage import Scene, warm

SETTLED = 1800.0
"""Seconds after which a warm fleet's learning is written."""


def kept(scene: Scene) -> list[Json]:
    """The deployment's ConfigMaps."""
    return [each for each in scene.cluster.all("ConfigMap", scene.key.namespace)]


def times_written(scene: Scene) -> int:
    return len([write for write in scene.writes("apply") if "ConfigMap" in write])


async def test_fragmentation_that_begins_after_an_operator_restart_is_still_cured() -> None:
    scene = await warm({"short": 3})
    await scene.run(SETTLED)
    scene.restart()
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.until_removed()
    assert scene.removals() == [victim]


async def test_without_what_was_kept_the_same_fragmentation_is_only_told() -> None:
    scene = await warm({"short": 3})
    await scene.run(SETTLED)
    scene.cluster.remove("ConfigMap", scene.key.namespace, shelf_name(scene.key))
    scene.restart()
    scene.engines.change(scene.names_of("short")[0], fragmentation=0.4)
    await scene.run(3600)
    assert scene.removals() == []


async def test_a_restarted_operator_sees_the_whole_window_again() -> None:
    scene = await warm({"short": 3})
    await scene.run(SETTLED)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.run(300)
    scene.restart()
    assert await scene.until_withdrawn(victim) >= 540


async def test_a_warm_fleet_is_written_once_for_each_thing_learned_and_a_quiet_one_never_again() -> None:
    scene = await warm({"short": 3})
    await scene.run(SETTLED)
    assert times_written(scene) == 1
    await scene.run(2 * 3600)
    assert times_written(scene) == 2, "what a step costs is known later than the memory after warm-up"
    before = len(scene.cluster.writes)
    await scene.run(3 * 3600)
    assert scene.writes(since=before) == []


async def test_a_new_engine_is_added_no_sooner_than_an_hour_after_the_last_write() -> None:
    scene = await warm({"short": 2})
    await scene.run(SETTLED)
    scene.edit(pools=[{"name": "short", "replicas": 3}])
    await scene.run(1500)
    assert times_written(scene) == 1
    await scene.run(3600)
    assert times_written(scene) == 2
    (found,) = kept(scene)
    assert len(json.loads(found["data"][DATA_KEY])["processes"]) == 3


async def test_what_is_kept_goes_with_the_deployment() -> None:
    scene = await warm({"short": 2})
    await scene.run(SETTLED)
    assert len(kept(scene)) == 1
    scene.cluster.remove(names.DEPLOYMENT_KIND, scene.key.namespace, scene.key.name)
    await scene.run(60)
    assert kept(scene) == []


async def test_a_config_map_of_somebody_else_is_left_alone() -> None:
    scene = Scene()
    theirs: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": scene.key.namespace, "name": shelf_name(scene.key)},
        "data": {"mine": "yes"},
    }
    scene.cluster.put(theirs)
    scene.deploy({"short": 2})
    await scene.run(1300 + SETTLED)
    assert [each["data"] for each in kept(scene)] == [{"mine": "yes"}]


async def test_a_store_that_says_nonsense_is_learned_anew_and_written_over() -> None:
    scene = await warm({"short": 2})
    await scene.run(SETTLED)
    scene.cluster.edit(
        "ConfigMap",
        scene.key.namespace,
        shelf_name(scene.key),
        {"data": {DATA_KEY: '{"savedAt": [], "x": NaN'}},
    )
    scene.restart()
    scene.edit(pools=[{"name": "short", "replicas": 3}])
    await scene.run(2 * 3600)
    (found,) = kept(scene)
    known = [each["references"] for each in json.loads(found["data"][DATA_KEY])["processes"]]
    assert len([each for each in known if each]) == 1, (
        "of the old ones the time after their warm-up was missed"
    )


async def test_an_operator_that_may_not_read_it_heals_what_it_has_seen_itself() -> None:
    scene = Scene()
    scene.cluster.fail_next("get", "ConfigMap", Forbidden("configmaps is forbidden"))
    scene.deploy({"short": 3})
    await scene.run(1300)
    victim = scene.names_of("short")[0]
    scene.engines.change(victim, fragmentation=0.4)
    await scene.until_removed()
    assert scene.removals() == [victim]
    assert times_written(scene) == 0


async def test_a_write_that_fails_is_tried_again_and_fails_no_pass() -> None:
    scene = await warm({"short": 3})
    scene.cluster.fail_next("apply", "ConfigMap", Unavailable("no answer"))
    await scene.run(SETTLED)
    await scene.run(SETTLED)
    assert len(kept(scene)) == 1


async def test_one_of_two_that_answers_nonsense_is_cured_though_the_operator_restarted_after_it_began() -> (
    None
):
    scene = await warm({"short": 2})
    await scene.run(SETTLED)
    sick = scene.names_of("short")[0]
    scene.engines.change(sick, garbage=1.0)
    scene.restart()
    await scene.until_removed(within=2 * 1800.0)
    assert scene.removals() == [sick]


async def test_without_what_was_kept_two_that_answer_differently_are_told_and_left() -> None:
    scene = await warm({"short": 2})
    await scene.run(SETTLED)
    scene.engines.change(scene.names_of("short")[0], garbage=1.0)
    scene.cluster.remove("ConfigMap", scene.key.namespace, shelf_name(scene.key))
    scene.restart()
    await scene.run(2 * 1800.0)
    assert scene.removals() == []


async def test_answers_of_a_container_before_are_nothing_to_the_one_that_runs_now() -> None:
    scene = await warm({"short": 2})
    await scene.run(SETTLED)
    again = scene.names_of("short")[0]
    scene.cluster.exit_container("llm", again, 1, "Error")
    await scene.run(60)
    scene.engines.change(again, garbage=1.0)
    scene.restart()
    await scene.run(2 * 1800.0)
    assert scene.removals() == []


async def test_what_an_earlier_deployment_of_the_same_name_left_is_nothing_and_written_over() -> None:
    scene = await warm({"short": 2})
    await scene.run(SETTLED)
    name = shelf_name(scene.key)
    stranger = [{"apiVersion": names.API_VERSION, "kind": "Other", "name": "chat", "uid": "of-another"}]
    scene.cluster.edit("ConfigMap", scene.key.namespace, name, {"metadata": {"ownerReferences": stranger}})
    scene.engines.change(scene.names_of("short")[0], garbage=1.0)
    scene.restart()
    await scene.run(2 * 1800.0)
    assert scene.removals() == []
    (found,) = kept(scene)
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] != ["of-another"]


@pytest.mark.parametrize("lost", [False, True], ids=["kept", "lost"])
async def test_an_offload_pool_half_filled_at_an_operator_restart_costs_no_engine(lost: bool) -> None:
    scene = Scene(pace=30.0)
    scene.engines.behaviour = lambda pod: Behaviour(memory=20.0, leak=4.0)
    scene.deploy({"short": 2}, engine={"kvOffload": {"hostMemoryPerEngine": "40Gi"}})
    await scene.run(5.2 * 3600)
    if lost:
        scene.cluster.remove("ConfigMap", scene.key.namespace, shelf_name(scene.key))
    else:
        (found,) = kept(scene)
        began = [each["memory"] for each in json.loads(found["data"][DATA_KEY])["processes"]]
        assert all(who == "ENGINE" and 20.0 <= level / 2**30 < 22.0 for who, level in began), began
    scene.restart()
    await scene.run(4.75 * 3600)
    for name in scene.names_of("short"):
        scene.engines.change(name, memory=60.0, leak=0.0)
    await scene.run(1800)
    assert scene.remediations() == []
