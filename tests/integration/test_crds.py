"""The CRDs in a real API server: installed by plain kubectl, strict about users, lossless about us."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kintsugi.api.crd import crd_documents, missing_fields
from kintsugi.api.rules import DEPLOYMENT_RULES, broken
from tests.cluster.cluster import Cluster
from tests.cluster.kube import CommandFailed
from tests.unit.api.generated import Maximal
from tests.unit.api.manifests import Invalid, deployment, example_documents, invalid_manifests

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
SCHEMAS = {
    document["spec"]["names"]["kind"]: document["spec"]["versions"][0]["schema"]["openAPIV3Schema"][
        "properties"
    ]
    for document in crd_documents()
}


@pytest.fixture(scope="module")
def crds(cluster: Cluster) -> None:
    """The CRDs, applied client-side as a user would."""
    cluster.kubectl("apply", "-f", str(ROOT / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(ROOT / "crds"))


@pytest.fixture
def kubectl(cluster: Cluster, namespace: str, crds: None) -> "Kubectl":
    return Kubectl(cluster, namespace)


class Kubectl:
    """kubectl in the test's namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace

    def __call__(self, *arguments: str, manifest: dict[str, Any] | None = None) -> str:
        text = None if manifest is None else json.dumps(manifest)
        return self._cluster.kubectl("-n", self._namespace, *arguments, input=text)

    def create(self, manifest: dict[str, Any]) -> None:
        self("create", "-f", "-", manifest=manifest)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("get", kind, name, "-o", "json"))
        return found


@pytest.mark.usefixtures("crds")
def test_applying_the_crds_again_changes_nothing(cluster: Cluster) -> None:
    said = cluster.kubectl("apply", "-f", str(ROOT / "crds"))
    assert said.count("unchanged") == 2, said


@pytest.mark.usefixtures("crds")
def test_the_api_server_keeps_every_field_of_the_schema_and_finds_no_fault(cluster: Cluster) -> None:
    for document in crd_documents():
        live = json.loads(cluster.kubectl("get", "crd", document["metadata"]["name"], "-o", "json"))
        assert missing_fields(live, document) == ()
        faults = [
            condition
            for condition in live["status"]["conditions"]
            if condition["type"] == "NonStructuralSchema" and condition["status"] == "True"
        ]
        assert faults == []


@pytest.mark.parametrize("invalid", invalid_manifests(), ids=lambda invalid: invalid.case)
def test_a_bad_manifest_is_refused_with_a_message_that_names_the_field(
    kubectl: Kubectl, invalid: Invalid
) -> None:
    with pytest.raises(CommandFailed) as refused:
        kubectl("apply", "-f", "-", manifest=invalid.manifest)
    assert invalid.field in str(refused.value)
    assert invalid.message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "document"),
    [pytest.param(name, raw, id=f"{name}: {raw['kind']}") for name, raw in example_documents()],
)
def test_an_example_is_accepted_and_kept_as_it_was_written(
    kubectl: Kubectl, name: str, document: dict[str, Any]
) -> None:
    said = kubectl("apply", "-f", "-", manifest=document)
    assert "Warning" not in said
    if document["kind"] == "DeepSeekV4Deployment":
        kept = kubectl.get("dsv4", document["metadata"]["name"])
        assert kept["spec"] == document["spec"]


def test_nulls_mean_absent(kubectl: Kubectl) -> None:
    spec: dict[str, Any] = {
        "model": {"id": "m"},
        "replicas": None,
        "healing": {"triggers": {"stall": {"forSeconds": None, "removeAfterSeconds": None}}},
    }
    kubectl.create(deployment(spec))
    assert kubectl.get("dsv4", "chat")["spec"] == {
        "model": {"id": "m"},
        "healing": {"triggers": {"stall": {}}},
    }


def test_a_misspelt_field_is_refused_by_name(kubectl: Kubectl) -> None:
    with pytest.raises(CommandFailed, match=r'unknown field "spec\.healing\.budgets"'):
        kubectl.create(deployment({"model": {"id": "m"}, "healing": {"budgets": {}}}))


