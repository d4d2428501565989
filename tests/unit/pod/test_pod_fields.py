"""Every field of a template is one that Kubernetes has, of the kind that it takes: at every depth."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kintsugi.core.pod.fields import unknown_fields, wrong_kinds
from tests.unit.pod.pod_schema import SHIPPED, text

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "field_list.yaml").read_text())


def test_the_shipped_table_is_that_of_the_newest_kubernetes_we_know() -> None:
    """After an update of kubernetes-validate: `python -m tests.unit.pod.pod_schema`."""
    assert SHIPPED.read_text() == text()


@pytest.mark.parametrize(
    "case", [c for c in CASES if "podTemplate" in c["spec"]], ids=lambda case: case["name"]
)
def test_what_people_write_has_no_fault(case: dict[str, Any]) -> None:
    template = case["spec"]["podTemplate"]
    assert unknown_fields(template) == wrong_kinds(template) == ()


@pytest.mark.parametrize(
    ("template", "path", "meant"),
    [
        ({"spec": {"nodeSelektor": {}}}, "spec.nodeSelektor", "nodeSelector"),
        ({"spec": {"shmSize": "1Gi"}}, "spec.shmSize", ""),
        (
            {"spec": {"containers": [{"name": "engine", "startupProbe": {"failureTreshold": 5}}]}},
            "spec.containers[0].startupProbe.failureTreshold",
            "failureThreshold",
        ),
        (
            {"spec": {"containers": [{"name": "engine", "securityContext": {"capabilities": {"ad": []}}}]}},
            "spec.containers[0].securityContext.capabilities.ad",
            "add",
        ),
        (
            {"spec": {"volumes": [{"name": "a", "persistentVolumeClaim": {"claim": "b"}}]}},
            "spec.volumes[0].persistentVolumeClaim.claim",
            "claimName",
        ),
        (
            {"spec": {"affinity": {"podAffinity": {"required": []}}}},
            "spec.affinity.podAffinity.required",
            "",
        ),
    ],
)
def test_a_typing_error_is_named_at_any_depth(template: dict[str, Any], path: str, meant: str) -> None:
    (problem,) = unknown_fields(template)
    assert problem.path == path
    assert meant in problem.message
    assert wrong_kinds(template) == ()


@pytest.mark.parametrize(
    ("template", "path", "words"),
    [
        ({"spec": {"hostIPC": "true"}}, "spec.hostIPC", 'must be a boolean, not "true"'),
        ({"spec": {"nodeSelector": {"gpu": 8}}}, "spec.nodeSelector[gpu]", 'write "8"'),
        (
            {"spec": {"terminationGracePeriodSeconds": "600"}},
            "spec.terminationGracePeriodSeconds",
            "an integer",
        ),
        (
            {"spec": {"terminationGracePeriodSeconds": True}},
            "spec.terminationGracePeriodSeconds",
            "an integer",
        ),
        ({"spec": {"securityContext": 5}}, "spec.securityContext", "must be an object, not 5"),
        ({"spec": {"tolerations": {}}}, "spec.tolerations", "must be a list, not an object"),
        ({"spec": {"initContainers": [None]}}, "spec.initContainers[0]", "is empty"),
        (
            {"spec": {"containers": [{"name": "engine", "env": [{"name": "A", "value": 1}]}]}},
            "spec.containers[0].env[0].value",
            'must be a string, not 1: write "1"',
        ),
        (
            {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"memory": "lots"}}}]}},
            "spec.containers[0].resources.limits[memory]",
            'must be a quantity, not "lots"',
        ),
        ({"metadata": {"annotations": {"a": True}}}, "metadata.annotations[a]", 'write "true"'),
    ],
)
def test_a_value_of_another_kind_is_named_with_the_cure(
    template: dict[str, Any], path: str, words: str
) -> None:
    (problem,) = wrong_kinds(template)
    assert problem.path == path
    assert words in problem.message


@pytest.mark.parametrize("quantity", ["0", 0, 8, 0.5, "500m", "1500Gi", "1e3", "16G", "2.5", "1Ti", "100k"])
def test_every_way_to_write_a_quantity_passes(quantity: object) -> None:
    limits = {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"x/y": quantity}}}]}}
    assert wrong_kinds(limits) == ()
