"""Pods and capacity as far as lint can see them: S14, S21, S36, S45, S47 to S50, S52."""

from typing import Any

import pytest

from tests.scenarios.linting import FLASH, PRO, gpus, lint, manifest


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


def engine(**fields: Any) -> dict[str, Any]:
    return template(containers=[{"name": "engine", **fields}])


def claim(*modes: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models"},
        "spec": {"accessModes": list(modes)},
    }


def test_s21_another_restart_policy_is_refused_by_its_field() -> None:
    answer = lint(manifest(podTemplate=template(restartPolicy="OnFailure")))
    assert answer.errors == [("RestartPolicy", "spec.podTemplate.spec.restartPolicy")]
    assert "Always" in answer.text("RestartPolicy")


def test_s36_a_grace_period_shorter_than_hook_and_timeout() -> None:
    spec = template(
        terminationGracePeriodSeconds=30,
        containers=[{"name": "engine", "lifecycle": {"preStop": {"sleep": {"seconds": 15}}}}],
    )
    raw = manifest(engine={"extraArgs": ["--shutdown-timeout", "45"]}, podTemplate=spec)
    answer = lint(raw)
    assert answer.errors == [("GraceTooShort", "spec.podTemplate.spec.terminationGracePeriodSeconds")]
    assert "70 s" in answer.text("GraceTooShort")
    raw["spec"]["podTemplate"]["spec"]["terminationGracePeriodSeconds"] = 70
    assert lint(raw).findings == []


@pytest.mark.parametrize(
    ("model", "hardware", "args", "fits"),
    [
        (PRO, gpus("H100-80GB", 8), {}, False),
        (PRO, gpus("H200", 8), {}, True),
        (PRO, gpus("H100", 8, 2), {"tensorParallelSize": 16}, False),
        (PRO, gpus("H100", 8, 2), {"tensorParallelSize": 8, "dataParallelSize": 2}, True),
        (PRO, gpus("GB200", 4), {}, False),
        (PRO, gpus("GB200", 4, 2), {}, True),
        (FLASH, gpus("H200", 4), {}, True),
        (FLASH, gpus("H100", 2), {}, False),
    ],
    ids=str,
)
def test_s45_whether_the_weights_fit(
    model: str, hardware: dict[str, Any], args: dict[str, Any], fits: bool
) -> None:
    answer = lint(manifest(model, hardware=hardware, engine={"args": args}))
    assert (answer.errors == []) is fits


def test_s45_an_unknown_gpu_is_no_guess() -> None:
    answer = lint(manifest(PRO, hardware=gpus("H900", 8)))
    assert (answer.code, answer.warnings) == (0, [("UnknownGpu", "spec.hardware.gpu")])


def test_s47_offload_beyond_the_pod_names_both_fields_and_the_minimum() -> None:
    answer = lint(
        manifest(
            engine={
                "args": {"dataParallelSize": 4},
                "kvOffload": {"hostMemoryPerEngine": "200Gi"},
                "shm": {"size": "16Gi"},
            },
            podTemplate=engine(resources={"limits": {"memory": "512Gi"}}),
        )
    )
    limit = "spec.podTemplate.spec.containers[0].resources.limits.memory"
    assert answer.errors == [("OffloadMemory", "spec.engine.shm.size"), ("OffloadMemory", limit)]
    for finding in answer.findings:
        assert "resources.limits.memory" in finding["message"]
        assert "spec.engine.shm.size" in finding["message"]
        assert "4 x 200Gi" in finding["message"]


def test_s47_enough_of_both_passes() -> None:
    spec = {
        "args": {"dataParallelSize": 4},
        "kvOffload": {"hostMemoryPerEngine": "200Gi"},
        "shm": {"size": "1000Gi"},
    }
    raw = manifest(engine=spec, podTemplate=engine(resources={"limits": {"memory": "1200Gi"}}))
    assert lint(raw).findings == []


