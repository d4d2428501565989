"""`kintsugi lint` as people and pipelines call it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from kintsugi.__main__ import main

GOOD: dict[str, Any] = {
    "apiVersion": "kintsugi.dev/v1alpha1",
    "kind": "DeepSeekV4Deployment",
    "metadata": {"name": "chat"},
    "spec": {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash-0731"}},
}
BAD_SPEC = {**GOOD["spec"], "engine": {"args": {"blockSize": 16}}}
BAD = {**GOOD, "spec": BAD_SPEC}
WARNED = {**GOOD, "spec": {**GOOD["spec"], "engine": {"image": "registry.corp/vllm:prod"}}}


def lint(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["lint", *arguments], input=stdin)


def written(folder: Path, *documents: Any, name: str = "fleet.yaml") -> str:
    path = folder / name
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8")
    return str(path)


def found(result: Result) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(result.stdout)
    return listed


@pytest.mark.parametrize(("document", "code"), [(GOOD, 0), (WARNED, 0), (BAD, 1)])
def test_the_exit_code_tells_errors_from_warnings(tmp_path: Path, document: Any, code: int) -> None:
    assert lint(written(tmp_path, document)).exit_code == code


def test_json_is_a_list_with_severity_rule_path_message_and_cure(tmp_path: Path) -> None:
    (finding,) = found(lint("-o", "json", written(tmp_path, BAD)))
    assert finding["severity"] == "Error"
    assert finding["rule"] == "BlockSize"
    assert finding["path"] == "spec.engine.args.blockSize"
    assert "256" in finding["message"]
    assert finding["cure"]
    assert finding["line"] == 10


def test_nothing_found_is_an_empty_list(tmp_path: Path) -> None:
    assert found(lint("-o", "json", written(tmp_path, GOOD))) == []


def test_other_kinds_are_skipped_with_a_note(tmp_path: Path) -> None:
    result = lint(written(tmp_path, {"kind": "ConfigMap"}, GOOD, None, {"kind": "Service"}))
    assert result.exit_code == 0
    assert "ConfigMap" in result.stderr
    assert "Service" in result.stderr


def test_items_of_a_list_are_checked_one_by_one(tmp_path: Path) -> None:
    result = lint(
        "-o",
        "json",
        written(
            tmp_path,
            {"kind": "List", "apiVersion": "v1", "items": [GOOD, {**BAD, "metadata": {"name": "b"}}]},
        ),
    )
    (finding,) = found(result)
    assert (finding["item"], finding["path"]) == (1, "spec.engine.args.blockSize")
    assert finding["line"] > 15


def test_a_file_may_be_named_as_kubectl_wants_it(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("kind: DeepSeekV4Deployment\n", encoding="utf-8")
    assert lint("-o", "json", "-f", str(path)).output == lint("-o", "json", str(path)).output


def test_standard_input_is_read(tmp_path: Path) -> None:
    result = lint("-o", "json", "-", stdin=yaml.safe_dump(BAD))
    assert result.exit_code == 1
    assert found(result)[0]["file"] == "stdin"


def test_json_files_with_tabs_are_read(tmp_path: Path) -> None:
    assert lint("-", stdin=json.dumps(BAD, indent="\t")).exit_code == 1


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"---\n",
        b"a: [1",
        b"just words",
        b"- 1\n- 2\n",
        b"kind: ConfigMap\n",
        b"apiVersion: {{ .Values.x }}\n",
        b"\xff\xfe\x00",
        b"\x00",
        b"a: &x [*x]\n",
        b"? {a: 1}\n: 2\n",
        b"a: !thing 1\n",
        b"a: " + b"[" * 5000,
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(
            b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % ((n, n, *[n - 1] * 9))
            for n in range(98, 108)
        ),
    ],
    ids=range(14),
)
def test_what_is_no_manifest_of_ours_exits_2_and_says_why(text: bytes) -> None:
    result = lint("-", stdin=text)
    assert result.exit_code == 2
    assert result.stderr.strip()
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_a_missing_file_exits_2_and_the_other_is_checked(tmp_path: Path) -> None:
    result = lint("-o", "json", str(tmp_path / "none.yaml"), written(tmp_path, BAD))
    assert result.exit_code == 2
    assert "none.yaml" in result.stderr
    assert len(found(result)) == 1


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert lint(str(tmp_path)).exit_code == 2


def test_a_key_that_stands_twice_is_an_error_with_both_lines() -> None:
    text = yaml.safe_dump(GOOD, sort_keys=False) + "  engine: {}\n  engine: {shm: {size: 16Gi}}\n"
    result = lint("-o", "json", "-", stdin=text)
    assert result.exit_code == 1
    (finding,) = found(result)
    assert (finding["rule"], finding["path"]) == ("DuplicateKey", "spec.engine")
    assert "line 8" in finding["message"]
    assert finding["line"] == 9


def test_two_deployments_of_one_name_in_a_file_are_an_error_with_both_places(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD, GOOD)
    result = lint("-o", "json", path)
    assert result.exit_code == 1
    (finding,) = found(result)
    assert (finding["rule"], finding["path"]) == ("DuplicateObject", "metadata.name")
    assert f"chat stands twice, first in {path}:4" in finding["message"]
    assert (finding["file"], finding["document"], finding["line"]) == (path, 1, 12)


def test_one_name_in_two_namespaces_is_no_double(tmp_path: Path) -> None:
    other = {**GOOD, "metadata": {"name": "chat", "namespace": "b"}}
    assert found(lint("-o", "json", written(tmp_path, GOOD, other))) == []


def test_one_name_in_two_files_is_a_warning_since_they_may_be_for_two_clusters(tmp_path: Path) -> None:
    first, second = written(tmp_path, GOOD, name="staging.yaml"), written(tmp_path, GOOD, name="live.yaml")
    result = lint("-o", "json", first, second, second)
    assert result.exit_code == 0
    assert {(each["severity"], each["file"]) for each in found(result)} == {("Warning", second)}


def test_merged_keys_are_no_doubles() -> None:
    text = """
