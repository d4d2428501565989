"""The demo's stage: a cluster, the project's image, the operator by Helm, the fleet."""

import os
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import images
from tests.cluster.binaries import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import Chosen, attached, chosen
from tests.cluster.kube import KubeAccess
from tests.cluster.machine import Unsupported, require
from tests.cluster.names import CONTROL_PLANE_IP
from tests.demo.venue import Ours, Theirs, Venue

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
DEFINITIONS = ("deepseekv4deployments.kintsugi.dev", "remediations.kintsugi.dev")
PULLER = "image-puller"
TAG = "demo"
"""The tag that `examples/demo.yaml` names."""
MANIFEST = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"

Say = Callable[[str], None]


@contextmanager
def stage(say: Say, *, keep: bool = False) -> Iterator[Venue]:
    """A cluster with the operator installed and the fleet applied; all of it is gone afterwards, unless `keep`.

    Raises Unsupported where this machine can't run a cluster, Refused where KUBECONFIG names one that may not be used.
    """
    found = chosen(os.environ)
    with ExitStack() as stack:
        venue = _ours(stack, say, keep) if found is None else _theirs(stack, found, say, keep)
        say("helm install kintsugi")
        _install(venue)
        say(f"kubectl apply -f {FLEET.relative_to(ROOT)}")
        venue.access.kubectl("create", "namespace", NAMESPACE)
        venue.access.kubectl(
            *("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        )
        changed = venue.fleet(yaml.safe_load(FLEET.read_text(encoding="utf-8")))
        if changed is None:
            venue.access.kubectl("apply", "-n", NAMESPACE, "-f", str(FLEET))
        else:
            venue.access.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=yaml.safe_dump(changed))
        yield venue


def _ours(stack: ExitStack, say: Say, keep: bool) -> Venue:
    """A cluster of our own; the image is built while it starts, and fetched by every node while the operator does."""
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
    return Ours(cluster, reference, environment(), sys.executable)


def _theirs(stack: ExitStack, found: Chosen, say: Say, keep: bool) -> Venue:
    """The cluster that KUBECONFIG names, with an image that it can pull; what the demo put there is removed."""
    image = os.environ.get("KINTSUGI_IMAGE")
    if not image:
        raise Unsupported(
            f"KUBECONFIG leads to the context {found.context!r}: name an image of operator/Dockerfile that its nodes "
            "can pull in KINTSUGI_IMAGE, or unset KUBECONFIG"
        )
    access = attached(found)
    say(f"the cluster of context {found.context}, the image {image}")
    if not keep:
        stack.callback(_clear, access)
    return Theirs(access, image)


def _clear(access: KubeAccess) -> None:
    """Remove the fleet, the release and its definitions, which the release alone would leave."""
    access.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
    access.helm("uninstall", "kintsugi", "--namespace", OPERATOR_NAMESPACE, "--ignore-not-found")
    access.kubectl("delete", "namespace", OPERATOR_NAMESPACE, "--ignore-not-found", "--wait=false")
    access.kubectl("delete", "crd", "--ignore-not-found", "--wait=false", *DEFINITIONS)


def _install(venue: Venue) -> None:
    repository, _, tag = venue.image.rpartition(":")
    venue.access.helm(
        *("install", "kintsugi", str(CHART), "--namespace", OPERATOR_NAMESPACE, "--create-namespace"),
        *("--set-string", f"image.repository={repository},image.tag={tag}"),
        *("--wait", "--timeout", "120s"),
        timeout_seconds=150,
    )


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
