"""The operator on a real cluster, as a user installs it: its own image, the real Helm, restricted Pod Security."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.images import build_image
from tests.cluster.kube import wait_for

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "kintsugi"
CRDS = ROOT / "crds"
RELEASE = NAMESPACE = "kintsugi-system"
"""The release is named so that everything it makes can be found by one word."""
SERVICE_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
CONTAINER = "operator"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"

START_SECONDS = 90.0
"""Until a new operator is Ready and leads, on a slow machine that still has to pull its image."""

GONE_SECONDS = 120.0
"""Until the namespaces of earlier tests are empty, on a slow machine."""


def operator_image() -> str:
    """The reference of the image of this working tree; built only where something has changed."""
    return build_image(ROOT / "operator" / "Dockerfile", ROOT, "kintsugi")


def make_namespace(cluster: Cluster, name: str) -> None:
    """A namespace in which only pods of the restricted level may run."""
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("label", "namespace", name, RESTRICTED)


@dataclass(frozen=True, slots=True)
class Release:
    """A Helm release of the operator on `cluster`. Reads go to the API server each time."""

    cluster: Cluster
    image: str
    name: str = RELEASE
    """Of the release, of its namespace, and of everything that it makes."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of the chart that differ from its own: nested, as in a values file."""

    @property
    def service_account(self) -> str:
        """Its user name, as the audit log has it."""
        return f"system:serviceaccount:{self.name}:{self.name}"

    def install(self, values: Mapping[str, str] | None = None) -> None:
        """`helm install`; returns when the operator is Ready. CRDs that are there already are taken over."""
        repository, _, tag = self.image.rpartition(":")
        said = {
            "fullnameOverride": self.name,
            "image.repository": repository,
            "image.tag": tag,
            **(values or {}),
        }
        self.cluster.helm(
            *("install", self.name, str(CHART), "--namespace", self.name, "--take-ownership"),
            *(f"--set-json={key}={json.dumps(value)}" for key, value in self.values.items()),
            *("--set-string", ",".join(f"{key}={value}" for key, value in said.items())),
            *("--wait", "--timeout", f"{START_SECONDS:.0f}s"),
            timeout_seconds=START_SECONDS + 30,
        )

    def uninstall(self) -> None:
        """`helm uninstall`; returns when the operator's pods are gone."""
        self.cluster.helm("uninstall", self.name, "--namespace", self.name, "--wait")
        wait_for("no operator runs", lambda: not self.pods(), START_SECONDS)

    def is_installed(self) -> bool:
        listed = json.loads(self.cluster.helm("list", "--namespace", self.name, "--output", "json"))
        return any(release["name"] == self.name for release in listed)

    def scale(self, replicas: int) -> None:
        """So many copies, and wait until they run."""
        self.cluster.kubectl("-n", self.name, "scale", f"deployment/{self.name}", f"--replicas={replicas}")
        if replicas:
            self.wait_until_ready()
        else:
            wait_for("no operator runs", lambda: not self.pods(), START_SECONDS)

    def replace(self) -> None:
        """A new pod for the operator, which has no restarts behind it that the kubelet would hold against it."""
        self.cluster.kubectl("-n", self.name, "delete", "pod", "--all", "--wait=true")
        self.wait_until_ready()

    def kill(self) -> None:
        """SIGKILL to the running operator; the kubelet starts it again in its own time."""
        self.cluster.kill_container(self.name, self.pod()["metadata"]["name"], CONTAINER)

    def wait_until_restarted(self, restarts: int) -> None:
        """Return when the operator's container has been started again more than `restarts` times, and is Ready."""
        wait_for(
            f"the operator runs again after restart {restarts}",
            lambda: self.restarts() > restarts and self.is_ready(),
            START_SECONDS,
            every_seconds=0.3,
        )

    def wait_until_ready(self) -> None:
        wait_for("the operator is Ready", self.is_ready, START_SECONDS, every_seconds=0.3)

    def wait_until_no_fleets(self) -> None:
        """Return when no fleet is left anywhere: those of closed namespaces are taken apart for a while. TimeoutError names them."""
        columns = "custom-columns=:.metadata.namespace,:.metadata.name,:.metadata.deletionTimestamp,:.metadata.finalizers"

        def left() -> list[str]:
            listed = self.cluster.kubectl("get", "dsv4", "-A", "--no-headers", "-o", columns)
            return [" ".join(line.split()) for line in listed.splitlines() if line.strip()]

        try:
            wait_for("no fleet is left", lambda: not left(), GONE_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; still there: {left()}") from error

    def is_ready(self) -> bool:
        found = self.pods()
        return len(found) == 1 and _is_ready(found[0])

    def restarts(self) -> int:
        """How often the operator's container was started again."""
        return sum(int(status["restartCount"]) for status in self.pod()["status"]["containerStatuses"])

    def pods(self) -> list[dict[str, Any]]:
        listed = self.cluster.reader.json(f"/api/v1/namespaces/{self.name}/pods")
        if listed is None:
            raise RuntimeError("the API server does not answer")
        return list(listed["items"])

    def pod(self) -> dict[str, Any]:
        """The operator's only pod."""
        (found,) = self.pods()
        return found

    def said(self, *, previous: bool = False) -> list[dict[str, Any]]:
        """The lines of the operator's log; `previous`: of the process before this one."""
        name = self.pod()["metadata"]["name"]
        text = self.cluster.kubectl("-n", self.name, "logs", name, *(("--previous",) if previous else ()))
        lines = (line for line in text.splitlines() if line.startswith("{"))
        return [json.loads(line) for line in lines]


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
