"""The children of a deployment as whole objects: the golden files are the review of a change."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kintsugi.api.effective import pools_of
from kintsugi.api.objects import DeepSeekV4Deployment, parse_deployment
from kintsugi.core.accept import problems_of_spec
from kintsugi.core.children import children
from kintsugi.core.plan import Apply, Delete
from kintsugi.core.render import disruption_budget, replica_set, service
from kintsugi.core.revision import revision_of
from tests.unit.core.decision.made import MODEL, pools, spec
from tests.unit.core.decision.world import World, running_world

GOLDEN = Path(__file__).parent / "golden"

TWO_POOLS = {
    "model": MODEL
    | {
        "servedNames": ["deepseek-v4"],
        "source": {"pvc": {"claimName": "models", "subPath": "v4-flash"}},
        "loraAdapters": [{"name": "law", "path": "/models/law"}],
    },
    "engine": {
        "image": "registry.local/engine:1",
        "args": {"gpuMemoryUtilization": 0.9, "enableExpertParallel": True, "enforceEager": False},
        "apiKeySecretRef": {"name": "keys", "key": "token"},
        "shm": {"size": "32Gi"},
        "extraArgs": ["--no-such-flag=a b"],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
    },
    "hardware": {"gpu": "H200", "gpusPerInstance": 4},
    "pools": [
        {"name": "short", "replicas": 4, "profile": "HighThroughput", "context": {"maxTokens": 8192}},
        {
            "name": "long",
            "replicas": 1,
            "profile": "LongContext",
            "context": {"maxTokens": 1048576},
            "engine": {"env": [{"name": "B", "value": "3"}], "args": {"maxNumSeqs": 8}},
            "hardware": {"gpusPerInstance": 8},
            "podTemplate": {"spec": {"priorityClassName": "high"}},
        },
    ],
    "podTemplate": {
        "metadata": {"annotations": {"team": "search"}},
        "spec": {
            "containers": [
                {
                    "name": "engine",
                    "volumeMounts": [{"name": "models", "mountPath": "/extra", "subPath": "extra"}],
                },
                {"name": "sidecar", "image": "registry.local/sidecar:1"},
            ]
        },
    },
}


def deployment(body: dict[str, Any]) -> DeepSeekV4Deployment:
    return parse_deployment(
        {"metadata": {"name": "chat", "namespace": "llm", "uid": "d-uid", "generation": 1}, "spec": body}
    )


def rendered(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Every child, in the order of the pools."""
    made = deployment(body)
    written = {pool.name: pool for pool in made.spec.pools}
    out = []
    for pool in pools_of(made.spec):
        revision = revision_of(made.spec, written.get(pool.name))
        out.append(replica_set(made, "d-uid", pool, revision, pool.replicas))
        out.append(service(made, "d-uid", pool.name))
        if pool.replicas > 1:
            out.append(disruption_budget(made, "d-uid", pool.name))
    return out


def pod(body: dict[str, Any], index: int = 0) -> Any:
    sets = [child for child in rendered(body) if child["kind"] == "ReplicaSet"]
    return sets[index]["spec"]["template"]


def engine(body: dict[str, Any], index: int = 0) -> Any:
    return next(c for c in pod(body, index)["spec"]["containers"] if c["name"] == "engine")


GOLDEN_SPECS: dict[str, dict[str, Any]] = {"minimal": {"model": MODEL}, "two_pools": TWO_POOLS}


@pytest.mark.parametrize(("name", "body"), GOLDEN_SPECS.items())
def test_the_children_are_those_of_the_golden_file(name: str, body: dict[str, Any]) -> None:
    """After a wanted change, run `python -m tests.unit.pod.write_golden` and read the diff."""
    expected = list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text()))
    assert rendered(body) == expected


def test_no_pod_gets_service_links_or_a_liveness_probe() -> None:
    for index in (0, 1):
        assert pod(TWO_POOLS, index)["spec"]["enableServiceLinks"] is False
        assert "livenessProbe" not in engine(TWO_POOLS, index)