apiVersion: kintsugi.dev/v1alpha1
kind: DeepSeekV4Deployment
metadata: {name: chat}
spec:
  model: {id: deepseek-ai/DeepSeek-V4-Flash-0731}
  engine: {args: &base {maxNumSeqs: 64}}
  pools:
    - {name: a, engine: {args: {<<: *base, maxNumSeqs: 32}}}
"""
    result = lint("-o", "json", "-", stdin=text)
    assert (result.exit_code, found(result)) == (0, [])


def test_dates_and_numbers_as_keys_are_texts_as_in_kubernetes() -> None:
    text = (
        yaml.safe_dump(GOOD)
        + "---\n"
        + yaml.safe_dump(GOOD).replace("name: chat", "name: other\n  annotations: {on: 2026-11-29, 8: x}")
    )
    assert lint("-", stdin=text).exit_code == 0


@pytest.mark.parametrize("missing", ["kind", "apiVersion"])
def test_a_manifest_without_its_kind_or_version_is_ours_and_wrong(missing: str) -> None:
    raw = {key: value for key, value in GOOD.items() if key != missing}
    result = lint("-o", "json", "-", stdin=yaml.safe_dump(raw))
    assert result.exit_code == 1
    assert missing in found(result)[0]["message"]


def test_a_misspelt_kind_of_our_group_is_an_error() -> None:
    result = lint("-o", "json", "-", stdin=yaml.safe_dump({**GOOD, "kind": "DeepseekV4Deployment"}))
    assert [(f["rule"], f["path"]) for f in found(result)] == [("InvalidField", "kind")]


def test_claims_beside_the_deployment_are_known(tmp_path: Path) -> None:
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models"},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }
    spec = {
        "model": GOOD["spec"]["model"] | {"source": {"pvc": {"claimName": "models"}}},
        "pools": [{"name": "a", "replicas": 3}],
    }
    result = lint("-o", "json", written(tmp_path, claim, {**GOOD, "spec": spec}))
    assert [(f["rule"], f["path"]) for f in found(result)] == [
        ("ClaimAccess", "spec.model.source.pvc.claimName")
    ]


def test_a_catalog_of_the_users_is_laid_over_ours(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(
        "models:\n  - {id: deepseek-ai/DeepSeek-V4-Flash-0731, blockSizes: [16, 256]}\n", encoding="utf-8"
    )
    assert lint("--catalog", str(catalog), written(tmp_path, BAD)).exit_code == 0


@pytest.mark.parametrize("text", ["models: 3\n", "- 1\n", "a: [", "nonsense: []\n"])
def test_a_catalog_that_is_none_exits_2(tmp_path: Path, text: str) -> None:
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(text, encoding="utf-8")
    result = lint("--catalog", str(catalog), written(tmp_path, GOOD))
    assert result.exit_code == 2
    assert "catalog.yaml" in result.stderr


def test_the_summary_names_every_offender(tmp_path: Path) -> None:
    spec = {
        **GOOD["spec"],
        "hardware": {"gpu": "H200", "gpusPerInstance": 8},
        "engine": {
            "args": {"moeBackend": "deep_gemm_mega_moe"},
            "extraArgs": ["--attention_config.use_fp4_indexer_cache=True"],
        },
    }
    last = lint(written(tmp_path, {**GOOD, "spec": spec})).stdout.strip().splitlines()[-1]
    assert "2 errors" in last
    assert "spec.engine.args.moeBackend" in last
    assert "spec.engine.extraArgs[0]" in last


def test_rules_are_listed_for_people_and_programs() -> None:
    assert "BlockSize" in lint("--list-rules").stdout
    listed = json.loads(lint("--list-rules", "-o", "json").stdout)
    assert {"name", "severity", "summary"} <= set(listed[0])


def test_no_file_at_all_is_a_wrong_call() -> None:
    assert lint().exit_code == 2


def test_a_secret_is_never_printed() -> None:
    spec = {
        **GOOD["spec"],
        "engine": {
            "extraArgs": ["--api-key", "s3cret-value", "--api-key=other-s3cret"],
            "env": [{"name": "HF_TOKEN", "value": "hf_s3cret"}],
        },
    }
    for output in ("table", "json", "sarif"):
        assert "s3cret" not in lint("-o", output, "-", stdin=yaml.safe_dump({**GOOD, "spec": spec})).output


def test_an_autoscaler_beside_the_deployment_counts_its_most_replicas(tmp_path: Path) -> None:
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models"},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }
    spec = {
        "model": GOOD["spec"]["model"] | {"source": {"pvc": {"claimName": "models"}}},
        "rollout": {"strategy": "DeleteFirst"},
    }
    target = {"apiVersion": "kintsugi.dev/v1alpha1", "kind": "DeepSeekV4Deployment", "name": "chat"}
    scaler = {"kind": "HorizontalPodAutoscaler", "spec": {"scaleTargetRef": target, "maxReplicas": 8}}
    assert lint(written(tmp_path, claim, {**GOOD, "spec": spec})).exit_code == 0
    result = lint("-o", "json", written(tmp_path, claim, scaler, {**GOOD, "spec": spec}))
    assert [f["rule"] for f in found(result)] == ["ClaimAccess"]
    elsewhere = {**claim, "metadata": {"name": "models", "namespace": "other"}}
    assert lint(written(tmp_path, elsewhere, scaler, {**GOOD, "spec": spec})).exit_code == 0


@pytest.mark.parametrize(("metadata", "code"), [({}, 1), (None, 1), ({"generateName": "chat-"}, 0)])
def test_a_manifest_without_a_name_is_refused_as_the_api_server_does(
    tmp_path: Path, metadata: Any, code: int
) -> None:
    result = lint("-o", "json", written(tmp_path, {**GOOD, "metadata": metadata}))
    assert result.exit_code == code
    assert [
        f["message"] for f in found(result) if f["severity"] == "Error" and "metadata.name" in f["message"]
    ] == ["metadata.name is required"] * code
