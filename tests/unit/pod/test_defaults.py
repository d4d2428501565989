"""Defaults that keep an engine alive, each only where the user said nothing: S48, S49, S51, S52."""

from typing import Any

import pytest

from kintsugi.core.catalog.amount import bytes_of
from kintsugi.core.preflight.check import check
from tests.unit.pod.pods import FLASH, PRO, container, env, pod, valid

PVC = {"source": {"pvc": {"claimName": "models", "subPath": "v4"}}}
SHM = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}


def templated(engine: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A podTemplate with these fields of the engine's container and of the pod."""
    containers = {"containers": [{"name": "engine", **engine}]} if engine else {}
    return {"podTemplate": {"spec": {**spec, **containers}}}


def volumes(template: dict[str, Any]) -> list[str]:
    return [volume["name"] for volume in template["spec"]["volumes"]]


def mounts(template: dict[str, Any]) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in container(template)["volumeMounts"]}


def test_no_service_of_the_namespace_reaches_the_environment_unless_the_user_wants_it() -> None:
    """S48: a Service named vllm would set VLLM_PORT=tcp://…, and the engine would not start."""
    assert pod({})["spec"]["enableServiceLinks"] is False
    assert pod(templated(enableServiceLinks=True))["spec"]["enableServiceLinks"] is True


def test_shared_memory_is_large_and_asked_for() -> None:
    """S49 (a)"""
    made = pod({})
    assert SHM in made["spec"]["volumes"]
    assert mounts(made)["/dev/shm"] == "shm"
    assert container(made)["resources"]["requests"]["memory"] == "16Gi"


