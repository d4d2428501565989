"""Instances of several pods: LeaderWorkerSet runs on the local cluster as on any other."""

import json
from typing import Any

import pytest

from kintsugi.api.effective import pools_of
from kintsugi.api.objects import parse_deployment
from kintsugi.core.render import leader_worker_set
from tests.cluster.cluster import Cluster
from tests.cluster.kube import CommandFailed, wait_for
from tests.cluster.lws import NAMESPACE, install_lws
from tests.integration import probe
from tests.unit.api.manifests import example_deployments

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def with_lws(local_cluster: Cluster) -> Cluster:
    install_lws(local_cluster)
    return local_cluster


def group(namespace: str, size: int) -> dict[str, Any]:
    template = {"spec": probe.pod_spec(gpus=1)}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "g", "namespace": namespace},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}},
    }


def test_groups_come_up_know_their_leader_and_are_replaced_whole(with_lws: Cluster, namespace: str) -> None:
    with_lws.apply(group(namespace, 2))
    before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in probe.wait_ready(with_lws, namespace, 4)}
    assert set(before) == {"g-0", "g-0-1", "g-1", "g-1-1"}
    ask = "import os, urllib.request as u; print(u.urlopen(f'http://{os.environ[\"LWS_LEADER_ADDRESS\"]}:8080').status)"
    assert with_lws.kubectl("-n", namespace, "exec", "g-1-1", "--", "python3", "-c", ask).strip() == "200"
    with_lws.kubectl("-n", namespace, "delete", "pod", "g-0-1", "--wait=false")

    def replaced() -> bool:
        now = {p["metadata"]["name"]: p["metadata"]["uid"] for p in probe.wait_ready(with_lws, namespace, 4)}
        same = {name for name, uid in before.items() if now[name] == uid}
        return same == {"g-1", "g-1-1"}

    wait_for("the whole group is new, the other as it was", replaced, 90)


def test_its_webhook_refuses_nonsense_through_a_service(with_lws: Cluster, namespace: str) -> None:
    with pytest.raises(CommandFailed, match="size"):
        with_lws.apply(group(namespace, -1))
    services = with_lws.kubectl("-n", NAMESPACE, "get", "services", "-o", "name")
    assert "webhook" in services


def test_it_takes_the_groups_that_the_operator_renders(with_lws: Cluster, namespace: str) -> None:
    groups = []
    for _, raw in example_deployments():
        made = parse_deployment(raw)
        several = [p for p in pools_of(made.spec) if (p.hardware.nodes_per_instance or 1) > 1]
        groups += [leader_worker_set(made, "", pool, "r1", pool.replicas) for pool in several]
    for one in groups:
        one["metadata"] |= {"namespace": namespace, "ownerReferences": []}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": groups})
    said = with_lws.kubectl("create", "--dry-run=server", "-f", "-", input=text)
    assert said.count("created") == len(groups) == 10
