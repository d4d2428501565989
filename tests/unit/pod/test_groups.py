"""Instances of several nodes: one LeaderWorkerSet, whose golden file is the review of a change."""

from pathlib import Path
from typing import Any

import yaml

from kintsugi.api.effective import pools_of
from kintsugi.core.render import leader_worker_set
from kintsugi.core.revision import revision_of
from tests.unit.pod.pods import PRO, container, deployment, group, valid

GOLDEN = Path(__file__).parent / "golden" / "group.yaml"
SPEC: dict[str, Any] = {
    "model": {"id": PRO, "source": {"pvc": {"claimName": "models"}}},
    "engine": {"image": "vllm/vllm-openai:v0.33.0"},
    "hardware": {"gpu": "H100", "gpusPerInstance": 8, "nodesPerInstance": 2},
}


def document() -> dict[str, Any]:
    made = deployment(SPEC)
    return leader_worker_set(made, "d-uid", pools_of(made.spec)[0], revision_of(made.spec, None), 3)


def words(role: str, spec: dict[str, Any]) -> list[str]:
    found: list[str] = container(group(spec)[f"{role}Template"])["args"]
    return found


def test_the_group_is_that_of_the_golden_file() -> None:
    """After a wanted change, run `python -m tests.unit.pod.write_golden` and read the diff."""
    assert document() == yaml.safe_load(GOLDEN.read_text())


def test_both_kinds_of_pods_are_ones_that_kubernetes_takes() -> None:
    for role in ("leader", "worker"):
        valid(group(SPEC)[f"{role}Template"])


def test_the_group_has_as_many_pods_as_nodes_and_lives_and_dies_as_one() -> None:
    made = document()["spec"]
    assert made["replicas"] == 3
    assert made["leaderWorkerTemplate"]["size"] == 2
    assert made["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    own = {**SPEC, "hardware": {**SPEC["hardware"], "groupRestartPolicy": "None"}}
    assert group(own)["restartPolicy"] == "None"


def test_workers_join_the_leader_and_answer_no_requests() -> None:
    leader, worker = group(SPEC)["leaderTemplate"], group(SPEC)["workerTemplate"]
    assert "--headless" in words("worker", SPEC)
    assert "--headless" not in words("leader", SPEC)
    for role, rank in (("leader", "0"), ("worker", "$(LWS_WORKER_INDEX)")):
        said = words(role, SPEC)
        assert said[said.index("--node-rank") + 1] == rank
        assert said[said.index("--master-addr") + 1] == "$(LWS_LEADER_ADDRESS)"
    assert leader["metadata"]["labels"]["kintsugi.dev/rotation"] == "in"
    assert "kintsugi.dev/rotation" not in worker["metadata"]["labels"]
    assert not {"ports", "readinessProbe", "startupProbe"} & set(container(worker))


def test_templates_of_leader_and_workers_are_laid_over_that_of_both() -> None:
    def mark(value: str) -> dict[str, Any]:
        return {"metadata": {"annotations": {"mark": value}}, "spec": {"priorityClassName": value}}

    spec = SPEC | {
        "podTemplate": mark("both") | {"metadata": {"labels": {"team": "a"}}},
        "workerPodTemplate": mark("worker"),
        "pools": [{"name": "p", "leaderPodTemplate": {"spec": {"priorityClassName": "leader-of-p"}}}],
    }
    leader, worker = group(spec)["leaderTemplate"], group(spec)["workerTemplate"]
    assert leader["spec"]["priorityClassName"] == "leader-of-p"
    assert worker["spec"]["priorityClassName"] == "worker"
    assert leader["metadata"]["labels"]["team"] == worker["metadata"]["labels"]["team"] == "a"
    assert "annotations" not in leader["metadata"]


def test_users_who_form_the_group_themselves_get_no_words_of_the_operators() -> None:
    """Every node of a hybrid load balancer serves its own ranks, as llm-d's wide EP does."""
    command = [
        "/bin/bash",
        "-c",
        'exec vllm serve "$@" --data-parallel-hybrid-lb --data-parallel-start-rank $((LWS_WORKER_INDEX * 4))',
        "--",
    ]
    spec = SPEC | {"engine": {**SPEC["engine"], "command": command}}
    for role in ("leader", "worker"):
        assert not {"--nnodes", "--node-rank", "--headless"} & set(words(role, spec))
    worker = group(spec)["workerTemplate"]
    assert worker["metadata"]["labels"]["kintsugi.dev/rotation"] == "in"
    assert container(worker)["readinessProbe"]


def test_an_engine_that_spreads_over_ray_is_left_to_ray() -> None:
    spec = SPEC | {"engine": {**SPEC["engine"], "extraArgs": ["--distributed-executor-backend", "ray"]}}
    assert "--headless" not in words("worker", spec)
    assert "readinessProbe" not in container(group(spec)["workerTemplate"])


def test_a_template_of_the_workers_moves_the_pods_and_its_absence_does_not() -> None:
    plain = revision_of(deployment(SPEC).spec, None)
    assert revision_of(deployment(SPEC | {"workerPodTemplate": {}}).spec, None) == plain
    changed = deployment(SPEC | {"workerPodTemplate": {"spec": {"hostNetwork": True}}}).spec
    assert revision_of(changed, None) != plain
