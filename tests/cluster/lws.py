"""LeaderWorkerSet, for instances of several pods: its real controller, installed by its own chart."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from tests.cluster import paths
from tests.cluster.binaries import LWS_CHART
from tests.cluster.cluster import Cluster
from tests.cluster.kube import CommandFailed, wait_for
from tests.cluster.names import REGISTRY
from tests.cluster.registry_store import RegistryStore
from tests.cluster.tiny_image import Entry, write_folder

NAMESPACE = "lws-system"


def install_lws(cluster: Cluster) -> None:
    """Install the controller and return when it, and its webhook, answer. Raises kube.CommandFailed if it can't."""
    assert cluster.programs is not None
    repository, _, tag = _image(cluster.programs / "lws-manager").rpartition(":")
    values = {
        "image.manager.repository": repository,
        "image.manager.tag": tag,
        "image.manager.pullPolicy": "IfNotPresent",
        "resources.requests.cpu": "50m",
        "resources.requests.memory": "64Mi",
    }
    cluster.helm(
        *(
            "install",
            "lws",
            str(cluster.programs / LWS_CHART),
            "--namespace",
            NAMESPACE,
            "--create-namespace",
        ),
        *(part for name, value in values.items() for part in ("--set", f"{name}={value}")),
        *("--wait", "--timeout", "2m"),
    )
    # Its pods are Ready before its webhook has a certificate.
    wait_for("LeaderWorkerSet's webhook answers", lambda: _accepts_a_group(cluster), 60, every_seconds=1)


def _accepts_a_group(cluster: Cluster) -> bool:
    container = {"name": "x", "image": "x"}
    group = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": [container]}}}},
    }
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(group))
    except CommandFailed as refusal:
        if "failed calling webhook" in str(refusal):
            return False
        raise
    return True


def _image(program: Path) -> str:
    """The reference of an image that holds the one program, put into the registry if it is not there."""
    content = program.read_bytes()
    tag = hashlib.sha256(content).hexdigest()[:20]
    registry = RegistryStore()
    if not registry.has("lws", tag):
        root = paths.registry_root()
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".push-", dir=root) as scratch:
            entries = [Entry("manager", content), Entry("tmp", mode=0o1777)]
            config: dict[str, object] = {"Entrypoint": ["/manager"], "User": "65532:65532"}
            registry.put("lws", tag, write_folder(Path(scratch) / "image", entries, config))
    return f"{REGISTRY}/lws:{tag}"