def full_spec() -> dict[str, Any]:
    """A spec with every field set that the rules allow to be set together."""
    spec: dict[str, Any] = Maximal().of(SCHEMAS["DeepSeekV4Deployment"]["spec"])
    spec["scalePool"] = spec["pools"][0]["name"]
    del spec["model"]["source"]["hub"], spec["model"]["source"]["image"]
    healing = spec["healing"]
    healing["ladder"] = ["Compact", "RecreateElsewhere"]
    healing["storm"] |= {"cooldownSeconds": 61, "trialAfterSeconds": 62}
    for trigger in ("cacheHitRate", "preemptions", "gpuUtilization"):
        healing["triggers"][trigger]["mode"] = "Observe"
    healing["triggers"]["gpuUtilization"] |= {"minPercent": 11, "maxPercent": 12}
    healing["triggers"]["stall"] |= {"forSeconds": 91, "removeAfterSeconds": 92}
    engines = [spec["engine"], *(pool["engine"] for pool in spec["pools"])]
    for engine in engines:
        engine["args"]["speculative"]["method"] = "DSpark"
        del engine["env"][0]["value"], engine["env"][1]["valueFrom"]
    for pool in spec["pools"]:
        pool["context"] |= {"maxTokens": 8192, "defaultOutputTokens": 512}
    assert [rule.message for _, rule in broken(DEPLOYMENT_RULES, deployment(spec))] == []
    return spec


def test_every_field_of_the_spec_is_kept(kubectl: Kubectl) -> None:
    spec = full_spec()
    kubectl.create(deployment(spec))
    assert kubectl.get("dsv4", "chat")["spec"] == spec


def test_every_field_of_the_status_is_kept(kubectl: Kubectl) -> None:
    status = Maximal().of(SCHEMAS["DeepSeekV4Deployment"]["status"])
    kubectl.create(deployment({"model": {"id": "m"}}))
    written = kubectl.get("dsv4", "chat") | {"status": status}
    kubectl("replace", "--subresource=status", "-f", "-", manifest=written)
    assert kubectl.get("dsv4", "chat")["status"] == status


def remediation() -> dict[str, Any]:
    """A Remediation with every field set."""
    made = Maximal()
    return {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "Remediation",
        "metadata": {"name": "chat-0a1b2c3d-1"},
        "spec": made.of(SCHEMAS["Remediation"]["spec"]),
        "status": made.of(SCHEMAS["Remediation"]["status"]),
    }


def test_every_field_of_a_remediation_is_kept(kubectl: Kubectl) -> None:
    wanted = remediation()
    kubectl.create(wanted)
    kept = kubectl.get("mend", wanted["metadata"]["name"])
    assert kept["spec"] == wanted["spec"]
    assert "status" not in kept

    kubectl("replace", "--subresource=status", "-f", "-", manifest=kept | {"status": wanted["status"]})
    assert kubectl.get("mend", wanted["metadata"]["name"])["status"] == wanted["status"]


def test_what_was_decided_cannot_be_rewritten(kubectl: Kubectl) -> None:
    wanted = remediation()
    kubectl.create(wanted)
    change = json.dumps({"spec": {"trigger": "somethingElse"}})
    with pytest.raises(CommandFailed, match="spec can't be changed"):
        kubectl("patch", "mend", wanted["metadata"]["name"], "--type=merge", "-p", change)


def test_get_mend_answers_why_a_pod_was_replaced(kubectl: Kubectl) -> None:
    wanted = remediation()
    kubectl.create(wanted)
    message = "no engine step for 300 s with 12 requests running; three canaries unanswered"
    status = wanted["status"] | {"message": message, "phase": "Done", "outcome": "Cured"}
    kept = kubectl.get("mend", wanted["metadata"]["name"])
    kubectl("replace", "--subresource=status", "-f", "-", manifest=kept | {"status": status})
    table = kubectl("get", "mend")
    for shown in (wanted["spec"]["instance"]["name"], wanted["spec"]["trigger"], "Cured", message):
        assert shown in table


