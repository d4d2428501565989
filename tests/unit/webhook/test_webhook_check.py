"""The webhook over the real rules: what lint calls an error is refused, with lint's own words."""

import json
from typing import Any

import pytest
import yaml

from kintsugi.core.admission import Verdict, answer
from kintsugi.core.preflight.check import check
from kintsugi.runtime.webhook_check import preflight

Json = dict[str, Any]


def fleet(**spec: Any) -> Json:
    return {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"name": "chat", "namespace": "llm"},
        "spec": {
            "model": {"id": "deepseek-ai/DeepSeek-V4-Flash", "source": {"pvc": {"claimName": "models"}}},
            "hardware": {"gpu": "H200", "gpusPerInstance": 4},
            **spec,
        },
    }


NEVER = {"spec": {"restartPolicy": "Never"}}


def test_what_lint_finds_is_what_the_webhook_says() -> None:
    wrong = fleet(podTemplate=NEVER)
    said = answer("CREATE", wrong, None, preflight)
    assert said.verdict is Verdict.DENIED
    assert [cause.rule for cause in said.causes] == [f.rule for f in check(wrong) if f.severity == "Error"]
    assert said.causes[0].path == "spec.podTemplate.spec.restartPolicy"
    assert answer("CREATE", fleet(), None, preflight).allowed


def test_an_error_that_the_user_allows_is_a_warning() -> None:
    engine = {"version": "0.32.0", "extraArgs": ["--bogus"]}
    refused = answer("CREATE", fleet(engine=engine), None, preflight)
    assert [cause.rule for cause in refused.causes] == ["UnknownFlag"]
    said = answer("CREATE", fleet(engine=engine, validation={"allow": ["UnknownFlag"]}), None, preflight)
    assert said.verdict is Verdict.WARNED
    assert any("--bogus" in warning for warning in said.warnings)


def test_a_status_of_a_newer_operator_is_nobodys_fault() -> None:
    live = {**fleet(), "status": {"invented": 1}, "metadata": {**fleet()["metadata"], "managedFields": [{}]}}
    assert answer("UPDATE", live, {**live, "spec": {}}, preflight).allowed


def test_a_field_that_the_api_server_dropped_is_found_where_kubectl_keeps_it() -> None:
    live = fleet()
    given = {**fleet(), "spec": {**fleet()["spec"], "replicsa": 3}}
    live["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(given)}
    said = answer("CREATE", live, None, preflight)
    assert "spec.replicsa" in said.message


@pytest.mark.parametrize(
    "raw", ["{}", "spec: 5", "spec: {pools: 7}", "spec: {pools: [null]}", "metadata: []"]
)
def test_an_object_of_any_shape_is_answered(raw: str) -> None:
    document = yaml.safe_load(raw)
    assert not answer("CREATE", document, None, preflight).allowed
    assert answer("UPDATE", {**document, "spec": {}}, document, preflight) is not None
