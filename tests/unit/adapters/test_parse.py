"""Pods, ReplicaSets and nodes as a 1.36 API server and its kubelets write them, read into the snapshot."""

from typing import Any

import pytest

from kintsugi.adapters.kube.parse import (
    epoch,
    instance,
    node_rooms,
    pod_gpus,
    replica_set,
    rfc3339,
    rfc3339_micro,
    served_model,
)
from kintsugi.core.snapshot import Failed, Failure, Instance, NodeRoom, Termination

NO_PAGE = Failed(Failure.NO_ADDRESS, "not asked", 0.0)
T0 = 1_767_225_600.0
"""2026-01-01T00:00:00Z"""

OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "chat-short-7f9c",
    "uid": "b7b0",
    "controller": True,
    "blockOwnerDeletion": True,
}


def pod(status: dict[str, Any], meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "chat-short-7f9c-x2v5k",
            "namespace": "llm",
            "uid": "0b6c1f3e-5a0e-4c8e-9f43-0d3e2a1b4c5d",
            "resourceVersion": "4711",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "app.kubernetes.io/managed-by": "kintsugi",
                "kintsugi.dev/deployment": "chat",
                "kintsugi.dev/pool": "short",
                "kintsugi.dev/revision": "7f9c",
                "kintsugi.dev/rotation": "in",
                "kintsugi.dev/member": "true",
            },
            "annotations": {"kintsugi.dev/lineage": "0001"},
            "ownerReferences": [OWNER],
            **(meta or {}),
        },
        "spec": {
            "nodeName": "node-a",
            "terminationGracePeriodSeconds": 90,
            "containers": [
                {"name": "sidecar", "args": ["--max-num-seqs", "1"]},
                {
                    "name": "engine",
                    "args": ["--model", "m", "--max-num-seqs", "64", "--max-model-len=8192"],
                    "resources": {"limits": {"nvidia.com/gpu": "4"}, "requests": {"nvidia.com/gpu": "4"}},
                },
            ],
            **spec,
        },
        "status": status,
    }


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "engine", "ready": False, "restartCount": 0, "state": state, **more}


def conditions(**status: str) -> list[dict[str, Any]]:
    return [
        {"type": kind, "status": word, "lastTransitionTime": "2026-01-01T00:02:00Z", "lastProbeTime": None}
        for kind, word in status.items()
    ]


def read(status: dict[str, Any], meta: dict[str, Any] | None = None, **spec: Any) -> Instance:
    return instance(pod(status, meta, **spec), NO_PAGE)


def test_a_running_ready_pod() -> None:
    got = read(
        {
            "phase": "Running",
            "podIP": "10.244.1.7",
            "conditions": conditions(Ready="True", PodScheduled="True"),
            "containerStatuses": [
                {"name": "sidecar", "ready": True, "restartCount": 9, "state": {}},
                container({"running": {"startedAt": "2026-01-01T00:00:30Z"}}, ready=True),
            ],
        }
    )
    assert got == Instance(
        name="chat-short-7f9c-x2v5k",
        uid="0b6c1f3e-5a0e-4c8e-9f43-0d3e2a1b4c5d",
        pool="short",
        revision="7f9c",
        node="node-a",
        created_at=T0,
        phase="Running",
        phase_reason="",
        started_at=T0 + 30,
        ready=True,
        ready_since=T0 + 120,
        in_rotation=True,
        member=True,
        deleting=False,
        restarts=0,
        waiting_reason="",
        waiting_message="",
        last_termination=None,
        pod_ip="10.244.1.7",
        annotations={"kintsugi.dev/lineage": "0001"},
        scrape=NO_PAGE,
        scheduled_at=T0 + 120,
        grace_seconds=90.0,
        max_num_seqs=64,
        chunked_prefill=True,
        longest_prompt=8192,
        devices=None,
    )
    assert got.process is not None
    assert got.process.started_at == T0 + 30