def test_no_service_is_named_so_that_a_variable_of_the_engine_is_injected() -> None:
    names = [child["metadata"]["name"] for child in rendered(TWO_POOLS) if child["kind"] == "Service"]
    assert names == ["chat-short", "chat-long"]
    assert not any(name == "vllm" for name in names)


def test_the_replica_set_selects_members_and_everything_else_what_is_in_rotation() -> None:
    made = {(c["kind"], c["metadata"]["name"]): c for c in rendered(TWO_POOLS)}
    owner = next(c for (kind, _), c in made.items() if kind == "ReplicaSet")
    selector = owner["spec"]["selector"]["matchLabels"]
    labels = owner["spec"]["template"]["metadata"]["labels"]
    assert selector["kintsugi.dev/member"] == "true"
    assert "kintsugi.dev/rotation" not in selector
    assert selector.items() <= labels.items()
    for kind in ("Service", "PodDisruptionBudget"):
        spec_ = made[kind, "chat-short"]["spec"]
        chosen = spec_["selector"] if kind == "Service" else spec_["selector"]["matchLabels"]
        assert chosen["kintsugi.dev/rotation"] == "in"
        assert "kintsugi.dev/member" not in chosen
        assert chosen.items() <= labels.items()


def test_every_child_is_controlled_by_the_deployment_and_blocks_nobody() -> None:
    for child in rendered(TWO_POOLS):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("d-uid", True, False)


def test_only_a_pool_of_more_than_one_has_a_disruption_budget() -> None:
    budgets = [c["metadata"]["name"] for c in rendered(TWO_POOLS) if c["kind"] == "PodDisruptionBudget"]
    assert budgets == ["chat-short"]


def test_the_grace_period_outlasts_pre_stop_drain_and_shutdown() -> None:
    body = spec(2, healing={"drain": {"timeoutSeconds": 900}})
    sleeps = engine(body)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod(body)["spec"]["terminationGracePeriodSeconds"] > sleeps + 900


