"""Each fault does what it says, no more, and can be taken back."""

import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.kube import wait_for
from tests.integration import probe

pytestmark = pytest.mark.cluster

NOTICE_SECONDS = 40
"""A lost node is NotReady 15 s after its last word, on a machine that has time for it."""


@pytest.fixture
def mended(local_cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster, with every node on, plugged in and Ready again when the test is over."""
    yield local_cluster
    for node in local_cluster.nodes:
        name = node.names.name
        local_cluster.join(name)
        local_cluster.power_on(name)
    if local_cluster.reader.text("/readyz") is None:
        local_cluster.start_api_server()
    local_cluster.mend_registry()
    wait_for("all nodes Ready again", lambda: len(local_cluster.ready_nodes()) == 3, 90)


def start(cluster: Cluster, namespace: str, name: str = "one", **options: Any) -> dict[str, Any]:
    cluster.apply(probe.pod(name, namespace, **options))
    wait_for(f"{name} Ready", lambda: probe.condition(probe.read_pod(cluster, namespace, name), "Ready"), 60)
    return probe.read_pod(cluster, namespace, name)


def start_when_gpus_are_back(cluster: Cluster, namespace: str, node: str) -> dict[str, Any]:
    """A pod on a node whose kubelet has just come back: until the device plugin has registered anew, the kubelet
    refuses pods with GPUs for good (UnexpectedAdmissionError, as in life), so another one is tried."""
    for attempt in range(20):
        name = f"again{attempt}"
        cluster.apply(probe.pod(name, namespace, node=node))

        def settled(name: str = name) -> dict[str, Any] | None:
            pod = probe.read_pod(cluster, namespace, name)
            refused = pod.get("status", {}).get("phase") == "Failed"
            return pod if refused or probe.condition(pod, "Ready") else None

        pod = wait_for(f"{name} Ready or refused", settled, 60)
        if pod["status"]["phase"] != "Failed":
            return pod
        assert pod["status"]["reason"] == "UnexpectedAdmissionError", pod["status"]
        time.sleep(1)
    raise TimeoutError("the node's GPUs did not come back")


def test_a_killed_container_is_restarted_in_its_pod(local_cluster: Cluster, namespace: str) -> None:
    before = start(local_cluster, namespace)
    local_cluster.kill_container(namespace, "one")

    def restarted() -> dict[str, Any] | None:
        now = probe.read_pod(local_cluster, namespace, "one")
        return now if probe.restarts(now) == 1 and probe.condition(now, "Ready") else None

    after = wait_for("the container runs again", restarted, 40)
    last = after["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert last["exitCode"] == 137
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_container_that_does_not_exist_is_refused(local_cluster: Cluster, namespace: str) -> None:
    with pytest.raises(LookupError, match="no pod"):
        local_cluster.kill_container(namespace, "nobody")
    start(local_cluster, namespace)
    with pytest.raises(LookupError, match="sidecar"):
        local_cluster.kill_container(namespace, "one", "sidecar")


def test_an_unhealthy_gpu_shows_in_its_pod_and_is_no_longer_offered(
    local_cluster: Cluster, namespace: str
) -> None:
    pod = start(local_cluster, namespace)
    node = pod["spec"]["nodeName"]
    (gpu,) = probe.ask(local_cluster, pod["status"]["podIP"])["gpus"]
    number = int(gpu.rpartition("-")[2])

    def health() -> str | None:
        status = probe.read_pod(local_cluster, namespace, "one")["status"]["containerStatuses"][0]
        listed = [r for entry in status.get("allocatedResourcesStatus", []) for r in entry["resources"]]
        return next((r["health"] for r in listed if r["resourceID"] == gpu), None)

    def offered() -> int:
        found = local_cluster.reader.json(f"/api/v1/nodes/{node}") or {}
        return int(found["status"]["allocatable"]["nvidia.com/gpu"])

    local_cluster.set_gpu_health(node, number, healthy=False)
    wait_for("the pod says that its GPU is unhealthy", lambda: health() == "Unhealthy", 30)
    wait_for("the node offers one GPU less", lambda: offered() == 1, 30)
    assert probe.restarts(probe.read_pod(local_cluster, namespace, "one")) == 0
    local_cluster.set_gpu_health(node, number, healthy=True)
    wait_for("the node offers both GPUs again", lambda: offered() == 2, 30)
    wait_for("the pod says that its GPU is healthy", lambda: health() == "Healthy", 30)


def test_a_killed_kubelet_comes_back_and_finds_its_pods_and_gpus(mended: Cluster, namespace: str) -> None:
    pod = start(mended, namespace, node="node3")
    mended.node("node3").signal("kubelet", signal.SIGKILL)
    pids = mended.node("node3").folder / "pids" / "kubelet"
    before = pids.read_text()
    wait_for("the kubelet was started again", lambda: pids.read_text() != before, 20)
    again = start_when_gpus_are_back(mended, namespace, "node3")
    given = [probe.ask(mended, p["status"]["podIP"])["gpus"] for p in (pod, again)]
    assert sorted(gpu for gpus in given for gpu in gpus) == ["GPU-node3-0", "GPU-node3-1"]
    assert probe.restarts(probe.read_pod(mended, namespace, "one")) == 0


def test_no_gpu_beyond_the_nodes_own_can_be_broken(local_cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="GPUs 0 to 1"):
        local_cluster.set_gpu_health(1, 2, healthy=False)
    with pytest.raises(ValueError, match="nodes 1 to 3"):
        local_cluster.set_gpu_health(4, 0, healthy=False)


def test_nothing_is_pulled_from_a_broken_registry_until_it_is_mended(mended: Cluster, namespace: str) -> None:
    mended.break_registry()
    mended.apply(probe.pod("one", namespace, pull="Always"))

    def waiting() -> str | None:
        statuses = probe.read_pod(mended, namespace, "one").get("status", {}).get("containerStatuses", [])
        return next((s["state"].get("waiting", {}).get("reason") for s in statuses), None)

    wait_for("the pull fails", lambda: waiting() in ("ErrImagePull", "ImagePullBackOff"), 40)
    mended.mend_registry()
    wait_for(
        "the pod is Ready", lambda: probe.condition(probe.read_pod(mended, namespace, "one"), "Ready"), 90
    )


def test_pods_run_on_while_the_api_server_is_down(mended: Cluster, namespace: str) -> None:
    pod = start(mended, namespace)
    mended.stop_api_server()
    assert mended.reader.text("/readyz") is None
    assert probe.ask(mended, pod["status"]["podIP"])["host"] == "one"
    mended.start_api_server()
    now = probe.read_pod(mended, namespace, "one")
    assert (now["metadata"]["uid"], probe.restarts(now)) == (pod["metadata"]["uid"], 0)


@pytest.mark.slow
def test_a_cut_node_runs_on_unseen_and_its_pods_are_replaced(mended: Cluster, namespace: str) -> None:
    mended.apply(*probe.deployment("web", namespace, 1))
    (pod,) = probe.wait_ready(mended, namespace, 1)
    node, container = pod["spec"]["nodeName"], pod["status"]["containerStatuses"][0]["containerID"]
    mended.cut(node)
    with pytest.raises(subprocess.CalledProcessError):
        probe.ask(mended, pod["status"]["podIP"])
    wait_for(f"{node} is NotReady", lambda: not probe.node_ready(mended, node), NOTICE_SECONDS)
    assert mended.node(node).container_pid(container.removeprefix("containerd://")) > 0

    def replaced() -> bool:
        return any(
            p["metadata"]["uid"] != pod["metadata"]["uid"] and probe.condition(p, "Ready")
            for p in probe.pods(mended, namespace)
        )

    wait_for("another pod is Ready", replaced, 60)
    mended.join(node)
    wait_for(f"{node} is Ready", lambda: probe.node_ready(mended, node), 60)
    (left,) = probe.wait_ready(mended, namespace, 1)
    assert left["spec"]["nodeName"] != node


@pytest.mark.slow
def test_a_frozen_kubelet_says_nothing_while_its_pods_serve(mended: Cluster, namespace: str) -> None:
    pod = start(mended, namespace)
    node = pod["spec"]["nodeName"]
    mended.freeze_kubelet(node)
    try:
        wait_for(f"{node} is NotReady", lambda: not probe.node_ready(mended, node), NOTICE_SECONDS)
        assert probe.ask(mended, pod["status"]["podIP"])["host"] == "one"
    finally:
        mended.thaw_kubelet(node)
    wait_for(f"{node} is Ready", lambda: probe.node_ready(mended, node), 60)


@pytest.mark.slow
def test_a_node_without_power_takes_its_pods_along_and_comes_back_with_its_disk(
    mended: Cluster, namespace: str
) -> None:
    pod = start(mended, namespace, node="node2")
    began = time.monotonic()
    mended.power_off("node2")
    assert time.monotonic() - began < 10
    assert not mended.node("node2").is_on
    with pytest.raises(subprocess.CalledProcessError):
        probe.ask(mended, pod["status"]["podIP"])
    with pytest.raises(RuntimeError, match="switched off"):
        mended.node("node2").run(["true"])
    wait_for("node2 is NotReady", lambda: not probe.node_ready(mended, "node2"), NOTICE_SECONDS)
    assert probe.node_ready(mended, "node1")
    mended.break_registry()
    mended.power_on("node2")
    wait_for("node2 is Ready", lambda: "node2" in mended.ready_nodes(), 60)
    again = start(mended, namespace, "two", node="node2")
    assert probe.ask(mended, again["status"]["podIP"])["host"] == "two"
