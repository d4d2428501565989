"""Starts that fail on a real Kubernetes: each fleet says why and what to do, and nobody makes its pod again (POD, S22, S23).

All fleets start side by side in one namespace, and each test asks after its own.
"""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml
from kubernetes import config

from kintsugi.core import names
from tests.integration.fleet import PATIENCE, is_ready, manifest
from tests.integration.installed import Release, make_namespace
from tests.integration.sight import Json, Sight

pytestmark = pytest.mark.cluster

WAIT: Final = 2 * PATIENCE
"""All of them start at once, on two cores."""
MODEL: Final = "deepseek-ai/DeepSeek-V4-Flash-0731"
LORA: Final = [{"name": "tax", "path": "/adapters/tax"}]
KV: Final = (
    "ValueError: To serve at least one request with the model's max seq len (800000), 96.10 GiB KV cache is needed, which is "
    "larger than the available KV cache memory (24.32 GiB). Based on the available memory, the estimated maximum model "
    "length is 202496. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`."
)
THROTTLED: Final = "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://hub/x/LICENSE"
NOISY: Final = f"""
import sys
print("(EngineCore_DP0 pid=7) ERROR 10-08 20:33:48 [core.py:708] " + {KV!r}, file=sys.stderr)
for number in range(120):
    print(f'(APIServer pid=1)   File "/usr/lib/python3.12/site-packages/vllm/v1/x.py", line {{number}}, in step', file=sys.stderr)
sys.exit("(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}")
"""
SHARED: Final = """
from multiprocessing.shared_memory import SharedMemory
held = SharedMemory(create=True, size=32 << 20)
held.buf[:] = bytes(32 << 20)
"""
PORT: Final = """
import os
port = os.environ.get("VLLM_PORT", "")
if "://" in port:
    raise ValueError(f"VLLM_PORT '{port}' appears to be a URI. This may be caused by a Kubernetes service discovery issue")
os.execvp("kintsugi", ["kintsugi", "simulate-engine"])
"""


def python(code: str) -> Json:
    """An engine that does this instead, whatever its arguments."""
    return {"command": ["python3", "-c", code]}


@dataclass(frozen=True, slots=True)
class Case:
    """One fleet of one pod, and what it must say."""

    kind: str
    says: str
    engine: Json | None = None
    container: Json | None = None
    pod: Json | None = None
    spec: Json | None = None


CASES: Final = {
    "image": Case(
        "ImagePull", "spec.engine.image", engine={"image": "10.244.255.254:5000/nobody/pushed:this"}
    ),
    "secret": Case(
        "SecretNotFound",
        "Secret nobody not found",
        engine={"apiKeySecretRef": {"name": "nobody", "key": "token"}},
    ),
    "key": Case(
        "KeyNotFound",
        "Secret keys has no key lost",
        engine={"apiKeySecretRef": {"name": "keys", "key": "lost"}},
    ),
    "claim": Case(
        "PVCNotFound",
        "PersistentVolumeClaim models not found",
        spec={"model": {"id": MODEL, "servedNames": ["v4"], "source": {"pvc": {"claimName": "models"}}}},
    ),
    "node": Case("Unschedulable", "nodes are available", pod={"nodeSelector": {"no": "such-node"}}),
    "shm": Case("SharedMemoryTooSmall", "spec.engine.shm.size", container=python(SHARED)),
    "oom": Case(
        "OOMKilled",
        "spec.engine.resources.limits.memory",
        container={**python("b'x' * (1 << 30)"), "resources": {"limits": {"memory": "96Mi"}}},
    ),
    "cache": Case(
        "CacheNotWritable", "/opt/kintsugi/cache", container=python("open('/opt/kintsugi/cache', 'w')")
    ),
    "probe": Case(
        "StartProbeTooShort",
        "spec.engine.startBudgetSeconds",
        engine={"startBudgetSeconds": 30, "extraArgs": ["--fault=slowStart=600"]},
    ),
    "flag": Case(
        "ConfigInvalid",
        "--log-every-dream",
        engine={"extraArgs": ["--only-known-flags", "--log-every-dream"]},
    ),
    "length": Case("ConfigInvalid", "202496", container=python(NOISY)),
    "hub": Case(
        "ModelFetchThrottled",
        "spec.model.source.pvc",
        container=python(f"import sys; sys.exit({THROTTLED!r})"),
    ),
    "exit": Case("EngineExited", "exit 0", container=python("print('bye')")),
    "links": Case("ServiceLinkPort", "VLLM_PORT", container=python(PORT), pod={"enableServiceLinks": True}),
    "adapter": Case(
        "AdapterFailed",
        "/adapters/tax",
        spec={"model": {"id": MODEL, "servedNames": ["v4"], "loraAdapters": LORA}},
    ),
}
SERVE: Final = {
    "vllm": Case("", ""),
    "forgets": Case(
        "AdapterFailed",
        "does not list the adapter tax",
        engine={
            "apiKeySecretRef": {"name": "keys", "key": "token"},
            "extraArgs": ["--fault=forgottenAdapters"],
        },
        container={"volumeMounts": [{"name": "tax", "mountPath": "/adapters/tax"}]},
        pod={"volumes": [{"name": "tax", "configMap": {"name": "tax"}}]},
        spec={"model": {"id": MODEL, "servedNames": ["v4"], "loraAdapters": LORA}},
    ),
    "lists": Case(
        "",
        "",
        engine={"apiKeySecretRef": {"name": "keys", "key": "token"}},
        container={"volumeMounts": [{"name": "tax", "mountPath": "/adapters/tax"}]},
        pod={"volumes": [{"name": "tax", "configMap": {"name": "tax"}}]},
        spec={"model": {"id": MODEL, "servedNames": ["v4"], "loraAdapters": LORA}},
    ),
}
"""Fleets whose engines serve all the same."""