def test_gpus_are_limits_and_a_pool_may_have_its_own_number() -> None:
    assert engine(TWO_POOLS, 0)["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert engine(TWO_POOLS, 1)["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert "resources" not in engine(spec(1, hardware={"gpusPerInstance": 0}))["resources"]


def test_variables_of_a_pool_win_by_name() -> None:
    env = {e["name"]: e.get("value") for e in engine(TWO_POOLS, 1)["env"]}
    assert (env["A"], env["B"]) == ("1", "3")


def test_extra_arguments_come_last_byte_for_byte() -> None:
    assert engine(TWO_POOLS)["args"][-1] == "--no-such-flag=a b"


def test_pod_templates_are_laid_over_containers_by_name_and_mounts_by_path() -> None:
    template = pod(TWO_POOLS, 1)
    assert [c["name"] for c in template["spec"]["containers"]] == ["engine", "sidecar"]
    assert template["spec"]["priorityClassName"] == "high"
    assert template["metadata"]["annotations"] == {"team": "search"}
    paths = [m["mountPath"] for m in engine(TWO_POOLS, 1)["volumeMounts"]]
    assert paths == ["/dev/shm", "/var/cache/kintsugi", "/models", "/extra"]


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"metadata": {"labels": {"kintsugi.dev/pool": "x"}}}, "metadata.labels[kintsugi.dev/pool]"),
        ({"metadata": {"labels": {"kintsugi.dev/rotation": None}}}, "metadata.labels[kintsugi.dev/rotation]"),
        ({"metadata": {"labels": None}}, "metadata.labels"),
        ({"metadata": None}, "metadata"),
        ({"metadata": {"name": "x"}}, "metadata.name"),
        ({"metadata": {"ownerReferences": []}}, "metadata.ownerReferences"),
        (
            {"metadata": {"annotations": {"kintsugi.dev/attempt": "x"}}},
            "metadata.annotations[kintsugi.dev/attempt]",
        ),
        ({"spec": None}, "spec"),
        ({"spec": {"restartPolicy": "Never"}}, "spec.restartPolicy"),
        ({"spec": {"containers": None}}, "spec.containers"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers"),
        ({"spec": {"containers": [{"name": "engine", "image": "x"}]}}, "spec.containers[0].image"),
        ({"spec": {"containers": [{"name": "engine", "args": []}]}}, "spec.containers[0].args"),
        ({"spec": {"containers": [{"name": "engine", "ports": None}]}}, "spec.containers[0].ports"),
        (
            {"spec": {"containers": [{"name": "engine", "ports": [{"name": "http"}]}]}},
            "spec.containers[0].ports",
        ),
        (
            {"spec": {"containers": [{"name": "engine", "ports": [{"name": "http", "containerPort": 9}]}]}},
            "spec.containers[0].ports[0]",
        ),
        (
            {"spec": {"containers": [{"name": "engine", "ports": [{"containerPort": 8000}]}]}},
            "spec.containers[0].ports[0]",
        ),
    ],
)
@pytest.mark.parametrize("where", ["deployment", "pool"])
def test_a_field_of_the_operators_is_refused_by_its_name(
    template: dict[str, Any], path: str, where: str
) -> None:
    body = spec(2)
    if where == "pool":
        body["pools"][0]["podTemplate"] = template
    else:
        body["podTemplate"] = template
    at = "spec.pools[0].podTemplate" if where == "pool" else "spec.podTemplate"
    assert [p.path for p in problems_of_spec(deployment(body).spec)] == [f"{at}.{path}"]


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"spec": {"nodeSelector": {"gpu": "h200"}}},
        {"spec": {"containers": [{"name": "engine", "securityContext": {}}, {"name": "b", "image": "c"}]}},
        {"spec": {"containers": [{"name": "engine", "ports": [{"name": "metrics", "containerPort": 9000}]}]}},
        {"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}},
    ],
)
def test_everything_else_in_a_pod_template_is_the_users(template: dict[str, Any]) -> None:
    body = spec(2, podTemplate=template)
    assert problems_of_spec(deployment(body).spec) == ()
    assert engine(body)["args"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"model": {"id": "someone/else"}}, "spec.hardware.gpusPerInstance"),
        (spec(1, hardware={"gpusPerInstance": 1, "nodesPerInstance": 2}), "spec.hardware.nodesPerInstance"),
        (spec(1, engine={"runtime": "Native"}), "spec.pools[0].engine.image"),
    ],
)
def test_a_spec_that_this_version_cannot_run_is_refused_by_field(body: dict[str, Any], path: str) -> None:
    assert any(path in str(problem) for problem in problems_of_spec(deployment(body).spec))


def test_a_quiet_pass_applies_no_child_and_a_changed_one_is_brought_back() -> None:
    world = running_world(spec(2))
    snapshot = world.snapshot()
    wanted = pools_of(snapshot.deployment.spec)
    assert children(snapshot, wanted) == ()
    world.children["Service", "chat-main"]["spec"]["selector"] = {"app": "mine"}
    (again,) = children(world.snapshot(), wanted)
    assert isinstance(again, Apply)
    assert again.manifest["kind"] == "Service"


def test_what_others_add_to_a_child_is_left_alone() -> None:
    world = running_world(spec(2))
    found = world.children["Service", "chat-main"]
    found["metadata"]["annotations"] = {"mesh": "on"}
    found["spec"]["clusterIP"] = "10.0.0.7"
    found["spec"]["ports"][0]["protocol"] = "TCP"
    assert children(world.snapshot(), pools_of(world.snapshot().deployment.spec)) == ()


def test_a_disruption_budget_goes_where_a_pool_shrinks_to_one() -> None:
    world = running_world(spec(2))
    world.spec["pools"] = pools(main=1)
    found = children(world.snapshot(), pools_of(world.snapshot().deployment.spec))
    assert [(a.kind, a.name) for a in found if isinstance(a, Delete)] == [
        ("PodDisruptionBudget", "chat-main")
    ]


def test_nothing_is_decided_about_children_that_were_not_read() -> None:
    world = World(spec(2))
    snapshot = world.snapshot()
    assert snapshot.children == ()
    unread = replace(snapshot, children=None)
    assert children(unread, pools_of(snapshot.deployment.spec)) == ()
