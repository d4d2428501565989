"""Where the demo plays: on a cluster that it makes and takes down, or on one that the user names with KUBECONFIG."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.cluster.cluster import Cluster
from tests.cluster.kube import CommandFailed, KubeAccess
from tests.demo.traffic import Source


class Venue(Protocol):
    """A cluster, and the image that its nodes can pull."""

    @property
    def access(self) -> KubeAccess: ...

    @property
    def image(self) -> str: ...

    def fleet(self, document: dict[str, Any]) -> dict[str, Any] | None:
        """The example as it must read here; None where it can be applied as it stands."""
        ...

    def traffic(self, namespace: str, arguments: Sequence[str]) -> Source:
        """Clients inside the cluster's network: `kintsugi.testing.traffic` with these arguments."""
        ...


@dataclass(frozen=True, slots=True)
class Ours:
    """The demo's own cluster: its network can be entered from this machine."""

    cluster: Cluster
    image: str
    environment: Mapping[str, str]
    python: str

    @property
    def access(self) -> KubeAccess:
        return self.cluster.access

    def fleet(self, document: dict[str, Any]) -> dict[str, Any] | None:
        return None

    def traffic(self, namespace: str, arguments: Sequence[str]) -> Source:
        process = self.cluster.popen_inside(
            [self.python, "-m", "kintsugi.testing.traffic", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(self.environment),
            start_new_session=True,
        )
        return Source(process, process.terminate)


@dataclass(frozen=True, slots=True)
class Theirs:
    """A cluster of the user's: clients run as a pod, and engines ask for no GPU where there is none."""

    access: KubeAccess
    image: str

    def fleet(self, document: dict[str, Any]) -> dict[str, Any] | None:
        document["spec"]["engine"] |= {"image": self.image, "imagePullPolicy": "IfNotPresent"}
        allocatable = self.access.kubectl(
            "get", "nodes", "-o", r"jsonpath={.items[*].status.allocatable.nvidia\.com/gpu}"
        )
        if not any(int(number) for number in allocatable.split()):
            document["spec"]["hardware"] = {"gpusPerInstance": 0}
        return document

    def traffic(self, namespace: str, arguments: Sequence[str]) -> Source:
        name = "traffic"
        self.access.apply(_traffic_pod(name, namespace, self.image, arguments))
        self.access.kubectl(
            *("-n", namespace, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s"),
            timeout_seconds=130,
        )
        process = subprocess.Popen(
            [*kubectl_of(self.access), "logs", "--follow", "--namespace", namespace, name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

        def end() -> None:
            """SIGTERM by the kubelet: it sends no more, and its last lines still come."""
            try:
                self.access.kubectl("-n", namespace, "delete", "pod", name, "--wait=false")
            except CommandFailed:  # it has ended and is gone, which the reader sees by the end of the log
                return

        return Source(process, end)


def kubectl_of(access: KubeAccess) -> list[str]:
    """The kubectl command for this cluster."""
    program = str(access.programs / "kubectl") if access.programs else "kubectl"
    return [program, "--kubeconfig", str(access.kubeconfig), "--context", access.context]


def _traffic_pod(name: str, namespace: str, image: str, arguments: Sequence[str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 60,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": name,
                    "image": image,
                    "command": ["python", "-m", "kintsugi.testing.traffic", *arguments],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