def document(image: str, name: str, case: Case) -> Json:
    made = manifest(image, {"short": 1}, **(case.spec or {}))
    made["metadata"]["name"] = name
    made["spec"]["validation"] = {"allow": ["UnknownFlag"]}  # the simulated engine has flags of its own
    engine = made["spec"]["engine"]
    engine |= case.engine or {}
    template = made["spec"]["podTemplate"]["spec"]
    template |= case.pod or {}
    template["containers"][0] |= case.container or {}
    return made


class Starts:
    """The fleets in their namespace, watched."""

    def __init__(self, release: Release) -> None:
        self.release = release
        self.cluster = release.cluster
        self.namespace = f"starts-{secrets.token_hex(4)}"
        make_namespace(self.cluster, self.namespace)
        api = config.new_client_from_config(str(self.cluster.kubeconfig), context=self.cluster.context)
        self.sight = Sight(api, self.namespace)
        self.began = time.monotonic()

    def apply(self, *documents: Json) -> None:
        self.cluster.kubectl("-n", self.namespace, "apply", "-f", "-", input=yaml.safe_dump_all(documents))

    def close(self) -> None:
        self.sight.close()
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false", "--ignore-not-found")

    def status(self, fleet: str) -> Json:
        found: Json = self.sight.now("deepseekv4deployments").get(fleet, {}).get("status", {})
        return found

    def condition(self, fleet: str, kind: str) -> Json:
        return next((c for c in self.status(fleet).get("conditions", ()) if c["type"] == kind), {})

    def instance(self, fleet: str) -> Json:
        return next(iter(self.status(fleet).get("instances", ())), {})

    def pods(self, fleet: str) -> list[Json]:
        return [
            p
            for p in self.sight.now("pods").values()
            if p["metadata"]["labels"].get(names.DEPLOYMENT_LABEL) == fleet
        ]

    def pod(self, fleet: str) -> Json:
        (found,) = self.pods(fleet)
        return found

    def uids(self, fleet: str) -> set[str]:
        """Of every pod that this fleet ever had."""
        return {
            seen.uid
            for seen in self.sight.seen("pods")
            if seen.object["metadata"]["labels"].get(names.DEPLOYMENT_LABEL) == fleet
        }

    def until(self, fleet: str, kind: str, field: str, *values: str) -> None:
        """Return once that field of the fleet's condition has one of these values."""

        def holds() -> bool:
            return self.condition(fleet, kind).get(field) in values

        self.sight.wait(f"{fleet}: {kind}.{field} is {' or '.join(values)}", holds, WAIT)

    def until_ready(self, fleet: str) -> None:
        """Return once the fleet's engine serves."""

        def holds() -> bool:
            return any(map(is_ready, self.pods(fleet)))

        self.sight.wait(f"{fleet} serves", holds, WAIT)

    def wait(self, fleet: str, *kinds: str) -> Json:
        """The instance of the fleet, once its reason is one of these kinds."""

        def said() -> Json | None:
            found = self.instance(fleet)
            return found if found.get("reason") in kinds else None

        found: Json = self.sight.wait(f"{fleet} is {' or '.join(kinds)}: {self.instance(fleet)}", said, WAIT)
        print(
            f"{fleet}: {found['reason']} after {time.monotonic() - self.began:.0f} s: {found['findings'][0]['message']}"
        )
        return found


