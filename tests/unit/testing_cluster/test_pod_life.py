"""The fake cluster's controllers, scheduler and kubelets, against what Kubernetes documents."""

from typing import Any

import pytest

from kintsugi.core import names
from kintsugi.core.snapshot import Key
from kintsugi.ports.errors import Refused
from kintsugi.testing.cluster import FakeCluster, Start

NS = "llm"
POOL = {
    names.MANAGED_BY_LABEL: names.MANAGED_BY,
    names.DEPLOYMENT_LABEL: "chat",
    names.POOL_LABEL: "short",
    names.MEMBER_LABEL: names.MEMBER,
}


def replica_set(replicas: int, gpus: int = 4, name: str = "chat-short-1", **pod_spec: Any) -> dict[str, Any]:
    engine = {"name": "engine", "image": "engine:1", "resources": {"limits": {names.GPU_RESOURCE: str(gpus)}}}
    labels = {**POOL, names.ROTATION_LABEL: names.ROTATION_IN, names.REVISION_LABEL: name}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"namespace": NS, "name": name, "labels": POOL},
        "spec": {
            "replicas": replicas,
            "selector": {
                "matchLabels": {names.MEMBER_LABEL: names.MEMBER, names.REVISION_LABEL: name},
            },
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [engine], **pod_spec}},
        },
    }


def service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": NS, "name": "chat-short", "labels": POOL},
        "spec": {"selector": {names.POOL_LABEL: "short", names.ROTATION_LABEL: names.ROTATION_IN}},
    }


def budget(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": NS, "name": "chat-short"},
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {names.ROTATION_LABEL: names.ROTATION_IN}},
            **spec,
        },
    }


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    for node in ("n1", "n2", "n3"):
        made.add_node(node, gpus=8)
    return made


def names_of(found: list[dict[str, Any]]) -> set[str]:
    return {each["metadata"]["name"] for each in found}


async def running(cluster: FakeCluster, replicas: int, **kwargs: Any) -> list[dict[str, Any]]:
    cluster.put(replica_set(replicas, **kwargs))
    cluster.put(service())
    await cluster.advance(60)
    return cluster.all("Pod", NS)


async def test_pods_of_a_replica_set_become_ready_and_get_traffic(cluster: FakeCluster) -> None:
    pods = await running(cluster, 3)
    assert len(pods) == 3
    assert {pod["spec"]["nodeName"] for pod in pods} == {"n1", "n2", "n3"}
    assert cluster.endpoints(NS, "chat-short") == sorted(pod["status"]["podIP"] for pod in pods)
    assert cluster.get("ReplicaSet", NS, "chat-short-1")["status"]["readyReplicas"] == 3


async def test_a_pod_without_room_stays_pending_and_says_why(cluster: FakeCluster) -> None:
    pods = await running(cluster, 7)
    pending = [pod for pod in pods if pod["status"]["phase"] == "Pending"]
    assert len(pending) == 1
    scheduled = next(each for each in pending[0]["status"]["conditions"] if each["type"] == "PodScheduled")
    assert scheduled["reason"] == "Unschedulable"
    assert "3 Insufficient nvidia.com/gpu" in scheduled["message"]
    cluster.remove("Pod", NS, next(pod["metadata"]["name"] for pod in pods if pod is not pending[0]))
    await cluster.advance(60)
    assert cluster.get("Pod", NS, pending[0]["metadata"]["name"])["status"]["phase"] == "Running"


async def test_a_withdrawn_pod_loses_its_endpoint_and_is_kept_by_its_replica_set(
    cluster: FakeCluster,
) -> None:
    pods = await running(cluster, 3)
    victim = pods[0]["metadata"]
    out = {"metadata": {"labels": {names.ROTATION_LABEL: names.ROTATION_OUT}}}
    await cluster.patch_pod(NS, victim["name"], victim["uid"], out)
    await cluster.advance(5)
    assert pods[0]["status"]["podIP"] not in cluster.endpoints(NS, "chat-short")
    assert names_of(cluster.all("Pod", NS)) == names_of(pods)


