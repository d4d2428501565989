from typing import Any

import pytest
import yaml

from tests.unit.chart.helm import helm, only, template
from tests.unit.chart.values import CHART


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = only(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def test_the_chart_passes_helms_own_linter() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART)).stdout


def test_the_operator_meets_the_restricted_pod_security_level() -> None:
    pod = pod_of(template())
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(set(volume) <= {"name", "emptyDir"} for volume in pod["volumes"])


def test_one_operator_is_replaced_before_the_next_starts() -> None:
    deployment = only(template(), "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_the_operator_is_told_where_it_runs_and_what_it_watches() -> None:
    pod = pod_of(template("--set", "watchNamespaces={llm,lab}", "--set", "logLevel=debug"))
    env = {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in pod["containers"][0]["env"]}
    assert env == {
        "KINTSUGI_NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "KINTSUGI_POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "KINTSUGI_WATCH_NAMESPACES": "llm,lab",
        "KINTSUGI_IMAGE": "kintsugi/operator:0.1.0",
        "KINTSUGI_METRICS_PORT": "8080",
        "KINTSUGI_WEBHOOK_NAME": "rel-kintsugi-webhook",
        "KINTSUGI_WEBHOOK_PORT": "9443",
        "KINTSUGI_LOG_LEVEL": "DEBUG",
        "KINTSUGI_LEADER_ELECTION": "true",
        "KINTSUGI_LEASE_NAME": "rel-kintsugi",
    }


def test_liveness_asks_the_port_that_the_operator_serves() -> None:
    (container,) = pod_of(template("--set", "metrics.port=9100"))["containers"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert {"name": "metrics", "containerPort": 9100} in container["ports"]


def test_a_digest_wins_over_a_tag() -> None:
    digest = "sha256:" + "a" * 64
    (container,) = pod_of(template("--set-string", "image.tag=7", "--set", f"image.digest={digest}"))[
        "containers"
    ]
    assert container["image"] == f"kintsugi/operator@{digest}"


def test_definitions_are_kept_on_uninstall_unless_asked_otherwise() -> None:
    def policies(*arguments: str) -> list[str | None]:
        return [
            (o["metadata"].get("annotations") or {}).get("helm.sh/resource-policy")
            for o in template(*arguments)
            if o["kind"] == "CustomResourceDefinition"
        ]

    assert policies() == ["keep", "keep"]
    assert policies("--set", "crds.keep=false") == [None, None]
    assert policies("--set", "crds.enabled=false") == []


def test_only_definitions_outlive_the_release_and_nothing_of_a_fleet_belongs_to_it() -> None:
    kinds = {o["kind"] for o in template()}
    assert kinds == {
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "Deployment",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "ValidatingWebhookConfiguration",
    }


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("replcas=2", "replcas"),
        ("metrics.port=80", "/metrics/port"),
        ("logLevel=loud", "/logLevel"),
        ("image.digest=latest", "/image/digest"),
        ("webhook.failurePolicy=ignore", "/webhook/failurePolicy"),
        ("webhook.timeoutSeconds=31", "/webhook/timeoutSeconds"),
        ("watchNamespaces={Not_A_Name}", "/watchNamespaces/0"),
        ("leaderElection.enabled=false,replicas=2", "leaderElection.enabled"),
    ],
)
def test_a_wrong_value_is_refused_by_name(argument: str, named: str) -> None:
    answer = helm("template", "rel", str(CHART), "--set", argument, check=False)
    assert answer.returncode != 0
    assert named in answer.stderr


def test_a_catalog_of_the_users_reaches_the_operator_and_a_change_of_it_restarts_it() -> None:
    def with_gpu(name: str) -> list[dict[str, Any]]:
        return template("--set", f"catalog.gpus[0].name={name}")

    pod = pod_of(with_gpu("X1"))
    (container,) = pod["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (volume,) = [each for each in pod["volumes"] if each["name"] == "catalog"]
    stored = next(each for each in with_gpu("X1") if each["metadata"]["name"] == volume["configMap"]["name"])
    assert env["KINTSUGI_CATALOG"] == f"{mounted['catalog']}/catalog.yaml"
    assert yaml.safe_load(stored["data"]["catalog.yaml"]) == {"gpus": [{"name": "X1"}]}
    assert annotations_of(with_gpu("X1")) == annotations_of(with_gpu("X1"))
    assert annotations_of(with_gpu("X1")) != annotations_of(with_gpu("X2"))


def annotations_of(objects: list[dict[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = only(objects, "Deployment")["spec"]["template"]["metadata"]["annotations"]
    return found