def test_shared_memory_has_the_size_that_was_written() -> None:
    made = pod({"engine": {"shm": {"size": "200Gi"}}})
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "200Gi"}} in made["spec"]["volumes"]
    assert container(made)["resources"]["requests"]["memory"] == "200Gi"


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/"])
def test_a_mount_of_the_users_for_shared_memory_wins_and_is_the_only_one(path: str) -> None:
    """S49 (c)"""
    mine = {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
    made = pod(templated({"volumeMounts": [{"name": "dshm", "mountPath": path}]}, volumes=[mine]))
    assert [name for at, name in mounts(made).items() if at.rstrip("/") == "/dev/shm"] == ["dshm"]
    assert "shm" not in volumes(made)
    assert container(made)["resources"]["requests"]["memory"] == "64Gi"
    valid(made)


def test_a_sidecar_may_share_the_shared_memory_of_the_operator() -> None:
    side = {"name": "side", "image": "x", "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    made = pod({"podTemplate": {"spec": {"hostIPC": False, "containers": [side]}}})
    assert "shm" in volumes(made)


def test_the_hosts_ipc_brings_the_hosts_shared_memory() -> None:
    """S49 (d)"""
    made = pod(templated(hostIPC=True))
    assert "shm" not in volumes(made)
    assert "/dev/shm" not in mounts(made)
    valid(made)


def test_a_memory_request_of_the_users_stays_alone() -> None:
    for resources in ({"requests": {"memory": "512Gi"}}, {"limits": {"memory": "512Gi"}}):
        assert container(pod({"engine": {"resources": resources}}))["resources"].get("requests", {}).get(
            "memory"
        ) == resources.get("requests", {}).get("memory")
    made = pod(templated({"resources": {"limits": {"memory": "512Gi"}}}))
    assert "memory" not in container(made)["resources"].get("requests", {})


def test_kv_cache_in_host_memory_fits_into_shared_memory_and_is_asked_for_once_per_engine() -> None:
    """S47: the size is that of one engine, and data parallel over four makes four of them."""
    spec = {
        "engine": {"args": {"dataParallelSize": 4}, "kvOffload": {"hostMemoryPerEngine": "10Gi"}},
        "hardware": {"gpu": "H200", "gpusPerInstance": 4},
    }
    made = pod(spec)
    shm = next(v for v in made["spec"]["volumes"] if v["name"] == "shm")["emptyDir"]["sizeLimit"]
    assert (bytes_of(shm) or 0) >= 4 * 10 * 2**30 * 1.1 + 16 * 2**30
    assert (bytes_of(container(made)["resources"]["requests"]["memory"]) or 0) > (bytes_of(shm) or 0)


@pytest.mark.parametrize("offload", [{}, {"kvOffload": {"hostMemoryPerEngine": "200Gi"}}])
@pytest.mark.parametrize("profile", ["LongContext", "HighThroughput"])
def test_the_defaults_for_offload_are_ones_that_lint_has_no_word_against(
    offload: dict[str, Any], profile: str
) -> None:
    spec = {"model": {"id": FLASH}, "pools": [{"name": "p", "profile": profile, "engine": offload}]}
    raw = {"kind": "DeepSeekV4Deployment", "metadata": {"name": "chat"}, "spec": spec}
    assert [f for f in check(raw) if f.rule in ("OffloadMemory", "SharedMemory")] == []
    asked = 200 if offload else 32 if profile == "LongContext" else 0
    shm = next(v for v in pod(spec)["spec"]["volumes"] if v["name"] == "shm")["emptyDir"]["sizeLimit"]
    assert (bytes_of(shm) or 0) >= (asked + 16) * 2**30


def test_weights_that_are_downloaded_get_room_on_the_nodes_disk() -> None:
    requests = container(pod({"model": {"id": PRO}}))["resources"]["requests"]
    assert requests["ephemeral-storage"] == "967Gi"  # 865 GB and a fifth


@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"id": PRO, **PVC}},
        {"model": {"id": PRO, "source": {"image": {"reference": "models/pro:1"}}}},
        {"model": {"id": PRO, "source": {"hub": {"cache": {"claimName": "cache"}}}}},
        {"model": {"id": "/models/DeepSeek-V4-Pro"}},
        {"model": {"id": "kintsugi/tiny"}, "hardware": {"gpusPerInstance": 1}},
        {"model": {"id": PRO}, "hardware": {"gpusPerInstance": 0}},
        {"model": {"id": PRO}, "hardware": {"gpusPerInstance": 1}},
        {"model": {"id": PRO}, "engine": {"env": [{"name": "HF_HOME", "value": "/mine"}]}},
        {"model": {"id": PRO}, "engine": {"env": [{"name": "HF_HUB_CACHE", "value": "/mine"}]}},
        {"model": {"id": PRO}, **templated(volumes=[{"name": "caches", "hostPath": {"path": "/nvme"}}])},
        {"model": {"id": PRO}, "engine": {"resources": {"limits": {"ephemeral-storage": "128Gi"}}}},
        {"model": {"id": PRO}, **templated({"resources": {"limits": {"ephemeral-storage": "128Gi"}}})},
    ],
    ids=str,
)
def test_no_room_is_asked_for_where_nothing_large_is_downloaded_or_the_user_decides(
    spec: dict[str, Any],
) -> None:
    assert "ephemeral-storage" not in container(pod(spec))["resources"].get("requests", {})


def test_the_demos_pods_ask_for_nothing_that_a_small_cluster_lacks() -> None:
    """An instance too small for its model is a stand-in: one GPU of a kind nobody named."""
    made = container(pod({"model": {"id": FLASH}, "hardware": {"gpusPerInstance": 1}}))
    assert "requests" not in made["resources"]


def test_the_hub_is_not_asked_where_the_weights_are_mounted() -> None:
    """S51"""
    assert env(pod({"model": {"id": PRO, **PVC}}))["HF_HUB_OFFLINE"] == "1"
    assert (
        env(pod({"model": {"id": PRO, "source": {"image": {"reference": "a:1"}}}}))["HF_HUB_OFFLINE"] == "1"
    )
    assert "HF_HUB_OFFLINE" not in env(pod({"model": {"id": PRO}}))


