"""`kintsugi render`: what a manifest becomes, or in plain words why nothing does."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from kintsugi.__main__ import main
from tests.unit.pod.pods import FLASH, container

MANIFEST: dict[str, Any] = {
    "apiVersion": "kintsugi.dev/v1alpha1",
    "kind": "DeepSeekV4Deployment",
    "metadata": {"name": "chat"},
    "spec": {"model": {"id": FLASH}, "pools": [{"name": "short", "replicas": 2}, {"name": "long"}]},
}


def run(text: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["render", "-f", "-", *arguments], input=text)


def test_the_owners_services_and_budgets_of_all_pools_are_written() -> None:
    answer = run(yaml.safe_dump(MANIFEST))
    assert answer.exit_code == 0, answer.output
    found = [(d["kind"], d["metadata"]["name"].split("-")[1]) for d in yaml.safe_load_all(answer.stdout)]
    short = [("ReplicaSet", "short"), ("Service", "short"), ("PodDisruptionBudget", "short")]
    assert found == [*short, ("ReplicaSet", "long"), ("Service", "long")]


def test_one_pool_as_json_says_the_same_and_nothing_of_a_cluster() -> None:
    answer = run(yaml.safe_dump(MANIFEST), "--pool", "long", "-o", "json")
    documents = json.loads(answer.stdout)
    every = {d["metadata"]["name"]: d for d in yaml.safe_load_all(run(yaml.safe_dump(MANIFEST)).stdout)}
    assert [d["kind"] for d in documents] == ["ReplicaSet", "Service"]
    for document in documents:
        assert document == every[document["metadata"]["name"]]
        assert "ownerReferences" not in document["metadata"]


def test_with_the_operators_image_the_pods_are_those_that_it_makes_in_a_cluster() -> None:
    answer = run(yaml.safe_dump(MANIFEST), "--pool", "long", "--operator-image", "registry.corp/kintsugi:1")
    pod = next(iter(yaml.safe_load_all(answer.stdout)))["spec"]["template"]
    assert [init["image"] for init in pod["spec"]["initContainers"]] == ["registry.corp/kintsugi:1"]
    assert "--kv-transfer-config" in container(pod)["args"]


def test_instances_of_several_nodes_are_groups() -> None:
    spec = {"model": {"id": FLASH}, "hardware": {"gpu": "H200", "gpusPerInstance": 8, "nodesPerInstance": 2}}
    answer = run(yaml.safe_dump(MANIFEST | {"spec": spec}))
    assert answer.exit_code == 0, answer.output
    assert next(iter(yaml.safe_load_all(answer.stdout)))["kind"] == "LeaderWorkerSet"


def test_texts_of_several_lines_can_be_read_and_come_back_unchanged() -> None:
    script = 'set -e\nexec vllm serve "$@"\n'
    spec = MANIFEST["spec"] | {"engine": {"command": ["/bin/bash", "-c", script, "--"]}}
    answer = run(yaml.safe_dump(MANIFEST | {"spec": spec}), "--pool", "long")
    assert "- |\n" in answer.stdout
    (owner, _) = yaml.safe_load_all(answer.stdout)
    assert owner["spec"]["template"]["spec"]["containers"][0]["command"][2] == script


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("a: [", 2, "line 1"),
        ("", 2, "no DeepSeekV4Deployment in it"),
        ("just text", 2, "no DeepSeekV4Deployment in it"),
        ("[1, 2]", 2, "no DeepSeekV4Deployment in it"),
        ("kind: Service", 2, "no DeepSeekV4Deployment in it"),
        ("[" * 3000, 2, "-: "),
        ("{kind: DeepSeekV4Deployment, metadata: {annotations: 5}, spec: {model: {id: x}}}", 1, "metadata"),
        ("{kind: DeepSeekV4Deployment, metadata: 5}", 1, "spec"),
        ("{kind: DeepSeekV4Deployment, spec: {}}", 1, "spec.model: is required"),
        ("{kind: DeepSeekV4Deployment, spec: {model: {id: x}, engine: 5}}", 1, "spec.engine"),
        (
            "{kind: DeepSeekV4Deployment, spec: {model: {id: x}, pools: [{name: p, podTemplate: {spec: {containers: "
            + "[{name: engine, image: y}]}}}]}}",
            1,
            "spec.pools[0].podTemplate.spec.containers[0].image: belongs to the operator: set engine.image",
        ),
    ],
)
def test_what_cannot_be_rendered_says_why_and_where(text: str, code: int, words: str) -> None:
    answer = run(text)
    assert answer.exit_code == code, answer.output
    assert words in answer.output
    assert "Traceback" not in answer.output


def test_a_model_of_the_users_own_catalog_is_rendered_as_it_says_there(tmp_path: Path) -> None:
    models = [{"id": "corp/tuned", "like": "deepseek-ai/DeepSeek-V4-Pro", "startBudgetSeconds": 7200}]
    (tmp_path / "catalog.yaml").write_text(yaml.safe_dump({"models": models}))
    spec = {"model": {"id": "corp/tuned", "source": {"pvc": {"claimName": "m"}}}}
    answer = run(yaml.safe_dump(MANIFEST | {"spec": spec}), "--catalog", str(tmp_path / "catalog.yaml"))
    assert answer.exit_code == 0, answer.output
    owner = next(iter(yaml.safe_load_all(answer.stdout)))
    probe = container(owner["spec"]["template"])["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 7200
    (tmp_path / "catalog.yaml").write_text("models: 5")
    refused = run(yaml.safe_dump(MANIFEST), "--catalog", str(tmp_path / "catalog.yaml"))
    assert (refused.exit_code, "Traceback" in refused.output) == (2, False)


def test_a_pool_that_is_not_there_is_named() -> None:
    answer = run(yaml.safe_dump(MANIFEST), "--pool", "huge")
    assert answer.exit_code == 1
    assert "'huge'" in answer.output


def test_a_file_that_is_not_there_and_one_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    for name in ("absent", "binary"):
        answer = CliRunner().invoke(main, ["render", "-f", str(tmp_path / name)])
        assert answer.exit_code == 2
        assert name in answer.output
