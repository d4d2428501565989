"""What `ClusterPort` promises of pods and ReplicaSets, of the fake and of the real cluster alike."""

import pytest

from kintsugi.adapters.kube import parse
from kintsugi.adapters.kube.parse import node_rooms
from kintsugi.core import names
from kintsugi.core.avoidance import avoid
from kintsugi.ports.errors import Conflict, Invalid, NotFound, Refused
from tests.contract.benches import Bench, eventually, key_of
from tests.contract.manifests import (
    budget,
    deployment,
    pod_names,
    ready_pods,
    replica_set,
)


async def test_scaling_from_a_stale_view_is_a_conflict(bench: Bench) -> None:
    made = await bench.port.create(replica_set(bench, 0))
    await bench.edit(
        "apps/v1", "replicasets", "ReplicaSet", made["metadata"]["name"], {"spec": {"replicas": 1}}
    )
    with pytest.raises(Conflict):
        await bench.port.scale_replica_set(
            bench.namespace, "chat-short-r1", 2, made["metadata"]["resourceVersion"]
        )


async def test_scaling_moves_the_count_of_pods(bench: Bench) -> None:
    await ready_pods(bench, 1)
    (held,) = await bench.port.list_replica_sets(key_of(bench))
    assert held["kind"] == "ReplicaSet"
    await bench.port.scale_replica_set(
        bench.namespace, "chat-short-r1", 2, held["metadata"]["resourceVersion"]
    )

    async def two() -> bool:
        return len(await pod_names(bench)) == 2

    await eventually(two, lambda: bench.wait(1))


async def test_scaling_below_zero_is_invalid_and_scaling_nothing_is_not_found(bench: Bench) -> None:
    await bench.port.create(replica_set(bench, 0))
    await bench.wait(1)
    (made,) = await bench.port.list_replica_sets(key_of(bench))
    with pytest.raises(Invalid):
        await bench.port.scale_replica_set(
            bench.namespace, "chat-short-r1", -1, made["metadata"]["resourceVersion"]
        )
    with pytest.raises(NotFound):
        await bench.port.scale_replica_set(bench.namespace, "none", 1, made["metadata"]["resourceVersion"])


async def test_a_template_that_avoids_a_node_moves_no_pod_and_is_told_from_a_stale_view(bench: Bench) -> None:
    before = await ready_pods(bench, 1)
    (held,) = await bench.port.list_replica_sets(key_of(bench))
    action = avoid(parse.replica_set(held), ["node9"])
    assert action is not None
    await bench.port.patch_replica_set(
        bench.namespace, action.name, dict(action.patch), action.resource_version
    )
    (after,) = await bench.port.list_replica_sets(key_of(bench))
    seen = parse.replica_set(after)
    assert (seen.avoids, seen.wanted) == (("node9",), 1)
    with pytest.raises(Conflict):
        await bench.port.patch_replica_set(
            bench.namespace, action.name, dict(action.patch), action.resource_version
        )
    back = avoid(seen, ())
    assert back is not None
    await bench.port.patch_replica_set(bench.namespace, back.name, dict(back.patch), back.resource_version)
    (restored,) = await bench.port.list_replica_sets(key_of(bench))
    assert parse.replica_set(restored).affinity == {}
    await bench.wait(1)
    assert await pod_names(bench) == {pod["metadata"]["name"] for pod in before}


async def test_patching_a_pod_of_the_same_name_and_another_uid_is_a_conflict(bench: Bench) -> None:
    (pod,) = await ready_pods(bench, 1)
    out = {"metadata": {"labels": {names.ROTATION_LABEL: names.ROTATION_OUT}}}
    with pytest.raises(Conflict):
        await bench.port.patch_pod(bench.namespace, pod["metadata"]["name"], "not-this-one", out)
    with pytest.raises(NotFound):
        await bench.port.patch_pod(bench.namespace, "none", pod["metadata"]["uid"], out)
    with pytest.raises(Invalid):
        await bench.port.patch_pod(bench.namespace, "none", pod["metadata"]["uid"], {"spec": {}})
    await bench.port.patch_pod(bench.namespace, pod["metadata"]["name"], pod["metadata"]["uid"], out)
    (after,) = await bench.port.list_pods(key_of(bench))
    assert after["metadata"]["labels"][names.ROTATION_LABEL] == names.ROTATION_OUT
    assert after["metadata"]["labels"][names.POOL_LABEL] == "short"