def test_get_dsv4_says_whether_it_is_well_and_why_not(kubectl: Kubectl) -> None:
    kubectl.create(deployment({"model": {"id": "m"}}))
    condition = {
        "type": "Available",
        "status": "False",
        "reason": "TooFewInstances",
        "lastTransitionTime": "2026-08-01T12:00:00Z",
    }
    status = {
        "ready": "1/3",
        "why": "pool main: 1 of 3 instances serve",
        "healing": "Act",
        "conditions": [condition],
        "remediations": {"inFlight": 1},
    }
    kept = kubectl.get("dsv4", "chat")
    kubectl("replace", "--subresource=status", "-f", "-", manifest=kept | {"status": status})
    header, row = kubectl("get", "dsv4").splitlines()
    assert header.split() == ["NAME", "READY", "AVAILABLE", "REASON", "HEALING", "MENDING", "WHY", "AGE"]
    for shown in ("chat", "1/3", "False", "TooFewInstances", "Act", "pool main: 1 of 3 instances serve"):
        assert shown in row
    assert "chat" in kubectl("get", "kintsugi")


def test_scale_writes_the_replicas_and_reads_the_status(kubectl: Kubectl) -> None:
    """Kubernetes answers with an error until `spec.replicas` was set once, as the examples and docs say."""
    kubectl.create(deployment({"model": {"id": "m"}}))
    kept = kubectl.get("dsv4", "chat")
    status = {"replicas": 1, "selector": "kintsugi.dev/deployment=chat"}
    kubectl("replace", "--subresource=status", "-f", "-", manifest=kept | {"status": status})
    with pytest.raises(CommandFailed, match=r"spec replicas field.*does not exist"):
        kubectl("get", "dsv4", "chat", "--subresource=scale", "-o", "json")

    kubectl("scale", "dsv4", "chat", "--replicas=3")
    scale = json.loads(kubectl("get", "dsv4", "chat", "--subresource=scale", "-o", "json"))
    assert scale["spec"]["replicas"] == 3
    assert scale["status"] == {"replicas": 1, "selector": "kintsugi.dev/deployment=chat"}
    assert kubectl.get("dsv4", "chat")["spec"]["replicas"] == 3


def test_scaling_nobody_in_particular_is_refused(kubectl: Kubectl) -> None:
    kubectl.create(deployment({"model": {"id": "m"}, "pools": [{"name": "a"}, {"name": "b"}]}))
    with pytest.raises(CommandFailed, match="scalePool must name the pool"):
        kubectl("patch", "dsv4", "chat", "--type=merge", "-p", '{"spec": {"replicas": 3}}')


def test_explain_shows_the_descriptions_of_the_models(kubectl: Kubectl) -> None:
    said = kubectl("explain", "dsv4.spec.healing.budget.minHealthyPercent")
    assert "Share of a pool that must serve without the victim" in said


def test_a_whole_fleet_fits_into_one_status(kubectl: Kubectl) -> None:
    """500 instances, 50 of them not healthy: at most 256 KiB (design §2)."""
    pools = [{"name": "main", "replicas": 500}]
    kubectl.create(deployment({"model": {"id": "m"}, "pools": pools}))
    sick = Maximal().of(SCHEMAS["DeepSeekV4Deployment"]["status"])["instances"][0]
    instances = [
        {
            "name": f"chat-main-0123456789-{number:05d}",
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "pool": "main",
            "revision": "0123456789",
            "node": f"node-{number}.example.internal",
            "verdict": "Healthy",
            "reason": "Serving",
            "since": "2026-08-01T12:00:00Z",
        }
        for number in range(500)
    ]
    for number in range(0, 500, 10):
        instances[number] = sick | {"name": instances[number]["name"]}
    status = {"instances": instances}
    assert len(json.dumps(status)) <= 256 * 1024
    kept = kubectl.get("dsv4", "chat")
    kubectl("replace", "--subresource=status", "-f", "-", manifest=kept | {"status": status})
    assert kubectl.get("dsv4", "chat")["status"] == status


def test_the_files_are_what_the_models_say() -> None:
    texts = [path.read_text() for path in sorted((ROOT / "crds").glob("*.yaml"))]
    assert [yaml.safe_load(text) for text in texts] == crd_documents()