async def test_a_released_pod_lives_on_and_is_replaced_at_once(cluster: FakeCluster) -> None:
    pods = await running(cluster, 3)
    victim = pods[0]["metadata"]
    await cluster.patch_pod(
        NS,
        victim["name"],
        victim["uid"],
        {
            "metadata": {
                "labels": {names.MEMBER_LABEL: None},
                "ownerReferences": [
                    {
                        "apiVersion": names.API_VERSION,
                        "kind": names.DEPLOYMENT_KIND,
                        "name": "chat",
                        "uid": "someone",
                        "controller": True,
                    }
                ],
            }
        },
    )
    await cluster.advance(0.5)
    left = cluster.all("Pod", NS)
    assert len(left) == 4
    assert victim["name"] in names_of(left)
    assert len(await cluster.list_pods(Key(NS, "chat"))) == 4


async def test_an_owned_pod_that_no_longer_matches_loses_its_owner(cluster: FakeCluster) -> None:
    pods = await running(cluster, 1)
    victim = pods[0]["metadata"]
    await cluster.patch_pod(
        NS, victim["name"], victim["uid"], {"metadata": {"labels": {names.MEMBER_LABEL: None}}}
    )
    await cluster.advance(1)
    assert cluster.get("Pod", NS, victim["name"])["metadata"]["ownerReferences"] == []


async def test_scaling_down_ends_the_cheapest_of_equally_ready_pods(cluster: FakeCluster) -> None:
    pods = await running(cluster, 3)
    victim = pods[2]["metadata"]
    cost = {"metadata": {"annotations": {names.DELETION_COST_ANNOTATION: "-100"}}}
    await cluster.patch_pod(NS, victim["name"], victim["uid"], cost)
    held = cluster.get("ReplicaSet", NS, "chat-short-1")
    await cluster.scale_replica_set(NS, "chat-short-1", 2, held["metadata"]["resourceVersion"])
    await cluster.advance(10)
    assert names_of(cluster.all("Pod", NS)) == names_of(pods) - {victim["name"]}


async def test_scaling_down_ends_unready_pods_before_cheap_ones(cluster: FakeCluster) -> None:
    pods = await running(cluster, 3)
    cheap, unready = pods[0]["metadata"], pods[1]["metadata"]
    cost = {"metadata": {"annotations": {names.DELETION_COST_ANNOTATION: "-100"}}}
    await cluster.patch_pod(NS, cheap["name"], cheap["uid"], cost)
    cluster.set_ready(NS, unready["name"], False)
    await cluster.advance(1)
    held = cluster.get("ReplicaSet", NS, "chat-short-1")
    await cluster.scale_replica_set(NS, "chat-short-1", 2, held["metadata"]["resourceVersion"])
    await cluster.advance(10)
    assert names_of(cluster.all("Pod", NS)) == names_of(pods) - {unready["name"]}


async def test_a_crashing_container_is_restarted_with_back_off(cluster: FakeCluster) -> None:
    cluster.on_start(lambda pod: Start(boot_seconds=5, dies_after=8, exit_code=0))
    cluster.put(replica_set(1))
    await cluster.advance(20)
    engine = cluster.all("Pod", NS)[0]["status"]["containerStatuses"][0]
    assert engine["restartCount"] == 1
    assert engine["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    await cluster.advance(300)
    pod = cluster.all("Pod", NS)[0]
    assert pod["status"]["containerStatuses"][0]["restartCount"] >= 4
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 0


async def test_an_image_that_cannot_be_pulled_leaves_the_pod_pending(cluster: FakeCluster) -> None:
    cluster.on_start(lambda pod: Start(image_ok=False))
    pods = await running(cluster, 1)
    assert pods[0]["status"]["phase"] == "Pending"
    assert pods[0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"


async def test_an_eviction_beyond_the_budget_is_refused(cluster: FakeCluster) -> None:
    pods = await running(cluster, 3)
    cluster.put(budget())
    first, second = pods[0]["metadata"], pods[1]["metadata"]
    await cluster.evict(NS, first["name"], first["uid"], None)
    with pytest.raises(Refused, match="disruption budget"):
        await cluster.evict(NS, second["name"], second["uid"], None)
    await cluster.advance(60)
    await cluster.evict(NS, second["name"], second["uid"], 5)


async def test_an_unready_pod_may_always_be_evicted_where_the_budget_allows_it(cluster: FakeCluster) -> None:
    pods = await running(cluster, 3)
    cluster.put(budget())
    for pod in pods[:2]:
        cluster.set_ready(NS, pod["metadata"]["name"], False)
    await cluster.evict(NS, pods[0]["metadata"]["name"], pods[0]["metadata"]["uid"], None)
    with pytest.raises(Refused):
        await cluster.evict(NS, pods[2]["metadata"]["name"], pods[2]["metadata"]["uid"], None)


async def test_a_pod_under_two_budgets_cannot_be_evicted(cluster: FakeCluster) -> None:
    pods = await running(cluster, 3)
    cluster.put(budget())
    second = budget()
    second["metadata"]["name"] = "another"
    cluster.put(second)
    with pytest.raises(Refused, match="more than one"):
        await cluster.evict(NS, pods[0]["metadata"]["name"], pods[0]["metadata"]["uid"], None)


async def test_node_avoidance_in_the_template_moves_only_the_next_pod(cluster: FakeCluster) -> None:
    pods = await running(cluster, 1)
    node = pods[0]["spec"]["nodeName"]
    avoid = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [avoid]}]
            }
        }
    }
    cluster.edit("ReplicaSet", NS, "chat-short-1", {"spec": {"template": {"spec": {"affinity": affinity}}}})
    await cluster.advance(5)
    assert names_of(cluster.all("Pod", NS)) == names_of(pods)
    cluster.remove("Pod", NS, pods[0]["metadata"]["name"])
    await cluster.advance(60)
    assert cluster.all("Pod", NS)[0]["spec"]["nodeName"] != node


