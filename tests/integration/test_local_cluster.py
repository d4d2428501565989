"""The local cluster is a Kubernetes like any other: scheduling, images, GPUs, Services, names, logs, records."""

import json
import urllib.request
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.kube import wait_for
from tests.integration import probe

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster_and_pods(local_cluster: Cluster) -> Iterator[tuple[Cluster, str]]:
    """Two servers with a GPU each, behind a Service."""
    namespace = "probe-servers"
    local_cluster.kubectl("create", "namespace", namespace)
    local_cluster.apply(*probe.deployment("web", namespace, 2))
    probe.wait_ready(local_cluster, namespace, 2)
    yield local_cluster, namespace
    local_cluster.kubectl("delete", "namespace", namespace, "--timeout=60s")


def test_each_pod_has_a_gpu_of_its_own_and_knows_which(cluster_and_pods: tuple[Cluster, str]) -> None:
    cluster, namespace = cluster_and_pods
    answers = [probe.ask(cluster, p["status"]["podIP"]) for p in probe.pods(cluster, namespace)]
    nodes = [p["spec"]["nodeName"] for p in probe.pods(cluster, namespace)]
    given = [gpu for answer in answers for gpu in answer["gpus"]]
    assert len(set(given)) == 2
    assert all(gpu.startswith(f"GPU-{node}-") for gpu, node in zip(given, nodes, strict=True))


def test_the_image_came_from_the_registry(cluster_and_pods: tuple[Cluster, str]) -> None:
    cluster, namespace = cluster_and_pods
    (image,) = {p["status"]["containerStatuses"][0]["image"] for p in probe.pods(cluster, namespace)}
    assert image.startswith(f"{cluster.registry}/probe:")


def test_a_service_is_reached_from_inside_and_through_a_local_port(
    cluster_and_pods: tuple[Cluster, str],
) -> None:
    cluster, namespace = cluster_and_pods
    address = cluster.get("service", "web", namespace)["spec"]["clusterIP"]
    names = {p["metadata"]["name"] for p in probe.pods(cluster, namespace)}
    assert probe.answers(cluster, address, 80)["host"] in names
    port = cluster.expose(address, 80)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/", timeout=5) as answer:
        assert json.loads(answer.read())["host"] in names


def test_a_pod_finds_a_service_by_name_and_no_other_name(cluster_and_pods: tuple[Cluster, str]) -> None:
    cluster, namespace = cluster_and_pods
    name = probe.pods(cluster, namespace)[0]["metadata"]["name"]
    code = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"

    def resolve(host: str) -> str:
        return cluster.kubectl("-n", namespace, "exec", name, "--", "python3", "-c", code, host).strip()

    assert resolve("web") == cluster.get("service", "web", namespace)["spec"]["clusterIP"]
    with pytest.raises(RuntimeError, match="not known"):
        resolve("no-such-service")


def test_pods_reach_the_api_server_with_their_service_account(cluster_and_pods: tuple[Cluster, str]) -> None:
    cluster, namespace = cluster_and_pods
    name = probe.pods(cluster, namespace)[0]["metadata"]["name"]
    code = """
import os, ssl, urllib.request
d = "/var/run/secrets/kubernetes.io/serviceaccount/"
r = urllib.request.Request(f"https://{os.environ['KUBERNETES_SERVICE_HOST']}/version")
r.add_header("Authorization", "Bearer " + open(d + "token").read())
print(urllib.request.urlopen(r, context=ssl.create_default_context(cafile=d + "ca.crt")).status)
"""
    assert cluster.kubectl("-n", namespace, "exec", name, "--", "python3", "-c", code).strip() == "200"


def test_a_pod_that_wants_more_gpus_than_a_node_has_waits_and_says_why(
    local_cluster: Cluster, namespace: str
) -> None:
    local_cluster.apply(probe.pod("greedy", namespace, gpus=3))

    def reason() -> str | None:
        conditions = (
            probe.read_pod(local_cluster, namespace, "greedy").get("status", {}).get("conditions", [])
        )
        return next((c["message"] for c in conditions if c.get("reason") == "Unschedulable"), None)

    assert "Insufficient nvidia.com/gpu" in wait_for("the scheduler's word", reason, 20)


def test_every_write_is_recorded_with_who_made_it_and_no_read_is(
    local_cluster: Cluster, namespace: str
) -> None:
    local_cluster.kubectl("-n", namespace, "create", "configmap", "mark")
    local_cluster.kubectl("-n", namespace, "get", "configmap", "mark")
    ours = [w for w in local_cluster.writes("kintsugi-admin") if (w.namespace, w.name) == (namespace, "mark")]
    assert [(w.verb, w.resource, w.code) for w in ours] == [("create", "configmaps", 201)]


def test_helm_talks_to_the_cluster(local_cluster: Cluster, namespace: str) -> None:
    assert json.loads(local_cluster.helm("list", "-n", namespace, "-o", "json")) == []


def test_a_plain_shell_reaches_the_cluster_by_its_kubeconfig_alone(local_cluster: Cluster) -> None:
    nodes = local_cluster.kubectl("--kubeconfig", str(local_cluster.kubeconfig), "get", "nodes", "-o", "name")
    assert nodes.split() == [f"node/node{index}" for index in (1, 2, 3)]


def test_the_kubelets_left_the_machines_kernel_settings_alone(local_cluster: Cluster) -> None:
    inside = local_cluster.node(1).run(["cat", "/proc/sys/vm/overcommit_memory"])
    shown = local_cluster.node(1).run(["findmnt", "-n", "-o", "TARGET", "/proc/sys/vm/overcommit_memory"])
    assert inside.strip() == "1"
    assert shown.strip() == "/proc/sys/vm/overcommit_memory"
