"""Deployments that people published, as DeepSeekV4Deployments: each passes preflight and loses nothing on its way."""

import json
import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from kintsugi.api.effective import Pool, pools_of
from kintsugi.api.objects import DeepSeekV4Deployment, parse_deployment
from kintsugi.core.command.argument import Argument, Command
from kintsugi.core.command.read import read_words
from kintsugi.core.preflight.check import check
from kintsugi.core.render import leader_worker_set, replica_set
from tests.unit.pod.pods import KUBERNETES, container, missing, valid

Json = dict[str, Any]

HERE = Path(__file__).parent
REAL = HERE.parents[2] / "examples" / "real"
ORIGINALS: Json = yaml.safe_load((HERE / "originals.yaml").read_text())
CASES = [(name, pool) for name, pools in ORIGINALS.items() for pool in pools]
ALL_NODES = "all"


def raw(name: str) -> Json:
    document: Json = yaml.safe_load((REAL / f"{name}.yaml").read_text())
    return document


def read(name: str) -> DeepSeekV4Deployment:
    return parse_deployment(raw(name))


def pool_of(name: str, pool: str) -> Pool:
    return next(p for p in pools_of(read(name).spec) if p.name == pool)


def document(name: str, pool: str) -> Json:
    """The pool's ReplicaSet or LeaderWorkerSet."""
    found = pool_of(name, pool)
    several = (found.hardware.nodes_per_instance or 1) > 1
    render = leader_worker_set if several else replica_set
    return render(read(name), "d-uid", found, "r1", found.replicas)


def templates(name: str, pool: str) -> dict[str, Json]:
    """The pod templates of one pool by role."""
    spec = document(name, pool)["spec"]
    if "template" in spec:
        return {"leader": spec["template"]}
    group = spec["leaderWorkerTemplate"]
    return {"leader": group["leaderTemplate"], "worker": group["workerTemplate"]}


def understood(words: list[str]) -> Command:
    return Command(read_words(words, lambda index: f"[{index}]"))


def plain(argument: Argument) -> Any:
    """The value as the engine reads it: numbers by value, JSON by content."""
    value = argument.value
    if value is None or value.lower() in ("true", "false"):
        return (value or "true").lower()
    try:
        return json.loads(value)
    except ValueError:
        return argument.values


def test_every_example_has_its_original_and_every_original_its_example() -> None:
    assert sorted(path.stem for path in REAL.glob("*.yaml")) == sorted(ORIGINALS)
    assert len(ORIGINALS) == 14


@pytest.mark.parametrize("name", ORIGINALS)
def test_it_says_what_it_mirrors_and_passes_preflight_without_an_error(name: str) -> None:
    text = (REAL / f"{name}.yaml").read_text()
    assert text.startswith("# ")
    assert "# Mirrors: " in text
    assert "# Notable: " in text
    assert [finding for finding in check(raw(name)) if finding.severity == "Error"] == []


@pytest.mark.parametrize("name", ORIGINALS)
def test_its_pools_are_those_of_the_original(name: str) -> None:
    assert [pool.name for pool in pools_of(read(name).spec)] == list(ORIGINALS[name])


@pytest.mark.parametrize(("name", "pool"), CASES)
def test_every_argument_of_the_original_reaches_the_engine(name: str, pool: str) -> None:
    rendered = understood(container(templates(name, pool)["leader"])["args"])
    for argument in understood(shlex.split(ORIGINALS[name][pool]["args"])).arguments:
        found = rendered.get(argument.flag)
        if found is None and "." in argument.flag:  # one field of a JSON argument
            whole, _, field = argument.flag.partition(".")
            assert json.loads(str(getattr(rendered.get(whole), "value", "{}")))[field] == argument.value
            continue
        assert found is not None, argument.flag
        assert plain(found) == plain(argument), argument.flag


@pytest.mark.parametrize(("name", "pool"), CASES)
def test_every_variable_of_the_original_is_there_once_and_in_its_order(name: str, pool: str) -> None:
    wanted = ORIGINALS[name][pool]["env"].split()
    for template in templates(name, pool).values():
        entries = container(template)["env"]
        names = [entry["name"] for entry in entries]
        assert len(names) == len(set(names))
        assert [one for one in names if one in wanted] == wanted
        values = {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries}
        said = ORIGINALS[name][pool].get("values", {})
        assert {key: values[key] for key in said} == said


@pytest.mark.parametrize(("name", "pool"), CASES)
def test_containers_and_pods_have_what_the_original_gives_them(name: str, pool: str) -> None:
    original, found = ORIGINALS[name][pool], templates(name, pool)
    for role, template in found.items():
        serves = role == "leader" or original.get("serves") == ALL_NODES
        wanted = {k: v for k, v in original["engine"].items() if serves or "Probe" not in k}
        assert missing(wanted, container(template), "containers") == []
        assert missing(original.get(role, {}), container(template), "containers") == []
        assert missing(original["pod"], template["spec"]) == []
        assert missing(original.get("labels", {}), template["metadata"]["labels"]) == []
        assert missing(original.get("annotations", {}), template["metadata"].get("annotations", {})) == []
        shell = "\n".join(container(template).get("command", []))
        assert [part for part in original.get("command", ()) if part not in shell] == []
        assert original.get("no_volume") not in [volume["name"] for volume in template["spec"]["volumes"]]
    assert document(name, pool)["spec"]["replicas"] == original.get("replicas", pool_of(name, pool).replicas)


@pytest.mark.parametrize(("name", "pool"), CASES)
def test_all_that_the_example_writes_about_its_pods_is_in_them(name: str, pool: str) -> None:
    found = pool_of(name, pool)
    for role, template in templates(name, pool).items():
        own = found.leader_templates if role == "leader" else found.worker_templates
        lists = (found.pod_templates, own) if "worker" in templates(name, pool) else (found.pod_templates,)
        for written in (one for each in lists for one in each):
            assert missing(written, template) == []
        engine = container(template)
        words = list(found.engine.extra_args)
        assert engine["args"][len(engine["args"]) - len(words) :] == words
        if found.engine.resources:
            assert missing(found.engine.resources.dump(), engine["resources"]) == []


@pytest.mark.parametrize(("name", "pool"), CASES)
def test_kubernetes_takes_its_pods(name: str, pool: str) -> None:
    for template in templates(name, pool).values():
        valid(template)
    made = document(name, pool)
    if made["kind"] == "ReplicaSet":
        kubernetes_validate.validate(made, KUBERNETES, strict=True)
    else:
        assert made["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
        assert made["spec"]["leaderWorkerTemplate"]["size"] == ORIGINALS[name][pool]["nodes"]


def test_eight_networks_stand_in_the_annotation_of_the_ray_group() -> None:
    original = ORIGINALS["09-r1-ray-rdma"]["main"]
    for template in templates("09-r1-ray-rdma", "main").values():
        networks = json.loads(template["metadata"]["annotations"][original["json_annotation"]])
        assert networks == [{"cniConf": {"name": "rdma"}}] * 8


def test_the_offload_of_the_three_node_instance_is_the_originals() -> None:
    original = ORIGINALS["11-pro-3x8-h100"]["main"]["kv_connector"]
    said = understood(container(templates("11-pro-3x8-h100", "main")["leader"])["args"]).get(
        "--kv-transfer-config"
    )
    assert said is not None
    config = json.loads(str(said.value))
    assert config["kv_connector"] == original["kv_connector"]
    assert config["kv_connector_extra_config"]["cpu_bytes_to_use"] == original["bytes"]
