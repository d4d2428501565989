"""`engine.telemetry`: our package beside a stock engine, and the arguments that switch it on."""

import json
from typing import Any

import pytest

from kintsugi.api.effective import pools_of
from kintsugi.core.pod import telemetry
from kintsugi.core.render import replica_set
from kintsugi.core.revision import revision_of
from kintsugi_engine import contract
from tests.unit.pod.pods import container, deployment, env, group, pod, valid

IMAGE = "registry.corp/kintsugi/operator:1"
OURS = {
    "kv_connector": contract.TELEMETRY_CONNECTOR,
    "kv_connector_module_path": contract.TELEMETRY_MODULE,
    "kv_role": contract.TELEMETRY_ROLE,
}
OF_USER = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'


def laid(spec: dict[str, Any]) -> dict[str, Any]:
    """The pod that an operator makes that knows its image, as in a cluster."""
    return pod(spec, operator_image=IMAGE)


def transfer(template: dict[str, Any]) -> Any:
    """The value of `--kv-transfer-config`, None without."""
    args = container(template)["args"]
    flag = "--kv-transfer-config"
    return json.loads(args[args.index(flag) + 1]) if flag in args else None


def test_a_stock_image_gets_the_package_and_the_arguments() -> None:
    made = laid({"engine": {"extraArgs": ["--seed", "1"]}})
    valid(made)
    (init,) = made["spec"]["initContainers"]
    assert (init["image"], init["command"]) == (IMAGE, ["kintsugi-engine", "inject", telemetry.PATH])
    assert init["volumeMounts"][0]["name"] in {volume["name"] for volume in made["spec"]["volumes"]}
    assert env(made)["PYTHONPATH"] == telemetry.PATH
    assert transfer(made) == OURS
    args = container(made)["args"]
    assert args[args.index("--middleware") + 1] == "kintsugi_engine.compaction.Endpoint"
    assert "--no-disable-hybrid-kv-cache-manager" in args
    assert args[-2:] == ["--seed", "1"], "what the user wrote comes last"


def test_without_an_image_to_take_it_from_nothing_is_added() -> None:
    made = pod({})
    assert "initContainers" not in made["spec"]
    assert transfer(made) is None


@pytest.mark.parametrize(
    "engine",
    [
        {"telemetry": "Disabled"},
        {"command": ["kintsugi", "simulate-engine"]},
        {"runtime": "Native", "image": "registry.corp/native:1"},
    ],
)
def test_nothing_is_laid_on_where_it_is_not_wanted_or_there_already(engine: dict[str, Any]) -> None:
    made = laid({"engine": engine})
    assert "initContainers" not in made["spec"]
    assert transfer(made) is None


def test_an_image_that_has_it_only_gets_the_arguments() -> None:
    made = laid({"engine": {"telemetry": "Image"}})
    assert "initContainers" not in made["spec"]
    assert "PYTHONPATH" not in env(made)
    assert transfer(made) == OURS


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ({"extraArgs": ["--kv-transfer-config", OF_USER]}, "the user's own connector stays as it is"),
        ({"extraArgs": ["--kv-transfer-config.kv_connector=NixlConnector"]}, "in any spelling"),
        ({"extraArgs": ["--disable-log-stats"]}, "there is no page to show it on"),
        ({"version": "0.19.1"}, "an old release hands out no block pool"),
    ],
)
def test_the_command_stays_where_the_telemetry_can_not_be_switched_on(
    engine: dict[str, Any], why: str
) -> None:
    args = container(laid({"engine": engine}))["args"]
    assert args == container(pod({"engine": engine}))["args"], why


def test_kv_in_host_memory_and_the_telemetry_stand_side_by_side() -> None:
    made = laid({"engine": {"kvOffload": {"hostMemoryPerEngine": "8Gi"}}})
    assert "--kv-offloading-size" not in container(made)["args"]
    assert container(made)["args"].count("--kv-transfer-config") == 1
    beside = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": 8 * 2**30},
    }
    assert transfer(made) == {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": [beside, OURS]},
    }
    assert container(made)["args"].count("--no-disable-hybrid-kv-cache-manager") == 1


