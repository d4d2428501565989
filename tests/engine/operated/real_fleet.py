"""A fleet of real vLLM engines on the local cluster: the virtualenv and its interpreter as read-only folders of the host."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from kintsugi_engine import contract
from tests.cluster.cluster import Cluster
from tests.engine.engine import SETTINGS
from tests.integration.fleet import NAME, Fleet
from tests.integration.sight import Json

SPEED_UP: Final = 16
"""Design times divided by it: ten minutes of evidence are 38 s, and readings 1.9 s apart still count."""

POOL: Final = "short"
MODEL: Final = "tiny"

HEALING: Final[Json] = {
    "mode": "Act",
    "rehearsal": {"speedUp": SPEED_UP},
    "ladder": ["Recreate"],
    # 15 s and 40 s: a real engine's first steps take seconds where three engines share two cores.
    "triggers": {"stall": {"forSeconds": 240, "removeAfterSeconds": 640}},
    "budget": {"maxPerPoolPer30Minutes": 50, "maxPerHour": 200},
    "drain": {"timeoutSeconds": 2400},
    "probationSeconds": 240,
}


def host_paths(python: Path, package: Path | None) -> dict[str, Path]:
    """What an engine needs of this machine, by the name of its volume; no `package` where the operator lays it on."""
    base = subprocess.run(
        [str(python), "-c", "import sys; print(sys.base_prefix)"], check=True, capture_output=True, text=True
    ).stdout.strip()
    found = {"system": Path("/usr"), "interpreter": Path(base), "engine": python.parent.parent}
    return found if package is None else found | {"package": package}


def manifest(image: str, python: Path, package: Path, replicas: int, connector: str, module: str) -> Json:
    """A deployment whose pods run that Python's vLLM. Its command is the operator's own, but for the program.

    With that connector of that module's out of `package`; with '' the operator lays the telemetry on (`Auto`).
    """
    transfer = {
        "kv_connector": connector,
        "kv_connector_module_path": module,
        "kv_role": contract.TELEMETRY_ROLE,
    }
    environment = SETTINGS | {"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
    if connector:
        environment |= {"PYTHONPATH": str(package)}
    paths = host_paths(python, package if connector else None)
    return {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"name": NAME},
        "spec": {
            "model": {
                "id": "tests/tiny-llama",
                "servedNames": [MODEL],
                "source": {"pvc": {"claimName": "models"}},
            },
            "engine": {
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "version": "0.32.0",
                "telemetry": "Disabled" if connector else "Auto",
                "shm": {"size": "64Mi"},
                "args": {
                    "tensorParallelSize": 1,
                    "maxModelLen": 2048,
                    "blockSize": 32,
                    "maxNumSeqs": 16,
                    "enforceEager": True,
                },
                "extraArgs": [
                    "--kv-cache-memory-bytes=16777216",
                    *([f"--kv-transfer-config={json.dumps(transfer)}"] if connector else ()),
                ],
                "resources": {"requests": {"cpu": "50m", "memory": "512Mi"}, "limits": {"memory": "6Gi"}},
                "startBudgetSeconds": 28800,
            },
            "hardware": {"gpusPerInstance": 1, "gpu": "H200"},
            "pools": [{"name": POOL, "replicas": replicas, "context": {"maxTokens": 2048}}],
            "healing": copy.deepcopy(HEALING),
            "monitoring": {"scrapeIntervalSeconds": 10},
            "podTemplate": {
                "spec": {
                    "securityContext": {"runAsUser": 0},
                    "volumes": [{"name": n, "hostPath": {"path": str(p)}} for n, p in paths.items()],
                    "containers": [
                        {
                            "name": "engine",
                            "command": [str(python), "-m", "vllm.entrypoints.openai.api_server"],
                            "env": [{"name": n, "value": v} for n, v in environment.items()],
                            "volumeMounts": [
                                {"name": n, "mountPath": str(p), "readOnly": True} for n, p in paths.items()
                            ],
                        }
                    ],
                }
            },
        },
    }


class RealFleet(Fleet):
    """`Fleet` with engines of this kind."""

    def __init__(self, cluster: Cluster, image: str, python: Path, package: Path, model: Path) -> None:
        super().__init__(cluster, image)
        self._python, self._package, self._model = python, package, model
        # Folders of the host are not for pods of the restricted level.
        self.kubectl(
            *("label", "namespace", self.namespace, "--overwrite"),
            "pod-security.kubernetes.io/enforce=privileged",
        )

    def serve(self, replicas: int, connector: str, module: str) -> None:
        """Apply a pool of so many engines, see `manifest`."""
        claim = f"models-{self.namespace}"
        size = {"storage": "1Gi"}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": claim},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "hostPath": {"path": str(self._model)},
                "claimRef": {"namespace": self.namespace, "name": "models"},
            },
        }
        wanted = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models"},
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "volumeName": claim,
                "resources": {"requests": size},
            },
        }
        self.manifest = self.manifest_of(replicas, connector, module)
        documents = [volume, wanted, self.manifest]
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))

    def manifest_of(self, replicas: int, connector: str, module: str) -> Json:
        """What is applied."""
        return manifest(self.image, self._python, self._package, replicas, connector, module)

    def close(self) -> None:
        self.kubectl("delete", "dsv4", "--all", "--wait=false")
        super().close()
        self.cluster.kubectl("delete", "pv", f"models-{self.namespace}", "--wait=false", "--ignore-not-found")

    def core(self, pod: Json) -> int:
        """The engine core's process id on this machine: the process of that name in the pod's cgroup."""
        uid = pod["metadata"]["uid"]
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and "EngineCor" in (entry / "comm").read_text():
                    groups = (entry / "cgroup").read_text()
                    if uid in groups or uid.replace("-", "_") in groups:
                        return int(entry.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
        raise AssertionError(f"{pod['metadata']['name']} has no engine core")

    def health(self, pod: Json) -> int:
        """What its `/health` answers now."""
        return self._get(pod, "/health")[0]

    def page(self, pod: Json) -> str:
        """Its `/metrics` now."""
        return self._get(pod, "/metrics")[1]

    def _get(self, pod: Json, path: str) -> tuple[int, str]:
        code = "import sys, urllib.request as u; r = u.urlopen(sys.argv[1], timeout=5); print(r.status, r.read().decode())"
        address = f"http://{pod['status']['podIP']}:{contract.ENGINE_PORT}{path}"
        status, _, body = self.cluster.run_inside(["python3", "-c", code, address]).stdout.partition(" ")
        return int(status), body

    def restarts(self, pod: Json) -> int:
        """How often the kubelet has started its engine again."""
        found = self.sight.now("pods")
        mine = next(one for one in found.values() if one["metadata"]["uid"] == pod["metadata"]["uid"])
        return sum(int(one["restartCount"]) for one in mine["status"].get("containerStatuses", ()))

    def judged(self, pod: Json, *verdicts: str) -> bool:
        """Whether status calls it one of these; an instance that it does not name is Healthy."""
        return self.instance(pod["metadata"]["name"]).get("verdict", "Healthy") in verdicts

    def findings_of(self, pod: Json) -> list[Any]:
        """What its detectors have said in any status that was seen."""
        uid = pod["metadata"]["uid"]
        found = []
        for seen in self.sight.seen("deepseekv4deployments"):
            for one in seen.object.get("status", {}).get("instances", ()):
                if one["uid"] == uid:
                    found += one.get("findings", ())
        return found
