"""`engine.telemetry`: our package beside a stock engine, and the arguments that switch it on."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kintsugi.core.pod import telemetry
from kintsugi_engine import contract
from tests.unit.pod.pods import container, env, group, pod, valid

IMAGE = "registry.corp/kintsugi/operator:1"
OURS = {
    "kv_connector": contract.TELEMETRY_CONNECTOR,
    "kv_connector_module_path": contract.TELEMETRY_MODULE,
    "kv_role": contract.TELEMETRY_ROLE,
}
OF_USER = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'


@pytest.fixture
def _adopted() -> Iterator[None]:
    """The operator knows its image, as in a cluster."""
    telemetry.adopt(IMAGE)
    yield
    telemetry.adopt("")


def transfer(template: dict[str, Any]) -> Any:
    """The value of `--kv-transfer-config`, None without."""
    args = container(template)["args"]
    flag = "--kv-transfer-config"
    return json.loads(args[args.index(flag) + 1]) if flag in args else None


@pytest.mark.usefixtures("_adopted")
def test_a_stock_image_gets_the_package_and_the_arguments() -> None:
    made = pod({"engine": {"extraArgs": ["--seed", "1"]}})
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


@pytest.mark.usefixtures("_adopted")
@pytest.mark.parametrize(
    "engine",
    [
        {"telemetry": "Disabled"},
        {"command": ["kintsugi", "simulate-engine"]},
        {"runtime": "Native", "image": "registry.corp/native:1"},
    ],
)
def test_nothing_is_laid_on_where_it_is_not_wanted_or_there_already(engine: dict[str, Any]) -> None:
    made = pod({"engine": engine})
    assert "initContainers" not in made["spec"]
    assert transfer(made) is None


def test_an_image_that_has_it_only_gets_the_arguments() -> None:
    made = pod({"engine": {"telemetry": "Image"}})
    assert "initContainers" not in made["spec"]
    assert "PYTHONPATH" not in env(made)
    assert transfer(made) == OURS


@pytest.mark.usefixtures("_adopted")
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
    args = container(pod({"engine": engine}))["args"]
    telemetry.adopt("")
    assert args == container(pod({"engine": engine}))["args"], why


@pytest.mark.usefixtures("_adopted")
def test_kv_in_host_memory_and_the_telemetry_stand_side_by_side() -> None:
    made = pod({"engine": {"kvOffload": {"hostMemoryPerEngine": "8Gi"}}})
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


@pytest.mark.usefixtures("_adopted")
def test_folders_of_the_users_stay_in_front() -> None:
    plain = pod({"engine": {"env": [{"name": "PYTHONPATH", "value": "/plugins"}]}})
    assert env(plain)["PYTHONPATH"] == f"/plugins:{telemetry.PATH}"
    elsewhere = {"configMapKeyRef": {"name": "paths", "key": "python"}}
    template = {
        "spec": {"containers": [{"name": "engine", "env": [{"name": "PYTHONPATH", "valueFrom": elsewhere}]}]}
    }
    made = pod({"podTemplate": template})
    valid(made)
    assert env(made)["KINTSUGI_USER_PYTHONPATH"] == elsewhere
    assert env(made)["PYTHONPATH"] == f"$(KINTSUGI_USER_PYTHONPATH):{telemetry.PATH}"
    names = [variable["name"] for variable in container(made)["env"]]
    assert names.index("KINTSUGI_USER_PYTHONPATH") < names.index("PYTHONPATH")


@pytest.mark.usefixtures("_adopted")
def test_every_node_of_a_group_has_the_same_connector_and_one_has_the_path() -> None:
    made = group({"hardware": {"gpu": "H200", "gpusPerInstance": 8, "nodesPerInstance": 2}})
    leader, worker = made["leaderTemplate"], made["workerTemplate"]
    assert transfer(leader) == transfer(worker) == OURS
    assert "--middleware" in container(leader)["args"]
    assert "--middleware" not in container(worker)["args"]
    assert len(worker["spec"]["initContainers"]) == 1


@pytest.mark.usefixtures("_adopted")
def test_init_containers_of_the_users_run_first_and_one_of_the_same_name_wins() -> None:
    own = {"name": "fetch", "image": "a:1"}
    made = pod({"podTemplate": {"spec": {"initContainers": [own]}}})
    assert [each["name"] for each in made["spec"]["initContainers"]] == ["fetch", telemetry.CONTAINER]


@pytest.mark.usefixtures("_adopted")
def test_an_entry_point_in_a_pod_template_counts_as_one_of_the_users() -> None:
    template = {"spec": {"containers": [{"name": "engine", "command": ["kintsugi", "simulate-engine"]}]}}
    made = pod({"podTemplate": template})
    assert "initContainers" not in made["spec"]
    assert transfer(made) is None


@pytest.mark.usefixtures("_adopted")
def test_an_entry_point_of_the_users_gets_it_where_it_is_asked_for() -> None:
    made = pod(
        {"engine": {"command": ["/bin/bash", "-c", 'exec vllm serve "$@"', "--"], "telemetry": "Auto"}}
    )
    assert transfer(made) == OURS
    assert len(made["spec"]["initContainers"]) == 1