def test_folders_of_the_users_stay_in_front() -> None:
    plain = laid({"engine": {"env": [{"name": "PYTHONPATH", "value": "/plugins"}]}})
    assert env(plain)["PYTHONPATH"] == f"/plugins:{telemetry.PATH}"
    elsewhere = {"configMapKeyRef": {"name": "paths", "key": "python"}}
    template = {
        "spec": {"containers": [{"name": "engine", "env": [{"name": "PYTHONPATH", "valueFrom": elsewhere}]}]}
    }
    made = laid({"podTemplate": template})
    valid(made)
    assert env(made)["KINTSUGI_USER_PYTHONPATH"] == elsewhere
    assert env(made)["PYTHONPATH"] == f"$(KINTSUGI_USER_PYTHONPATH):{telemetry.PATH}"
    names = [variable["name"] for variable in container(made)["env"]]
    assert names.index("KINTSUGI_USER_PYTHONPATH") < names.index("PYTHONPATH")


def test_every_node_of_a_group_has_the_same_connector_and_one_has_the_path() -> None:
    made = group(
        {"hardware": {"gpu": "H200", "gpusPerInstance": 8, "nodesPerInstance": 2}}, operator_image=IMAGE
    )
    leader, worker = made["leaderTemplate"], made["workerTemplate"]
    assert transfer(leader) == transfer(worker) == OURS
    assert "--middleware" in container(leader)["args"]
    assert "--middleware" not in container(worker)["args"]
    assert len(worker["spec"]["initContainers"]) == 1


def test_init_containers_of_the_users_run_first_and_one_of_the_same_name_wins() -> None:
    own = {"name": "fetch", "image": "a:1"}
    made = laid({"podTemplate": {"spec": {"initContainers": [own]}}})
    assert [each["name"] for each in made["spec"]["initContainers"]] == ["fetch", telemetry.CONTAINER]


def test_an_entry_point_in_a_pod_template_counts_as_one_of_the_users() -> None:
    template = {"spec": {"containers": [{"name": "engine", "command": ["kintsugi", "simulate-engine"]}]}}
    made = laid({"podTemplate": template})
    assert "initContainers" not in made["spec"]
    assert transfer(made) is None


def test_an_entry_point_of_the_users_gets_it_where_it_is_asked_for() -> None:
    made = laid(
        {"engine": {"command": ["/bin/bash", "-c", 'exec vllm serve "$@"', "--"], "telemetry": "Auto"}}
    )
    assert transfer(made) == OURS
    assert len(made["spec"]["initContainers"]) == 1


@pytest.mark.parametrize("telemetry_said", [{}, {"telemetry": "Auto"}], ids=["default", "asked for"])
@pytest.mark.parametrize(
    "release",
    [
        {"image": "vllm/vllm-openai:nightly"},
        {"image": "registry.corp/vllm@sha256:" + "0" * 64},
        {"image": "registry.corp/vllm"},
        {"version": "0.34.0"},
        {"version": "1.0.0"},
        {"version": "0.19.1"},
        {"image": "registry.corp/vllm:v99.1"},
    ],
    ids=str,
)
def test_an_engine_that_might_not_know_the_flags_is_left_as_it_is(
    release: dict[str, Any], telemetry_said: dict[str, Any]
) -> None:
    spec = {"engine": release | telemetry_said}
    assert laid(spec) == pod(spec)


@pytest.mark.parametrize(
    "release",
    [
        {"image": "registry.corp/vllm:prod", "version": "0.32.0"},
        {"image": "vllm/vllm-openai:v0.20.0"},
        {"image": "vllm/vllm-openai:v0.33.1-cu129"},
    ],
    ids=str,
)
def test_a_release_that_is_known_by_its_tag_or_the_users_word_gets_it(release: dict[str, Any]) -> None:
    made = laid({"engine": release})
    assert transfer(made) == OURS
    assert len(made["spec"]["initContainers"]) == 1


@pytest.mark.parametrize("release", [{"image": "vllm/vllm-openai:nightly"}, {"version": "0.99.0"}], ids=str)
def test_a_release_that_is_not_known_gets_it_where_the_user_forces_it(release: dict[str, Any]) -> None:
    made = laid({"engine": release | {"env": [{"name": contract.TELEMETRY_VARIABLE, "value": "Force"}]}})
    assert transfer(made) == OURS
    assert len(made["spec"]["initContainers"]) == 1


def test_an_image_that_is_said_to_have_it_gets_the_arguments_whatever_its_tag() -> None:
    made = pod({"engine": {"telemetry": "Image", "image": "registry.corp/kintsugi-vllm:prod"}})
    assert transfer(made) == OURS


def test_no_pod_moves_for_it() -> None:
    body = {"engine": {"image": "vllm/vllm-openai:nightly"}}
    spec = deployment(body).spec
    names = {
        replica_set(deployment(body), "d-uid", pool, revision_of(spec, None), 1, operator_image=image)[
            "metadata"
        ]["name"]
        for pool in pools_of(spec)
        for image in ("", IMAGE)
    }
    assert len(names) == 1