def test_a_pod_in_crash_loop_back_off() -> None:
    got = read(
        {
            "phase": "Running",
            "podIP": "10.244.1.7",
            "conditions": conditions(Ready="False"),
            "containerStatuses": [
                container(
                    {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed"}},
                    restartCount=4,
                    lastState={
                        "terminated": {
                            "exitCode": 137,
                            "reason": "OOMKilled",
                            "startedAt": "2026-01-01T00:05:00Z",
                            "finishedAt": "2026-01-01T00:06:00Z",
                        }
                    },
                )
            ],
        }
    )
    assert (got.waiting_reason, got.waiting_message) == ("CrashLoopBackOff", "back-off 40s restarting failed")
    assert got.restarts == 4
    assert got.started_at is None
    assert got.process is None
    assert not got.ready
    assert got.ready_since is None
    assert got.last_termination == Termination(137, "OOMKilled", "", T0 + 360)


def test_a_container_that_has_just_ended_is_its_last_termination() -> None:
    ended = {"exitCode": 1, "reason": "Error", "message": "CUDA error", "finishedAt": "2026-01-01T00:09:00Z"}
    older = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:01:00Z"}}
    got = read({"phase": "Running", "containerStatuses": [container({"terminated": ended}, lastState=older)]})
    assert got.last_termination == Termination(1, "Error", "CUDA error", T0 + 540)


def test_a_pending_pod_whose_image_cannot_be_pulled() -> None:
    got = read(
        {
            "phase": "Pending",
            "conditions": conditions(Ready="False", PodScheduled="True"),
            "containerStatuses": [
                container(
                    {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x:y"'}}
                )
            ],
        }
    )
    assert (got.phase, got.waiting_reason) == ("Pending", "ImagePullBackOff")
    assert got.pod_ip == ""


def test_a_pending_pod_without_a_node_says_why() -> None:
    raw = pod({"phase": "Pending"})
    del raw["spec"]["nodeName"]
    raw["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        }
    ]
    got = instance(raw, NO_PAGE)
    assert (got.node, got.phase_reason) == ("", "Unschedulable")
    assert "Insufficient" in got.waiting_message


def test_a_failing_init_container_is_what_the_engine_waits_for() -> None:
    got = read(
        {
            "phase": "Pending",
            "initContainerStatuses": [
                {"name": "done", "state": {"terminated": {"exitCode": 0}}},
                {
                    "name": "preflight",
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                },
            ],
            "containerStatuses": [container({"waiting": {"reason": "PodInitializing"}})],
        }
    )
    assert got.waiting_reason == "CrashLoopBackOff"
    assert got.waiting_message == "init container preflight: back-off"


def test_a_pod_that_its_node_evicted() -> None:
    got = read({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."})
    assert (got.phase, got.phase_reason) == ("Failed", "Evicted")
    assert got.waiting_message == "The node was low on resource: memory."


def test_a_pod_that_ended_with_exit_code_zero() -> None:
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T01:00:00Z"}
    got = read({"phase": "Succeeded", "containerStatuses": [container({"terminated": ended})]})
    assert got.phase == "Succeeded"
    assert got.last_termination == Termination(0, "Completed", "", T0 + 3600)


def test_a_terminating_pod() -> None:
    got = read(
        {
            "phase": "Running",
            "containerStatuses": [container({"running": {"startedAt": "2026-01-01T00:00:30Z"}})],
        },
        {"deletionTimestamp": "2026-01-01T02:00:00Z", "deletionGracePeriodSeconds": 90},
    )
    assert got.deleting


def test_a_released_pod_is_no_member_and_out_of_rotation() -> None:
    labels = {"kintsugi.dev/deployment": "chat", "kintsugi.dev/pool": "short", "kintsugi.dev/rotation": "out"}
    got = read({"phase": "Running"}, {"labels": labels})
    assert not got.member
    assert not got.in_rotation
    assert got.revision == ""


def test_a_pod_that_nobody_has_looked_at_yet() -> None:
    got = instance({"metadata": {"name": "new", "uid": "u"}}, NO_PAGE)
    assert (got.phase, got.node, got.restarts, got.grace_seconds) == ("Unknown", "", 0, 30.0)


@pytest.mark.parametrize("odd", [None, [], "", 5, {"containerStatuses": None}, {"conditions": [None, 3]}])
def test_an_odd_status_never_raises(odd: Any) -> None:
    assert read(odd).ready is False


@pytest.mark.parametrize(
    ("args", "chunked", "seqs"),
    [
        ([], True, None),
        (["--no-enable-chunked-prefill"], False, None),
        (["--enable-chunked-prefill=False"], False, None),
        (["--no_enable_chunked_prefill", "--enable-chunked-prefill"], True, None),
        (["--max-num-seqs=8", "--max_num_seqs", "16"], True, 16),
        (["--max-num-seqs"], True, None),
        (["--max-num-seqs", "many"], True, None),
    ],
)
def test_the_engines_flags_are_read_from_its_own_command(
    args: list[str], chunked: bool, seqs: int | None
) -> None:
    got = read({"phase": "Running"}, containers=[{"name": "engine", "command": ["vllm"], "args": args}])
    assert (got.chunked_prefill, got.max_num_seqs) == (chunked, seqs)


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["--model", "org/x", "--served-model-name", "chat", "c2"], "chat"),
        (["--model=org/x"], "org/x"),
        (["--served-model-name", "a", "--served_model_name=b"], "b"),
        ([], None),
        (["--served-model-name"], None),
    ],
)
def test_an_engine_is_asked_for_the_model_that_its_own_command_names(
    args: list[str], name: str | None
) -> None:
    assert served_model(pod({}, containers=[{"name": "engine", "args": args}])) == name


def test_times_are_read_and_written_as_kubernetes_does() -> None:
    assert epoch("2026-01-01T00:00:00Z") == T0
    assert epoch("2026-01-01T00:00:00.250000Z") == T0 + 0.25
    assert epoch("2026-01-01T01:00:00+01:00") == T0
    assert [epoch(odd) for odd in (None, "", "yesterday", 5)] == [None] * 4
    assert rfc3339(T0 + 1.9) == "2026-01-01T00:00:01Z"
    assert rfc3339_micro(T0 + 0.5) == "2026-01-01T00:00:00.500000Z"
    assert epoch(rfc3339_micro(T0 + 0.5)) == T0 + 0.5


def test_a_replica_set() -> None:
    raw = {
        "metadata": {
            "name": "chat-short-7f9c",
            "uid": "b7b0",
            "resourceVersion": "99",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kintsugi.dev/pool": "short", "kintsugi.dev/revision": "7f9c"},
        },
        "spec": {"replicas": 3},
        "status": {"replicas": 2, "readyReplicas": 1},
    }
    got = replica_set(raw)
    assert (got.name, got.pool, got.revision, got.resource_version) == (
        "chat-short-7f9c",
        "short",
        "7f9c",
        "99",
    )
    assert (got.wanted, got.actual, got.created_at) == (3, 2, T0)


def test_a_replica_set_without_a_count_wants_one() -> None:
    assert replica_set({"metadata": {"name": "r"}, "spec": {}}).wanted == 1


def node(name: str, gpus: int, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": conditions(Ready="True")},
    }


def holder(node_name: str, gpus: int, phase: str = "Running") -> dict[str, Any]:
    return {
        "spec": {
            "nodeName": node_name,
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}}],
        },
        "status": {"phase": phase},
    }