async def test_a_released_pod_is_replaced_and_lives_on_under_the_deployment(bench: Bench) -> None:
    owner = await bench.put(deployment(bench))
    (pod,) = await ready_pods(bench, 1)
    reference = {
        "apiVersion": names.API_VERSION,
        "kind": names.DEPLOYMENT_KIND,
        "name": "chat",
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
    patch = {"metadata": {"labels": {names.MEMBER_LABEL: None}, "ownerReferences": [reference]}}
    await bench.port.patch_pod(bench.namespace, pod["metadata"]["name"], pod["metadata"]["uid"], patch)

    async def replaced() -> bool:
        return len(await pod_names(bench)) == 2

    await eventually(replaced, lambda: bench.wait(0.2))
    await bench.wait(10)
    held = await bench.look("v1", "pods", "Pod", pod["metadata"]["name"])
    assert held["metadata"]["ownerReferences"] == [reference]
    assert "deletionTimestamp" not in held["metadata"]


async def test_an_eviction_names_its_pod_by_uid(bench: Bench) -> None:
    (pod,) = await ready_pods(bench, 1)
    with pytest.raises(Conflict):
        await bench.port.evict(bench.namespace, pod["metadata"]["name"], "not-this-one", None)
    with pytest.raises(NotFound):
        await bench.port.evict(bench.namespace, "none", pod["metadata"]["uid"], None)
    await bench.port.evict(bench.namespace, pod["metadata"]["name"], pod["metadata"]["uid"], 1)

    async def replaced() -> bool:
        found = await pod_names(bench)
        return len(found) == 1 and pod["metadata"]["name"] not in found

    await eventually(replaced, lambda: bench.wait(1))


async def test_an_eviction_beyond_the_budget_is_refused(bench: Bench) -> None:
    pods = await ready_pods(bench, 3)
    await bench.port.apply(budget(bench))
    first, second = pods[0]["metadata"], pods[1]["metadata"]

    async def gone() -> bool:
        try:
            await bench.port.evict(bench.namespace, first["name"], first["uid"], 30)
        except Refused:  # the budget is still being processed by the server
            return False
        return True

    await eventually(gone, lambda: bench.wait(1))
    with pytest.raises(Refused):
        await bench.port.evict(bench.namespace, second["name"], second["uid"], 1)
    assert second["name"] in await pod_names(bench)


async def test_a_pod_that_is_not_ready_may_be_evicted_whatever_the_budget_has_left(bench: Bench) -> None:
    await bench.port.create(replica_set(bench, 3, ready=False))

    async def all_running() -> bool:
        found = await bench.port.list_pods(key_of(bench))
        return [pod["status"].get("phase") for pod in found] == ["Running"] * 3

    await eventually(all_running, lambda: bench.wait(1))
    await bench.port.apply(budget(bench))
    await bench.wait(1)
    for pod in await bench.port.list_pods(key_of(bench)):
        await bench.port.evict(bench.namespace, pod["metadata"]["name"], pod["metadata"]["uid"], 1)


async def test_scaling_down_ends_the_pod_that_costs_least(bench: Bench) -> None:
    pods = await ready_pods(bench, 3)
    victim = pods[1]["metadata"]
    cost = {"metadata": {"annotations": {names.DELETION_COST_ANNOTATION: "-1000"}}}
    await bench.port.patch_pod(bench.namespace, victim["name"], victim["uid"], cost)
    await bench.wait(1)
    (held,) = await bench.port.list_replica_sets(key_of(bench))
    await bench.port.scale_replica_set(
        bench.namespace, "chat-short-r1", 2, held["metadata"]["resourceVersion"]
    )
    others = {pod["metadata"]["name"] for pod in pods} - {victim["name"]}

    async def gone() -> bool:
        return await pod_names(bench) == others

    await eventually(gone, lambda: bench.wait(1))


async def test_a_pod_under_two_budgets_is_refused_and_says_so(bench: Bench) -> None:
    (pod,) = await ready_pods(bench, 1)
    await bench.port.apply(budget(bench))
    await bench.port.apply(budget(bench, "another"))
    await bench.wait(1)
    with pytest.raises(Refused, match="more than one PodDisruptionBudget"):
        await bench.port.evict(bench.namespace, pod["metadata"]["name"], pod["metadata"]["uid"], None)


async def test_a_delete_names_its_object_by_uid_and_takes_the_pods_along(bench: Bench) -> None:
    await ready_pods(bench, 2)
    (held,) = await bench.port.list_replica_sets(key_of(bench))
    with pytest.raises(Conflict):
        await bench.port.delete("apps/v1", "ReplicaSet", bench.namespace, "chat-short-r1", "not-this-one")
    uid = held["metadata"]["uid"]
    await bench.port.delete("apps/v1", "ReplicaSet", bench.namespace, "chat-short-r1", uid)

    async def gone() -> bool:
        return not await pod_names(bench)

    await eventually(gone, lambda: bench.wait(1))
    with pytest.raises(NotFound):
        await bench.port.delete("apps/v1", "ReplicaSet", bench.namespace, "chat-short-r1", uid)


async def test_node_avoidance_applied_to_a_template_moves_no_pod(bench: Bench) -> None:
    pods = await ready_pods(bench, 1)
    avoid = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [pods[0]["spec"]["nodeName"]]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [avoid]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    wanted = replica_set(bench, 1)
    del wanted["spec"]["replicas"]
    wanted["spec"]["template"]["spec"]["affinity"] = affinity
    await bench.port.apply(wanted)
    await bench.wait(5)
    assert await pod_names(bench) == {pods[0]["metadata"]["name"]}
    held = await bench.look("apps/v1", "replicasets", "ReplicaSet", "chat-short-r1")
    assert held["spec"]["replicas"] == 1
    assert held["spec"]["template"]["spec"]["affinity"] == affinity
    del wanted["spec"]["template"]["spec"]["affinity"]
    await bench.port.apply(wanted)
    held = await bench.look("apps/v1", "replicasets", "ReplicaSet", "chat-short-r1")
    assert "nodeAffinity" not in held["spec"]["template"]["spec"].get("affinity", {})


async def test_pods_of_other_deployments_and_of_no_pool_are_not_ours(bench: Bench) -> None:
    await ready_pods(bench, 1)
    other = replica_set(bench, 1)
    other["metadata"] |= {"name": "other-short-r1"}
    member = {**other["spec"]["selector"]["matchLabels"], names.DEPLOYMENT_LABEL: "other"}
    other["spec"]["selector"]["matchLabels"] = member
    other["spec"]["template"]["metadata"]["labels"] = member
    await bench.port.create(other)
    await bench.wait(2)
    assert len(await pod_names(bench)) == 1


async def test_gpus_held_by_pods_are_missing_from_their_node(bench: Bench) -> None:
    free = {room.name: room.gpus_free for room in node_rooms(await bench.port.list_nodes(), ())}
    pods = await ready_pods(bench, 1, gpus=2)
    mine = [
        pod for pod in await bench.port.list_gpu_pods() if pod["metadata"].get("namespace") == bench.namespace
    ]
    node = pods[0]["spec"]["nodeName"]
    room = next(each for each in node_rooms(await bench.port.list_nodes(), mine) if each.name == node)
    assert room.ready
    assert room.schedulable
    assert room.gpus_free == free[node] - 2


async def test_an_event_can_be_posted_about_a_pod_and_about_a_deployment(bench: Bench) -> None:
    await bench.port.create_event(
        {"apiVersion": "v1", "kind": "Pod", "namespace": bench.namespace, "name": "p", "uid": "1"},
        "Warning",
        "Withdrawn",
        "ö" * 2000,
        "Withdraw",
    )
    await bench.port.create_event(
        {"kind": names.DEPLOYMENT_KIND, "namespace": bench.namespace, "name": "chat"},
        "Normal",
        "Cured",
        "well",
        "",
    )


async def test_a_log_that_is_not_there_is_empty_and_of_no_pod_is_not_found(bench: Bench) -> None:
    (pod,) = await ready_pods(bench, 1)
    assert list(await bench.port.pod_log_tail(bench.namespace, pod["metadata"]["name"], 10)) == []
    with pytest.raises(NotFound):
        await bench.port.pod_log_tail(bench.namespace, "none", 10)


async def test_a_pod_that_runs_for_the_first_time_has_no_log_of_a_run_before(bench: Bench) -> None:
    (pod,) = await ready_pods(bench, 1)
    assert (
        list(await bench.port.pod_log_tail(bench.namespace, pod["metadata"]["name"], 10, previous=True)) == []
    )


async def test_events_of_a_pod_are_its_own(bench: Bench) -> None:
    (pod,) = await ready_pods(bench, 1)
    meta = pod["metadata"]
    events = await bench.port.list_pod_events(bench.namespace, meta["name"], meta["uid"])
    assert all(event["reason"] and "message" in event for event in events)
    assert {event.get("involvedObject", {}).get("uid", meta["uid"]) for event in events} <= {meta["uid"]}
    assert await bench.port.list_pod_events(bench.namespace, "none", "no-such-uid") == []
