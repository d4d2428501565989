"""The CRDs are current, small, well-formed, and say what people ask of them."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from kubernetes_validate import validate

from kintsugi.api.crd import crd_documents, missing_fields
from kintsugi.api.structural import LIST_TYPE, PRESERVE, check, walk
from kintsugi.cli.crds import crd_files, crds, helm_template

ROOT = Path(__file__).parents[3]
DOCUMENTS = {document["spec"]["names"]["kind"]: document for document in crd_documents()}
KINDS = sorted(DOCUMENTS)
CLIENT_SIDE_APPLY_LIMIT = 262_144
"""Bytes of all annotations of an object (`TotalAnnotationSizeLimitB` in Kubernetes)."""


def version(kind: str) -> dict[str, Any]:
    entry: dict[str, Any] = DOCUMENTS[kind]["spec"]["versions"][0]
    return entry


def schema(kind: str) -> dict[str, Any]:
    out: dict[str, Any] = version(kind)["schema"]["openAPIV3Schema"]
    return out


def test_the_files_in_the_repository_are_current() -> None:
    written = {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    assert written == crd_files(), "run `kintsugi crds`"


@pytest.mark.parametrize("kind", KINDS)
def test_the_api_server_can_store_every_bound_as_it_is_written(kind: str) -> None:
    def bounds(node: Any) -> list[float]:
        if isinstance(node, list):
            return [bound for item in node for bound in bounds(item)]
        if not isinstance(node, dict):
            return []
        here = [v for k, v in node.items() if k in ("minimum", "maximum") and isinstance(v, int | float)]
        return here + [bound for value in node.values() for bound in bounds(value)]

    assert bounds(schema(kind))
    assert [bound for bound in bounds(schema(kind)) if abs(bound) > 2**53 or float(bound) != bound] == []


def test_the_charts_copy_is_current() -> None:
    chart = ROOT / "helm" / "kintsugi" / "templates" / "crds.yaml"
    assert chart.read_text() == helm_template(), f"run `kintsugi crds --helm {chart.relative_to(ROOT)}`"


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_is_structural_and_bounded(kind: str) -> None:
    assert check(schema(kind)) == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("release", ["1.31", "1.34"])
def test_the_document_is_a_valid_custom_resource_definition(kind: str, release: str) -> None:
    validate(DOCUMENTS[kind], release, strict=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_document_is_small_enough_for_client_side_apply(kind: str) -> None:
    size = len(json.dumps(DOCUMENTS[kind]))
    assert size <= 200_000 < CLIENT_SIDE_APPLY_LIMIT


@pytest.mark.parametrize("kind", KINDS)
def test_the_api_server_writes_no_defaults_into_what_users_wrote(kind: str) -> None:
    assert [path for path, node in walk(schema(kind)) if "default" in node] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_in_status_is_keyed_or_atomic_on_purpose(kind: str) -> None:
    lists = {path: node[LIST_TYPE] for path, node in walk(schema(kind)) if node.get("type") == "array"}
    assert set(lists.values()) <= {"map", "set", "atomic"}
    assert {"map"} <= {kind for path, kind in lists.items() if path.startswith("status.")}


def test_only_what_is_passed_through_keeps_unknown_fields() -> None:
    kept = {path for path, node in walk(schema("DeepSeekV4Deployment")) if node.get(PRESERVE)}
    assert kept == {
        *(
            f"spec.{pools}{part}odTemplate"
            for pools in ("", "pools[].")
            for part in ("p", "leaderP", "workerP")
        ),
        "spec.engine.env[].valueFrom",
        "spec.engine.envFrom[]",
        "spec.pools[].engine.env[].valueFrom",
        "spec.pools[].engine.envFrom[]",
    }


def test_scale_is_about_the_top_level_replicas() -> None:
    assert version("DeepSeekV4Deployment")["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_printer_column_shows_a_field_that_exists(kind: str) -> None:
    known = {path for path, _ in walk(schema(kind))}
    for column in version(kind)["additionalPrinterColumns"]:
        path = column["jsonPath"].removeprefix(".").split("[?(")[0]
        assert path in known or path == "metadata.creationTimestamp", column


def test_the_short_names_are_the_ones_people_are_told() -> None:
    assert DOCUMENTS["DeepSeekV4Deployment"]["spec"]["names"]["shortNames"] == ["dsv4"]
    assert DOCUMENTS["Remediation"]["spec"]["names"]["shortNames"] == ["mend"]


def test_an_older_crd_in_the_cluster_is_found_out() -> None:
    ours = DOCUMENTS["DeepSeekV4Deployment"]
    live = deepcopy(ours)
    fields = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del fields["status"]["properties"]["capacity"]
    del fields["spec"]["properties"]["healing"]["properties"]["storm"]
    missing = missing_fields(live, ours)
    assert "status.capacity" in missing
    assert "spec.healing.storm.percent" in missing
    assert missing_fields(ours, ours) == ()


def test_a_newer_crd_in_the_cluster_is_no_fault() -> None:
    ours = DOCUMENTS["Remediation"]
    live = deepcopy(ours)
    live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["more"] = {"type": "boolean"}
    assert missing_fields(live, ours) == ()


def test_a_crd_without_our_version_lacks_everything() -> None:
    ours = DOCUMENTS["Remediation"]
    live = deepcopy(ours)
    live["spec"]["versions"][0]["name"] = "v1beta1"
    assert "spec" in missing_fields(live, ours)


def test_the_command_writes_once_and_checks(tmp_path: Path) -> None:
    runner, chart = CliRunner(), tmp_path / "chart" / "crds.yaml"
    options = ["--directory", str(tmp_path / "crds"), "--helm", str(chart)]
    stale = runner.invoke(crds, [*options, "--check"])
    assert stale.exit_code == 1
    assert "deepseekv4deployments" in stale.output
    assert not chart.exists()

    assert runner.invoke(crds, options).output.count("wrote ") == 3
    assert runner.invoke(crds, options).output == ""
    assert runner.invoke(crds, [*options, "--check"]).exit_code == 0

    chart.write_text("edited by hand")
    assert runner.invoke(crds, [*options, "--check"]).exit_code == 1


def test_the_charts_template_holds_the_same_documents() -> None:
    lines = [
        line
        for line in helm_template().splitlines()
        if not line.strip().startswith(("{{- if", "{{- end", "helm.sh/resource-policy"))
    ]
    text = "\n".join(line for line in lines if line != "  annotations:").replace('{{ "{{" }}', "{{")
    assert list(yaml.safe_load_all(text)) == crd_documents()
