"""Shape before meaning, what `allow` may do, and that one slip hides no other."""

import json
from typing import Any

import pytest

from kintsugi.api.fields import LAST_APPLIED
from kintsugi.api.objects import parse_deployment
from kintsugi.core.preflight.check import check, check_spec
from kintsugi.core.preflight.facts import Facts
from kintsugi.core.preflight.registry import FIXED, names

FLASH = "deepseek-ai/DeepSeek-V4-Flash-0731"


def whole(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"name": "chat"},
        "spec": {"model": {"id": FLASH}, **spec},
    }


def found(raw: Any) -> list[tuple[str, str, str]]:
    return [(f.severity, f.rule, f.path) for f in check(raw)]


def test_a_minimal_object_has_no_findings() -> None:
    assert check(whole()) == ()


@pytest.mark.parametrize("raw", [None, 3, "text", [], [{}]])
def test_what_is_no_object_is_one_error(raw: Any) -> None:
    assert found(raw) == [("Error", "InvalidField", ".")]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "nan"),
        (10**30, "64 bits"),
        ({1: 2}, "not a text"),
        ({1, 2}, "set"),
        (b"x", "bytes"),
        ("\ud800", "half a character"),
    ],
    ids=repr,
)
def test_what_json_can_not_say_is_named_by_its_place(value: Any, said: str) -> None:
    (finding,) = check(whole(podTemplate={"spec": {"nodeSelector": value}}))
    assert finding.path == "spec.podTemplate.spec.nodeSelector"
    assert said in finding.message


def test_an_object_without_end_is_refused() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    (finding,) = check(whole(podTemplate=deep))
    assert "deeper" in finding.message


def test_one_slip_does_not_hide_the_others() -> None:
    raw = whole(engine={"args": {"maxNumSeqs": "64", "blockSize": 16}}, shmSize="1Gi")
    assert found(raw) == [
        ("Error", "BlockSize", "spec.engine.args.blockSize"),
        ("Error", "InvalidField", "spec.engine.args.maxNumSeqs"),
        ("Error", "UnknownField", "spec.shmSize"),
    ]


def test_parts_that_are_shared_are_mended_each_by_itself() -> None:
    shared: dict[str, Any] = {"maxTokens": "many"}
    raw = whole(pools=[{"name": "a", "context": shared}, {"name": "b", "context": shared}])
    assert [path for _, rule, path in found(raw) if rule == "InvalidField"] == [
        "spec.pools[0].context.maxTokens",
        "spec.pools[1].context.maxTokens",
    ]


def test_a_missing_field_is_named_in_the_message_and_its_holder_in_the_path() -> None:
    (finding,) = check(whole(model={"revision": "main"}))
    assert finding.path == "spec.model"
    assert finding.message.startswith("spec.model.id is required")
    assert finding.cure == "set it"


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ({"shmSize": "1Gi"}, "spec.engine.shm.size"),
        ({"hardware": {"gpusPerPod": 8}}, "gpusPerInstance"),
        ({"engine": {"args": {"swapSpace": 16}}}, "spec.engine.kvOffload.hostMemoryPerEngine"),
        ({"engine": {"args": {"enableLora": True}}}, "--enable-lora in extraArgs"),
        ({"engine": {"args": {"max_num_seqs": 4}}}, "maxNumSeqs"),
        ({"resources": {}}, "spec.engine.resources"),
        ({"podTemplate": {"spec": {"tolerationss": []}}}, "tolerations"),
        ({"gpus": 8}, "spec.hardware.gpusPerInstance"),
        ({"hardware": {"nodes": 2}}, "spec.hardware.nodesPerInstance"),
        ({"tolerations": []}, "spec.podTemplate.spec.tolerations"),
        ({"pools": [{"name": "a", "nodeSelector": {}}]}, "spec.pools[].podTemplate.spec.nodeSelector"),
        ({"healing": {"enabled": True}}, "spec.healing.mode"),
    ],
    ids=str,
)
def test_an_unknown_field_is_told_where_it_belongs(field: dict[str, Any], meant: str) -> None:
    (finding,) = check(whole(**field))
    assert finding.severity == "Error"
    assert meant in finding.message
    assert meant in finding.cure or finding.cure == "correct the name"


def test_a_name_that_says_little_is_not_taken_for_a_far_away_field_of_that_name() -> None:
    (finding,) = check(whole(engine={"path": "/models"}))
    assert "loraAdapters" not in finding.message


def test_a_number_with_a_unit_is_told_how_to_be_written() -> None:
    (finding,) = check(whole(pools=[{"name": "a", "context": {"maxTokens": "8K"}}]))
    assert finding.cure == "write a whole number, without unit or quotes: 8192, not 8K"


def test_fields_that_the_api_server_dropped_are_read_from_what_was_applied() -> None:
    raw = whole()
    raw["metadata"]["annotations"] = {LAST_APPLIED: '{"spec": {"shmSize": "1Gi"}}'}
    (finding,) = check(raw)
    assert (finding.rule, finding.path) == ("UnknownField", "spec")
    assert "spec.shmSize" in finding.message


@pytest.mark.parametrize(
    "annotations", [None, [], "x", {LAST_APPLIED: "{"}, {LAST_APPLIED: "[]"}, {LAST_APPLIED: 3}]
)
def test_strange_annotations_are_no_finding_of_ours(annotations: Any) -> None:
    raw = whole()
    raw["metadata"]["annotations"] = annotations
    assert all(finding.rule == "InvalidField" for finding in check(raw))