@pytest.fixture(scope="module")
def starts(installed: Release) -> Iterator[Starts]:
    found = Starts(installed)
    try:
        found.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "keys"},
                "stringData": {"token": "s3cret-token"},
            },
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "tax"},
                "data": {"adapter_config.json": "{}"},
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "vllm"},
                "spec": {"ports": [{"port": 8000}]},
            },
        )
        found.apply(*(document(installed.image, name, case) for name, case in {**CASES, **SERVE}.items()))
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("fleet", CASES)
def test_a_start_that_fails_says_why_and_what_to_do(starts: Starts, fleet: str) -> None:
    case = CASES[fleet]
    found = starts.wait(fleet, case.kind)
    message = found["findings"][0]["message"]
    assert case.says in message, message
    assert found["verdict"] == "Starting"


def test_what_the_spec_is_to_blame_for_is_not_accepted(starts: Starts) -> None:
    """S01, S06, S48."""
    for fleet in ("length", "flag", "links"):
        kind = CASES[fleet].kind
        starts.wait(fleet, kind)
        starts.until(fleet, "SpecAccepted", "status", "False")
        assert starts.condition(fleet, "SpecAccepted")["reason"] == kind
        assert CASES[fleet].says in starts.condition(fleet, "SpecAccepted")["message"]
        assert starts.condition(fleet, "Progressing")["status"] == "False"


def test_every_failing_fleet_is_degraded_for_its_cause_and_says_so_first(starts: Starts) -> None:
    for fleet, case in CASES.items():
        starts.until(fleet, "Degraded", "reason", case.kind)
        assert case.says in starts.status(fleet)["why"], fleet


def test_an_exit_with_2_keeps_its_message(starts: Starts) -> None:
    starts.wait("flag", "ConfigInvalid")
    statuses = [p["status"]["containerStatuses"][0] for p in starts.pods("flag")]
    ended = statuses[0]["state"].get("terminated") or statuses[0]["lastState"]["terminated"]
    assert ended["exitCode"] == 2
    assert "unrecognized arguments: --log-every-dream" in ended["message"]


def test_a_claim_or_a_secret_that_is_not_there_is_waited_for_without_a_crash(starts: Starts) -> None:
    """S50."""
    for fleet in ("claim", "secret", "key", "image"):
        starts.wait(fleet, CASES[fleet].kind)
        pod = starts.pod(fleet)
        assert pod["status"]["phase"] == "Pending"
        assert [c["restartCount"] for c in pod["status"].get("containerStatuses", ())] in ([0], [])


def test_a_service_named_vllm_reaches_no_engine_of_a_fleet_of_that_name(starts: Starts) -> None:
    """S48."""
    starts.until_ready("vllm")
    pod = starts.pod("vllm")
    assert pod["spec"]["enableServiceLinks"] is False
    seen = starts.cluster.kubectl("-n", starts.namespace, "exec", pod["metadata"]["name"], "--", "env")
    assert [line for line in seen.splitlines() if "tcp://" in line and "KUBERNETES" not in line] == []


def test_adapters_are_asked_for_with_the_key_and_one_that_is_missing_is_named(starts: Starts) -> None:
    """S53: the base model serves on."""
    for fleet in ("forgets", "lists"):
        starts.until_ready(fleet)
    starts.until("forgets", "Degraded", "reason", "AdapterFailed")
    assert SERVE["forgets"].says in starts.status("forgets")["why"]
    assert starts.condition("forgets", "Available")["status"] == "True"
    starts.until("lists", "Degraded", "status", "False")


def test_nobody_made_a_second_pod_for_any_of_them(starts: Starts) -> None:
    """S22, S51, S52."""
    for fleet, case in CASES.items():
        starts.wait(fleet, case.kind)
    made = {fleet: len(starts.uids(fleet)) for fleet in CASES}
    assert made == dict.fromkeys(CASES, 1)
    assert starts.sight.now("remediations") == {}


def test_a_corrected_spec_starts(starts: Starts) -> None:
    """S01: until the spec changes."""
    starts.wait("flag", "ConfigInvalid")
    case: dict[str, Any] = {"engine": {"extraArgs": ["--only-known-flags"]}}
    starts.apply(document(starts.release.image, "flag", Case("", "", **case)))
    starts.until_ready("flag")
    starts.until("flag", "SpecAccepted", "status", "True")
    starts.sight.wait("nothing to say", lambda: starts.status("flag").get("why") == "", WAIT)
