"""What `ClusterPort` promises, of the fake and of the real API server alike."""

import base64
from typing import Any

import pytest

from kintsugi.adapters.kube.lease import Leadership
from kintsugi.adapters.kube.parse import node_rooms
from kintsugi.core import names
from kintsugi.ports.errors import AlreadyExists, Conflict, Invalid, NotFound, PortError, Refused
from tests.contract.benches import Bench, Json, eventually, key_of

OURS = {
    names.MANAGED_BY_LABEL: names.MANAGED_BY,
    names.DEPLOYMENT_LABEL: "chat",
    names.POOL_LABEL: "short",
}


def deployment(bench: Bench) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.DEPLOYMENT_KIND,
        "metadata": {"namespace": bench.namespace, "name": "chat", "labels": {"team": "a"}},
        "spec": {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash-0731"}},
    }


def replica_set(bench: Bench, replicas: int, gpus: int = 0, ready: bool = True) -> Json:
    engine: Json = {"name": "engine", "image": "docker.io/local/pause:1", "imagePullPolicy": "IfNotPresent"}
    if gpus:
        engine["resources"] = {"limits": {names.GPU_RESOURCE: str(gpus)}}
    if not ready:
        engine["readinessProbe"] = {"exec": {"command": ["false"]}}
    member = {**OURS, names.MEMBER_LABEL: names.MEMBER, names.REVISION_LABEL: "r1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"namespace": bench.namespace, "name": "chat-short-r1", "labels": OURS},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": member},
            "template": {
                "metadata": {"labels": {**member, names.ROTATION_LABEL: names.ROTATION_IN}},
                "spec": {"containers": [engine], "terminationGracePeriodSeconds": 1},
            },
        },
    }


def service(bench: Bench, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": bench.namespace, "name": "chat-short", "labels": OURS},
        "spec": {
            "selector": {names.POOL_LABEL: "short", names.ROTATION_LABEL: names.ROTATION_IN},
            "ports": [{"name": "http", "port": 8000, "protocol": "TCP", "targetPort": 8000}],
            **spec,
        },
    }


def budget(bench: Bench, name: str = "chat-short") -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": bench.namespace, "name": name, "labels": OURS},
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {**OURS, names.ROTATION_LABEL: names.ROTATION_IN}},
        },
    }


def remediation(bench: Bench, name: str) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.REMEDIATION_KIND,
        "metadata": {"namespace": bench.namespace, "name": name, "labels": OURS},
        "spec": {
            "deployment": "chat",
            "pool": "short",
            "revision": "r1",
            "instance": {"name": "chat-short-r1-abcde", "uid": "0001", "startedAt": "2026-01-01T00:00:00Z"},
            "trigger": "stall",
            "remedy": "Recreate",
            "attemptId": name,
            "lineage": "0001",
        },
    }


async def ready_pods(bench: Bench, replicas: int, gpus: int = 0) -> list[Json]:
    await bench.port.create(replica_set(bench, replicas, gpus))

    async def all_ready() -> bool:
        held = await bench.look("apps/v1", "replicasets", "ReplicaSet", "chat-short-r1")
        return int(held.get("status", {}).get("readyReplicas", 0)) == replicas

    await eventually(all_ready, lambda: bench.wait(5))
    return await bench.port.list_pods(key_of(bench))


async def pod_names(bench: Bench) -> set[str]:
    return {pod["metadata"]["name"] for pod in await bench.port.list_pods(key_of(bench))}


async def test_a_deployment_that_is_not_there_is_none(bench: Bench) -> None:
    assert await bench.port.get_deployment(key_of(bench)) is None
    assert await bench.port.get_remediation(bench.namespace, "none") is None


async def test_deployments_are_listed_with_their_kind(bench: Bench) -> None:
    await bench.put(deployment(bench))
    found = await bench.port.list_deployments()
    assert [(each["kind"], each["metadata"]["name"]) for each in found] == [(names.DEPLOYMENT_KIND, "chat")]


async def test_a_status_is_replaced_whole_and_nothing_else_is_touched(bench: Bench) -> None:
    made = await bench.put(deployment(bench))
    version = made["metadata"]["resourceVersion"]
    version = await bench.port.write_status(
        key_of(bench), {"observedGeneration": 1, "why": "because"}, version
    )
    version = await bench.port.write_status(key_of(bench), {"observedGeneration": 1}, version)
    held = await bench.port.get_deployment(key_of(bench))
    assert held is not None
    assert held["status"] == {"observedGeneration": 1}
    assert held["spec"] == made["spec"]
    assert held["metadata"]["labels"] == {"team": "a"}
    assert held["metadata"]["generation"] == 1
    assert held["metadata"]["resourceVersion"] == version


async def test_a_status_that_says_the_same_is_no_write(bench: Bench) -> None:
    made = await bench.put(deployment(bench))
    version = await bench.port.write_status(
        key_of(bench), {"observedGeneration": 1}, made["metadata"]["resourceVersion"]
    )
    assert await bench.port.write_status(key_of(bench), {"observedGeneration": 1}, version) == version


async def test_a_status_from_a_stale_view_is_a_conflict(bench: Bench) -> None:
    made = await bench.put(deployment(bench))
    await bench.edit(
        names.API_VERSION,
        names.DEPLOYMENT_PLURAL,
        names.DEPLOYMENT_KIND,
        "chat",
        {"metadata": {"labels": {"x": "y"}}},
    )
    with pytest.raises(Conflict):
        await bench.port.write_status(key_of(bench), {"why": "stale"}, made["metadata"]["resourceVersion"])


async def test_a_status_without_a_version_is_never_written(bench: Bench) -> None:
    await bench.put(deployment(bench))
    with pytest.raises(Conflict):
        await bench.port.write_status(key_of(bench), {"why": "blind"}, "")