def test_an_allowed_error_is_a_warning_and_an_allowed_warning_is_acknowledged() -> None:
    engine = {"args": {"blockSize": 16, "enforceEager": True}}
    assert found(whole(engine=engine)) == [
        ("Error", "BlockSize", "spec.engine.args.blockSize"),
        ("Warning", "EagerMode", "spec.engine.args.enforceEager"),
    ]
    allowed = whole(engine=engine, validation={"allow": ["BlockSize", "EagerMode"]})
    assert found(allowed) == [("Warning", "BlockSize", "spec.engine.args.blockSize")]


def test_a_name_that_is_no_rule_is_told_the_nearest() -> None:
    (finding,) = check(whole(validation={"allow": ["UnsuportedGPU"]}))
    assert (finding.severity, finding.path) == ("Warning", "spec.validation.allow[0]")
    assert "UnsupportedGpu" in finding.cure


def test_shape_can_not_be_allowed_away() -> None:
    raw = whole(
        shmSize="1Gi",
        podTemplate={"spec": {"restartPolicy": "Never"}},
        validation={"allow": sorted(FIXED)[:8]},
    )
    assert {f.severity for f in check(raw) if f.rule != "UnknownRule"} == {"Error"}
    told = [f.path for f in check(raw) if f.rule == "UnknownRule"]
    assert told == [f"spec.validation.allow[{index}]" for index in range(len(told))] != []
    assert {"UnknownField", "InvalidField", "OperatorOwnedField", "RestartPolicy"} <= FIXED <= names()


def test_one_setting_for_several_pools_is_one_finding() -> None:
    pools = [{"name": "a", "context": {"maxTokens": 8192}}, {"name": "b"}]
    answer = found(whole(engine={"args": {"blockSize": 16}}, pools=pools))
    assert [each for each in answer if each[0] == "Error"] == [
        ("Error", "BlockSize", "spec.engine.args.blockSize")
    ]


def test_a_pool_that_sets_it_right_again_is_not_blamed() -> None:
    pools = [{"name": "a", "engine": {"args": {"blockSize": 256}}}]
    assert check(whole(engine={"args": {"blockSize": 16}}, pools=pools)) == ()


def test_a_parsed_deployment_gets_the_same_answer_as_what_was_written() -> None:
    raw = whole(engine={"args": {"blockSize": 16}, "extraArgs": ["--swap-space=1"]})
    assert check_spec(parse_deployment(raw)) == check(raw)


def test_without_a_cluster_nothing_is_said_of_claims() -> None:
    model = {"id": FLASH, "source": {"pvc": {"claimName": "models"}}}
    raw = whole(model=model, pools=[{"name": "a", "replicas": 3}])
    assert check(raw) == ()
    (missing,) = check(raw, Facts(all_claims=True))
    assert (missing.rule, missing.severity) == ("ClaimMissing", "Warning")


def test_each_value_that_json_can_not_say_is_named() -> None:
    raw = whole(engine={"args": {"maxNumSeqs": float("inf")}}, hardware={"gpusPerInstance": 10**20})
    assert found(raw) == [
        ("Error", "InvalidField", "spec.engine.args.maxNumSeqs"),
        ("Error", "InvalidField", "spec.hardware.gpusPerInstance"),
    ]


def test_memory_that_connectors_inside_a_connector_keep_counts() -> None:
    inner = {
        "kv_connector": "SimpleCPUOffloadConnector",
        "kv_connector_extra_config": {"cpu_bytes_to_use_per_rank": 64 * 2**30},
    }
    outer = {"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": [inner]}}
    config = json.dumps(outer)
    args = ["--kv-transfer-config", config]
    engine = {
        "args": {"tensorParallelSize": 4},
        "extraArgs": args,
        "resources": {"limits": {"memory": "128Gi"}},
    }
    assert ("Error", "OffloadMemory", "spec.engine.resources.limits.memory") in found(whole(engine=engine))


def test_offload_of_several_nodes_is_counted_by_pod() -> None:
    hardware = {"gpu": "H200", "gpusPerInstance": 8, "nodesPerInstance": 2}
    engine = {"args": {"dataParallelSize": 16}, "kvOffload": {"hostMemoryPerEngine": "50Gi"}}
    enough = {**engine, "resources": {"limits": {"memory": "640Gi"}}}
    short = {**engine, "resources": {"limits": {"memory": "320Gi"}}}
    assert "OffloadMemory" not in {rule for _, rule, _ in found(whole(engine=enough, hardware=hardware))}
    assert "OffloadMemory" in {rule for _, rule, _ in found(whole(engine=short, hardware=hardware))}


def test_names_that_kubernetes_lacks_below_variables_are_errors() -> None:
    engine = {
        "env": [{"name": "A", "valueFrom": {"secretKeyReff": {"name": "s", "key": "k"}}}],
        "envFrom": [{"secretRefs": {"name": "s"}}, 3, {"secretRef": {"name": "s", "kee": 1}}],
    }
    listed = found(whole(pools=[{"name": "a", "engine": engine}]))
    at = "spec.pools[0].engine"
    assert ("Error", "UnknownPodField", f"{at}.env[0].valueFrom.secretKeyReff") in listed
    assert ("Error", "UnknownPodField", f"{at}.envFrom[0].secretRefs") in listed
    assert ("Error", "UnknownPodField", f"{at}.envFrom[2].secretRef.kee") in listed