async def test_a_node_without_power_loses_its_pods_after_their_toleration(cluster: FakeCluster) -> None:
    pods = await running(cluster, 3)
    lost = next(pod for pod in pods if pod["spec"]["nodeName"] == "n1")
    cluster.power_off("n1")
    await cluster.advance(45)
    assert lost["status"]["podIP"] not in cluster.endpoints(NS, "chat-short")
    await cluster.advance(320)
    assert "deletionTimestamp" in cluster.get("Pod", NS, lost["metadata"]["name"])["metadata"]
    assert len(cluster.endpoints(NS, "chat-short")) == 3
    cluster.join("n1")
    await cluster.advance(5)
    assert lost["metadata"]["name"] not in names_of(cluster.all("Pod", NS))


async def test_a_cut_node_comes_back_with_its_engines_as_they_were(cluster: FakeCluster) -> None:
    pods = await running(cluster, 3)
    cluster.cut("n2")
    await cluster.advance(100)
    assert len(cluster.endpoints(NS, "chat-short")) == 2
    cluster.join("n2")
    await cluster.advance(1)
    assert len(cluster.endpoints(NS, "chat-short")) == 3
    assert names_of(cluster.all("Pod", NS)) == names_of(pods)
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in cluster.all("Pod", NS))


async def test_a_quota_keeps_a_replacement_from_being_made(cluster: FakeCluster) -> None:
    pods = await running(cluster, 2)
    cluster.set_quota(NS, pods=2)
    cluster.put(replica_set(1, name="chat-short-2"))
    await cluster.advance(30)
    assert names_of(cluster.all("Pod", NS)) == names_of(pods)
    assert any(event.reason == "FailedCreate" for event in cluster.events)
    cluster.set_quota(NS)
    await cluster.advance(30)
    assert len(cluster.all("Pod", NS)) == 3


async def test_children_follow_a_deleted_owner_and_pods_follow_their_replica_set(
    cluster: FakeCluster,
) -> None:
    await running(cluster, 2)
    cluster.remove("ReplicaSet", NS, "chat-short-1")
    await cluster.advance(60)
    assert cluster.all("Pod", NS) == []


async def test_the_same_seed_gives_the_same_cluster() -> None:
    async def build() -> list[dict[str, Any]]:
        made = FakeCluster(seed=7)
        made.add_node("n1")
        return await running(made, 2)

    assert await build() == await build()


async def test_the_engine_named_container_alone_restarts(cluster: FakeCluster) -> None:
    pods = await running(cluster, 1)
    cluster.exit_container(NS, pods[0]["metadata"]["name"], 137, "OOMKilled")
    assert cluster.endpoints(NS, "chat-short") == []
    await cluster.advance(60)
    engine = cluster.all("Pod", NS)[0]["status"]["containerStatuses"][0]
    assert engine["restartCount"] == 1
    assert engine["lastState"]["terminated"]["reason"] == "OOMKilled"
    assert engine["ready"] is True