async def test_a_status_of_nothing_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFound):
        await bench.port.write_status(key_of(bench), {}, "1")


async def test_a_status_field_outside_the_schema_is_dropped(bench: Bench) -> None:
    made = await bench.put(deployment(bench))
    await bench.port.write_status(
        key_of(bench), {"observedGeneration": 1, "noSuchField": 1}, made["metadata"]["resourceVersion"]
    )
    held = await bench.port.get_deployment(key_of(bench))
    assert held is not None
    assert held["status"] == {"observedGeneration": 1}


async def test_a_status_outside_its_bounds_is_refused(bench: Bench) -> None:
    made = await bench.put(deployment(bench))
    with pytest.raises(Invalid, match="observedGeneration"):
        await bench.port.write_status(
            key_of(bench), {"observedGeneration": "one"}, made["metadata"]["resourceVersion"]
        )


async def test_a_second_create_is_already_there(bench: Bench) -> None:
    first = await bench.port.create(remediation(bench, "chat-0001-1"))
    assert first["metadata"]["uid"]
    with pytest.raises(AlreadyExists):
        await bench.port.create(remediation(bench, "chat-0001-1"))


async def test_an_object_against_its_schema_is_invalid(bench: Bench) -> None:
    wrong = remediation(bench, "chat-0001-1")
    wrong["spec"]["remedy"] = "Pray"
    with pytest.raises(Invalid, match="remedy"):
        await bench.port.create(wrong)


async def test_a_kind_that_is_not_ours_is_invalid(bench: Bench) -> None:
    with pytest.raises(Invalid):
        await bench.port.delete("v1", "Namespace", "", bench.namespace, "uid")


async def test_remediation_names_come_by_deployment_and_its_status_is_its_own(bench: Bench) -> None:
    made = await bench.port.create(remediation(bench, "chat-0001-1"))
    other = remediation(bench, "other-0001-1")
    other["metadata"]["labels"] = {**OURS, names.DEPLOYMENT_LABEL: "other"}
    await bench.port.create(other)
    found = await bench.port.list_remediation_names(key_of(bench))
    assert found == [("chat-0001-1", made["metadata"]["creationTimestamp"])]
    await bench.port.write_remediation_status(
        bench.namespace, "chat-0001-1", {"phase": "Draining"}, made["metadata"]["resourceVersion"]
    )
    held = await bench.port.get_remediation(bench.namespace, "chat-0001-1")
    assert held is not None
    assert held["status"] == {"phase": "Draining"}
    with pytest.raises(Conflict):
        await bench.port.write_remediation_status(
            bench.namespace, "chat-0001-1", {"phase": "Done"}, made["metadata"]["resourceVersion"]
        )


async def test_apply_creates_then_does_nothing_then_takes_back_what_it_no_longer_says(bench: Bench) -> None:
    wanted = service(bench)
    wanted["metadata"]["annotations"] = {"kintsugi.dev/note": "a"}
    first = await bench.port.apply(wanted)
    second = await bench.port.apply(wanted)
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    await bench.edit(
        "v1", "services", "Service", "chat-short", {"metadata": {"annotations": {"theirs": "kept"}}}
    )
    third = await bench.port.apply(service(bench))
    assert third["metadata"]["annotations"] == {"theirs": "kept"}
    assert third["metadata"]["uid"] == first["metadata"]["uid"]


async def test_children_are_services_and_budgets_with_their_kind(bench: Bench) -> None:
    await bench.port.apply(service(bench))
    await bench.port.apply(budget(bench))
    foreign = service(bench)
    foreign["metadata"] |= {"name": "foreign", "labels": {}}
    await bench.put(foreign)
    found = await bench.port.list_children(key_of(bench))
    assert [(each["kind"], each["apiVersion"]) for each in found] == [
        ("Service", "v1"),
        ("PodDisruptionBudget", "policy/v1"),
    ]


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


async def test_of_two_candidates_one_leads_until_it_lets_go(bench: Bench) -> None:
    first, second = (
        Leadership(bench.port, bench.clock, bench.namespace, "kintsugi", name) for name in ("first", "second")
    )
    assert await first.keep()
    assert not await second.keep()
    assert await first.keep()
    await first.release()
    assert await second.keep()
    assert not await first.keep()


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


async def test_a_secret_gives_one_value_or_none(bench: Bench) -> None:
    await bench.put(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": bench.namespace, "name": "keys"},
            "data": {"token": base64.b64encode(b"s3cret\n").decode()},
        }
    )
    assert await bench.port.get_secret_value(bench.namespace, "keys", "token") == "s3cret"
    assert await bench.port.get_secret_value(bench.namespace, "keys", "other") is None
    assert await bench.port.get_secret_value(bench.namespace, "none", "token") is None


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


async def test_a_lease_is_created_once_and_replaced_only_from_a_fresh_view(bench: Bench) -> None:
    lease: Json = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": bench.namespace, "name": "kintsugi"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    }
    assert await bench.port.get_lease(bench.namespace, "kintsugi") is None
    made = await bench.port.create(lease)
    with pytest.raises(AlreadyExists):
        await bench.port.create(lease)
    made["spec"]["holderIdentity"] = "b"
    after = await bench.port.replace_lease(made)
    assert after["spec"]["holderIdentity"] == "b"
    with pytest.raises(Conflict):
        await bench.port.replace_lease(made)


async def test_only_errors_of_the_port_are_raised(bench: Bench) -> None:
    with pytest.raises(PortError):
        await bench.port.create(
            {"kind": "Service", "apiVersion": "v1", "metadata": {"namespace": bench.namespace}}
        )