def test_gpus_of_a_node_are_what_pods_leave_over() -> None:
    pods = [
        holder("a", 4),
        holder("a", 2, "Succeeded"),
        holder("a", 1, "Failed"),
        holder("b", 8),
        holder("b", 1),
    ]
    assert node_rooms([node("a", 8), node("b", 8)], pods) == (
        NodeRoom("a", True, True, 4),
        NodeRoom("b", True, True, -1),
    )


def test_a_cordoned_or_tainted_node_is_not_schedulable_and_the_usual_gpu_taint_is_tolerated() -> None:
    gpu_taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}
    other = {"key": "team", "effect": "NoSchedule", "value": "b"}
    soft = {"key": "team", "effect": "PreferNoSchedule"}
    nodes = [
        node("cordoned", 8, unschedulable=True),
        node("gpu", 8, taints=[gpu_taint, soft]),
        node("foreign", 8, taints=[other]),
    ]
    assert [room.schedulable for room in node_rooms(nodes, ())] == [False, True, False]
    ours = ({"key": "team", "operator": "Equal", "value": "b", "effect": "NoSchedule"},)
    assert [room.schedulable for room in node_rooms(nodes, (), tolerations=ours)] == [False, False, True]


def test_a_node_that_is_not_ready_says_so() -> None:
    sick = node("a", 8)
    sick["status"]["conditions"] = conditions(Ready="Unknown")
    assert not node_rooms([sick], ())[0].ready


def test_a_pod_holds_the_larger_of_its_containers_and_its_init_containers() -> None:
    def each(gpus: int, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"nvidia.com/gpu": str(gpus)}}, **more}

    assert pod_gpus({"spec": {"containers": [each(2), each(1)]}}) == 3
    assert pod_gpus({"spec": {"containers": [each(1)], "initContainers": [each(4)]}}) == 4
    sidecar = each(2, restartPolicy="Always")
    assert pod_gpus({"spec": {"containers": [each(3)], "initContainers": [sidecar, each(2)]}}) == 5
    assert pod_gpus({"spec": {"containers": [{}]}}) == 0
