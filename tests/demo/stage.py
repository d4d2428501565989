"""The demo's stage: a cluster of its own, the project's image in its registry, the operator by Helm, the fleet."""

import os
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.cluster import images
from tests.cluster.binaries import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.machine import require
from tests.cluster.names import CONTROL_PLANE_IP

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "kintsugi"
FLEET = ROOT / "examples" / "demo.yaml"

CLUSTER = "demo"
NODES = 3
GPUS = 3
"""Of each node: five engines leave four free, so that every replacement can start before its victim goes."""
OPERATOR_NAMESPACE = "kintsugi-system"
NAMESPACE = "demo"
DEPLOYMENT = "demo"
IMAGE = "kintsugi"
PULLER = "image-puller"
TAG = "demo"
"""The tag that `examples/demo.yaml` names."""
MANIFEST = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"

Say = Callable[[str], None]


@contextmanager
def stage(say: Say, *, keep: bool = False) -> Iterator[Cluster]:
    """A cluster with the operator installed and the fleet applied; all of it is gone afterwards, unless `keep`."""
    with ExitStack() as stack:
        require(say)
        binaries(say)
        beside = stack.enter_context(ThreadPoolExecutor(1))
        image = beside.submit(images.build_image, ROOT / "operator" / "Dockerfile", ROOT, IMAGE, say=say)
        cluster = Cluster.start(CLUSTER, nodes=NODES, gpus_per_node=GPUS, keep=keep, say=say)
        if not keep:
            stack.enter_context(cluster)
        say(f"{NODES} nodes are ready")
        reference = image.result()
        _tag(cluster, reference.rpartition(":")[2])
        cluster.access.apply(_puller(reference))
        say("helm install kintsugi")
        _install(cluster, reference)
        say(f"kubectl apply -f {FLEET.relative_to(ROOT)}")
        cluster.kubectl("create", "namespace", NAMESPACE)
        cluster.kubectl(*("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted"))
        cluster.kubectl("apply", "-n", NAMESPACE, "-f", str(FLEET))
        cluster.kubectl("delete", "daemonset", PULLER, "-n", "kube-system", "--wait=false")
        yield cluster


def _puller(reference: str) -> dict[str, Any]:
    """Has every node fetch the image while the operator starts, so that engines start at once wherever they land."""
    labels = {"app": PULLER}
    container = {
        "name": PULLER,
        "image": reference,
        "command": ["python", "-c", "import time; time.sleep(3600)"],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": PULLER, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": False,
                    "containers": [container],
                },
            },
        },
    }


def _install(cluster: Cluster, reference: str) -> None:
    repository, _, tag = reference.rpartition(":")
    cluster.helm(
        *("install", "kintsugi", str(CHART), "--namespace", OPERATOR_NAMESPACE, "--create-namespace"),
        *("--set-string", f"image.repository={repository},image.tag={tag}"),
        *("--wait", "--timeout", "120s"),
        timeout_seconds=150,
    )


def _tag(cluster: Cluster, key: str) -> None:
    """Give the image that was pushed under `key` the tag that the example names."""
    port = cluster.expose(CONTROL_PLANE_IP, 5000)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    url = f"http://127.0.0.1:{port}/v2/{IMAGE}/manifests"
    with opener.open(
        urllib.request.Request(f"{url}/{key}", headers={"Accept": MANIFEST}), timeout=10
    ) as answer:
        manifest, kind = answer.read(), answer.headers["Content-Type"]
    put = urllib.request.Request(f"{url}/{TAG}", data=manifest, method="PUT", headers={"Content-Type": kind})
    with opener.open(put, timeout=10):
        pass


def environment() -> dict[str, str]:
    """For programs run inside the cluster's network: no proxy stands between them and a pod."""
    return {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