def test_s48_a_fleet_called_vllm_and_a_port_of_the_users() -> None:
    answer = lint(manifest(name="vllm", engine={"env": [{"name": "VLLM_PORT", "value": "8000"}]}))
    assert answer.code == 0
    assert answer.warnings == [("NamedVllm", "metadata.name"), ("VllmPort", "spec.engine.env[0]")]


def test_s48_service_links_are_the_users_to_turn_on() -> None:
    answer = lint(manifest(podTemplate=template(enableServiceLinks=True)))
    assert (answer.code, answer.warnings) == (
        0,
        [("ServiceLinks", "spec.podTemplate.spec.enableServiceLinks")],
    )


def test_s49_a_field_in_the_wrong_place_is_named_with_the_right_one() -> None:
    answer = lint(manifest(shmSize="20Gi"))
    assert answer.errors == [("UnknownField", "spec.shmSize")]
    assert "spec.engine.shm.size" in answer.text("UnknownField")


def test_s49_nothing_given_a_mount_of_the_users_and_the_hosts_memory_pass() -> None:
    mount = template(
        containers=[{"name": "engine", "volumeMounts": [{"name": "mine", "mountPath": "/dev/shm"}]}],
        volumes=[{"name": "mine", "emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}}],
    )
    for pod in ({}, mount, template(hostIPC=True)):
        assert lint(manifest(hardware=gpus("H200", 8), podTemplate=pod)).findings == []


def test_s49_sibling_a_typing_error_in_a_pod_template() -> None:
    answer = lint(manifest(podTemplate=template(nodeSelectr={"gpu": "h200"})))
    assert answer.errors == [("UnknownPodField", "spec.podTemplate.spec.nodeSelectr")]
    assert "nodeSelector" in answer.text("UnknownPodField")


POOL: dict[str, Any] = {"pools": [{"name": "a", "replicas": 3}]}
PINNED = template(nodeSelector={"kubernetes.io/hostname": "gpu-1"})


def test_s50_a_volume_of_one_node_for_three_pods() -> None:
    answer = lint(claim("ReadWriteOnce"), manifest(**POOL))
    assert answer.errors == [("ClaimAccess", "spec.model.source.pvc.claimName")]
    assert "'models'" in answer.text("ClaimAccess")
    assert "ReadWriteOnce" in answer.text("ClaimAccess")


@pytest.mark.parametrize("mode", ["ReadOnlyMany", "ReadWriteMany"])
def test_s50_volumes_of_many_nodes_pass(mode: str) -> None:
    assert lint(claim(mode), manifest(**POOL)).findings == []


def test_s50_all_pods_on_one_node_pass() -> None:
    assert lint(claim("ReadWriteOnce"), manifest(**POOL, podTemplate=PINNED)).findings == []


def test_s50_one_pod_that_may_be_surged_is_a_warning() -> None:
    answer = lint(claim("ReadWriteOnce"), manifest())
    assert (answer.code, answer.warnings) == (0, [("ClaimAccess", "spec.model.source.pvc.claimName")])
    assert lint(claim("ReadWriteOnce"), manifest(rollout={"strategy": "DeleteFirst"})).findings == []


def test_s50_two_pools_of_one_pod_share_the_claim_too() -> None:
    pools = [{"name": "a", "context": {"maxTokens": 8192}}, {"name": "b"}]
    assert lint(claim("ReadWriteOnce"), manifest(pools=pools)).code == 1


def test_s52_a_start_probe_shorter_than_the_load() -> None:
    probe = engine(startupProbe={"periodSeconds": 5, "failureThreshold": 60})
    answer = lint(manifest(PRO, podTemplate=probe))
    assert answer.code == 0
    assert answer.warnings == [("StartBudgetShort", "spec.podTemplate.spec.containers[0].startupProbe")]
    assert "5400 s" in answer.text("StartBudgetShort")
    field = lint(manifest(PRO, engine={"startBudgetSeconds": 300}))
    assert field.warnings == [("StartBudgetShort", "spec.engine.startBudgetSeconds")]
    assert lint(manifest(PRO, engine={"startBudgetSeconds": 5400})).findings == []