def test_the_hubs_token_comes_from_its_secret() -> None:
    made = pod({"model": {"id": PRO, "source": {"hub": {"tokenSecretRef": {"name": "hf", "key": "token"}}}}})
    assert env(made)["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "token"}}


def test_the_engines_other_front_end_stays_off_unless_the_user_wants_it() -> None:
    assert env(pod({}))["VLLM_USE_RUST_FRONTEND"] == "0"
    on = {"env": [{"name": "VLLM_USE_RUST_FRONTEND", "value": "1"}]}
    names = [e["name"] for e in container(pod({"engine": on}))["env"]]
    assert names.count("VLLM_USE_RUST_FRONTEND") == 1
    assert env(pod({"engine": on}))["VLLM_USE_RUST_FRONTEND"] == "1"


def test_the_native_engine_gets_no_variables_of_vllms() -> None:
    made = env(pod({"engine": {"runtime": "Native", "image": "native:1"}}))
    assert not {"VLLM_USE_RUST_FRONTEND", "VLLM_ENGINE_READY_TIMEOUT_S"} & set(made)


def test_every_cache_lies_where_any_user_may_write() -> None:
    made = pod(templated(securityContext={"runAsNonRoot": True, "runAsUser": 65532}))
    folders = [
        value
        for name, value in env(made).items()
        if name.endswith(("_HOME", "_DIR", "_ROOT", "_PATH", "_BASE")) and isinstance(value, str)
    ]
    assert len(folders) >= 8
    assert all(folder.startswith("/var/cache/kintsugi/") for folder in folders)
    assert mounts(made)["/var/cache/kintsugi"] == "caches"
    assert {"name": "caches", "emptyDir": {}} in made["spec"]["volumes"]
    assert not any(path.startswith("/root") for path in [*mounts(made), *folders])


def test_a_claim_for_the_hubs_cache_is_used_and_needs_no_home_directory() -> None:
    hub = {"hub": {"cache": {"claimName": "hf", "subPath": "a"}}}
    made = pod({"model": {"id": PRO, "source": hub}})
    assert env(made)["HF_HOME"] == "/var/cache/huggingface"
    assert {"name": "hub-cache", "mountPath": "/var/cache/huggingface", "subPath": "a"} in container(made)[
        "volumeMounts"
    ]


def test_a_read_only_root_leaves_the_engine_its_temporary_files() -> None:
    read_only = {"securityContext": {"readOnlyRootFilesystem": True}}
    made = pod(templated(read_only))
    assert mounts(made)["/tmp"] == "tmp"
    assert {"name": "tmp", "emptyDir": {}} in made["spec"]["volumes"]
    assert "/tmp" not in mounts(pod({}))
    valid(made)


def test_a_mount_of_the_users_for_temporary_files_is_the_only_one() -> None:
    mine = {
        "securityContext": {"readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "t", "mountPath": "/tmp/"}],
    }
    made = pod(templated(mine, volumes=[{"name": "t", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]))
    assert [name for path, name in mounts(made).items() if path.rstrip("/") == "/tmp"] == ["t"]
    valid(made)


def test_pods_are_always_brought_back_and_get_no_account_of_the_cluster() -> None:
    made = pod({})["spec"]
    assert (made["restartPolicy"], made["automountServiceAccountToken"]) == ("Always", False)


def test_no_variable_is_there_twice_whoever_says_it() -> None:
    everything = [{"name": name, "value": "mine"} for name in env(pod({"model": {"id": PRO, **PVC}}))]
    made = pod({"model": {"id": PRO, **PVC}, "engine": {"env": everything}})
    assert container(made)["env"] == everything


def test_amds_gpus_have_amds_resource_taint_and_image() -> None:
    made = pod({"hardware": {"gpu": "MI355X", "gpusPerInstance": 8}})
    assert container(made)["resources"]["limits"] == {"amd.com/gpu": "8"}
    assert [toleration["key"] for toleration in made["spec"]["tolerations"]] == ["amd.com/gpu"]
    assert "rocm" in container(made)["image"]
    named = pod({"hardware": {"gpu": "MI355X", "gpusPerInstance": 8, "resourceName": "mine/gpu"}})
    assert container(named)["resources"]["limits"] == {"mine/gpu": "8"}
