"""Raw objects of the API server → parts of the snapshot. Pure; one odd object never raises.

Field meanings: Kubernetes API reference, `PodStatus`, `ContainerStatus`, `ReplicaSetStatus`, `NodeStatus`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kintsugi.adapters.kube.engine_command import bytes_of, said_of
from kintsugi.core import names
from kintsugi.core.classify.facts import Told
from kintsugi.core.snapshot import Device, Instance, NodeRoom, ReplicaSet, Scrape, Termination

DEFAULT_GRACE_SECONDS = 30.0
"""Kubernetes' own default of `terminationGracePeriodSeconds`."""

FIRST_LOOK_SECONDS = 5.0
"""Between the kubelet's first look at a pod and its first word on readiness lies no second; twice a status update."""

GPU_TOLERATION: Mapping[str, str] = {"key": names.GPU_RESOURCE, "operator": "Exists"}
"""What the admission plugin ExtendedResourceToleration gives to every pod that asks for GPUs."""


def epoch(stamp: object) -> float | None:
    """Epoch seconds of an RFC 3339 time (with or without fractions); None for anything else."""
    if not isinstance(stamp, str) or not stamp:
        return None
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def rfc3339(seconds: float) -> str:
    """`seconds` (epoch) as Kubernetes writes a `Time`: UTC, whole seconds, Z."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """`seconds` (epoch) as Kubernetes writes a `MicroTime`: UTC, microseconds, Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def instance(pod: Mapping[str, Any], scrape: Scrape) -> Instance:
    """One pod of ours as an `Instance`, as its object says and nothing else does.

    `phase_reason` is the pod's own reason (Evicted …), or why it is not scheduled. `waiting_reason` is that of the
    engine container; of a failing init container where that is what the engine waits for.
    """
    meta, spec, status = _map(pod, "metadata"), _map(pod, "spec"), _map(pod, "status")
    labels = _map(meta, "labels")
    engine = _named(status.get("containerStatuses"), names.ENGINE_CONTAINER)
    state = _map(engine, "state")
    ready = _condition(status, "Ready")
    is_ready = ready.get("status") == "True"
    unscheduled = _unscheduled(status)
    waiting_reason, waiting_message = _waiting(status, state)
    said = said_of(spec)
    return Instance(
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
        pool=str(labels.get(names.POOL_LABEL, "")),
        revision=str(labels.get(names.REVISION_LABEL, "")),
        node=str(spec.get("nodeName") or ""),
        created_at=epoch(meta.get("creationTimestamp")) or 0.0,
        phase=str(status.get("phase") or "Unknown"),
        phase_reason=str(status.get("reason") or unscheduled.get("reason") or ""),
        started_at=epoch(_map(state, "running").get("startedAt")),
        ready=is_ready,
        ready_since=epoch(ready.get("lastTransitionTime")) if is_ready else None,
        in_rotation=labels.get(names.ROTATION_LABEL) == names.ROTATION_IN,
        member=labels.get(names.MEMBER_LABEL) == names.MEMBER,
        deleting=bool(meta.get("deletionTimestamp")),
        restarts=_whole(engine.get("restartCount")),
        waiting_reason=waiting_reason,
        waiting_message=waiting_message or str(status.get("message") or unscheduled.get("message") or ""),
        last_termination=_termination(engine) or _other_termination(status),
        pod_ip=str(status.get("podIP") or ""),
        annotations={str(k): str(v) for k, v in _map(meta, "annotations").items()},
        scrape=scrape,
        scheduled_at=_scheduled_at(status),
        grace_seconds=_number(spec.get("terminationGracePeriodSeconds"), DEFAULT_GRACE_SECONDS),
        max_num_seqs=said.max_num_seqs,
        chunked_prefill=said.chunked_prefill,
        longest_prompt=said.longest_prompt,
        served_before=_served_before(status, ready),
        host_ipc=spec.get("hostIPC") is True,
        devices=_devices(pod, status),
        image=str(_named(spec.get("containers"), names.ENGINE_CONTAINER).get("image") or ""),
        image_id=str(engine.get("imageID") or ""),
        memory_limit=_memory_limit(spec, engine),
        offload=said.offload,
    )


def served_model(pod: Mapping[str, Any]) -> str | None:
    """The name under which the pod's engine serves its model; None where its command says none."""
    return said_of(_map(pod, "spec")).model


def replica_set(raw: Mapping[str, Any]) -> ReplicaSet:
    """One ReplicaSet of ours; `spec.replicas` absent is 1, as in Kubernetes."""
    meta, spec, status = _map(raw, "metadata"), _map(raw, "spec"), _map(raw, "status")
    labels = _map(meta, "labels")
    pod = _map(_map(spec, "template"), "spec")
    avoids = str(_map(meta, "annotations").get(names.AVOIDS_ANNOTATION) or "")
    return ReplicaSet(
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
        pool=str(labels.get(names.POOL_LABEL, "")),
        revision=str(labels.get(names.REVISION_LABEL, "")),
        wanted=_whole(spec.get("replicas", 1)),
        actual=_whole(status.get("replicas")),
        created_at=epoch(meta.get("creationTimestamp")) or 0.0,
        resource_version=str(meta.get("resourceVersion", "")),
        avoids=tuple(host for host in avoids.split(",") if host),
        affinity=_map(pod, "affinity"),
        node_selector={str(k): str(v) for k, v in _map(pod, "nodeSelector").items()},
    )


def node_rooms(
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    resource: str = names.GPU_RESOURCE,
    tolerations: Sequence[Mapping[str, Any]] = (GPU_TOLERATION,),
) -> tuple[NodeRoom, ...]:
    """GPUs free per node: allocatable minus what the bound, not ended `pods` hold (terminating ones hold theirs).

    A node is schedulable when it is not cordoned and each of its NoSchedule and NoExecute taints is tolerated.
    """
    held: dict[str, int] = {}
    for pod in pods:
        node = _map(pod, "spec").get("nodeName")
        if node and _map(pod, "status").get("phase") not in ("Succeeded", "Failed"):
            held[node] = held.get(node, 0) + pod_gpus(pod, resource)
    rooms = []
    for node in nodes:
        name = str(_map(node, "metadata").get("name", ""))
        spec, status = _map(node, "spec"), _map(node, "status")
        allocatable = _whole(_map(status, "allocatable").get(resource))
        rooms.append(
            NodeRoom(
                name=name,
                ready=_condition(status, "Ready").get("status") == "True",
                schedulable=not spec.get("unschedulable") and _tolerated(spec, tolerations),
                gpus_free=allocatable - held.get(name, 0),
                labels={str(k): str(v) for k, v in _map(_map(node, "metadata"), "labels").items()},
                cordoned=bool(spec.get("unschedulable")),
                taints=tuple(_list(spec.get("taints"))),
                holders=_holders(node),
                action=str(
                    _map(_map(node, "metadata"), "annotations").get(names.NODE_ACTION_ANNOTATION) or ""
                ),
                resource_version=str(_map(node, "metadata").get("resourceVersion") or ""),
            )
        )
    return tuple(rooms)


def _holders(node: Mapping[str, Any]) -> dict[str, str]:
    prefix, written = names.NODE_HOLDER_PREFIX, _map(_map(node, "metadata"), "annotations")
    return {key.removeprefix(prefix): str(value) for key, value in written.items() if key.startswith(prefix)}


def pod_gpus(pod: Mapping[str, Any], resource: str = names.GPU_RESOURCE) -> int:
    """GPUs that the scheduler counts for a pod: the larger of its containers' sum and any init container's need.

    Restartable init containers (sidecars) run on beside the containers and are added to both.
    """
    spec = _map(pod, "spec")
    sidecars = peak = 0
    for container in _list(spec.get("initContainers")):
        need = _request(container, resource)
        if container.get("restartPolicy") == "Always":
            sidecars += need
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + need)
    return max(
        peak, sidecars + sum(_request(container, resource) for container in _list(spec.get("containers")))
    )


def _request(container: Mapping[str, Any], resource: str) -> int:
    resources = _map(container, "resources")
    return _whole(_map(resources, "requests").get(resource, _map(resources, "limits").get(resource)))


def _tolerated(spec: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    hard = [
        taint for taint in _list(spec.get("taints")) if taint.get("effect") in ("NoSchedule", "NoExecute")
    ]
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in hard)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and toleration.get("value", "") == taint.get("value", "")


def _devices(pod: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[Device, ...] | None:
    """The GPUs of all its containers; None where it holds some and nothing is said of them."""
    found = [
        Device(str(resource.get("name")), str(each.get("resourceID") or ""), _health(each.get("health")))
        for container in _list(status.get("containerStatuses"))
        for resource in _list(container.get("allocatedResourcesStatus"))
        if _is_gpu(str(resource.get("name") or ""))
        for each in _list(resource.get("resources"))
    ]
    if found:
        return tuple(found)
    return None if pod_gpus(pod) else ()


def _health(said: object) -> str:
    return str(said) if said in ("Healthy", "Unhealthy") else "Unknown"


def _is_gpu(resource: str) -> bool:
    """Whole GPUs, parts of one (`nvidia.com/mig-1g.10gb`), and claims named after them (`claim:gpu/…`)."""
    return "gpu" in resource.lower() or "/mig-" in resource


def _waiting(status: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[str, str]:
    waiting = _map(state, "waiting")
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason not in ("", "PodInitializing", "ContainerCreating"):
        return reason, message
    for init in _list(status.get("initContainerStatuses")):
        stuck = _map(_map(init, "state"), "waiting")
        if stuck.get("reason") not in (None, "", "PodInitializing", "ContainerCreating"):
            return str(
                stuck["reason"]
            ), f"init container {init.get('name')}: {stuck.get('message') or ''}".rstrip(": ")
    for other in _others(status):
        stuck = _map(_map(other, "state"), "waiting")
        if stuck.get("reason") not in (None, "", "PodInitializing", "ContainerCreating"):
            said = f"container {other.get('name')}: {stuck.get('message') or ''}".rstrip(": ")
            return str(stuck["reason"]), said
    return reason, message


def _others(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Containers beside the engine's: a pod is not Ready before all of them are."""
    return [
        each for each in _list(status.get("containerStatuses")) if each.get("name") != names.ENGINE_CONTAINER
    ]


def _termination(engine: Mapping[str, Any]) -> Termination | None:
    """The newest end of the engine container: of the run that is over now, else of the one before."""
    ended = _map(_map(engine, "state"), "terminated") or _map(_map(engine, "lastState"), "terminated")
    if not ended:
        return None
    return Termination(
        exit_code=_whole(ended.get("exitCode")),
        reason=str(ended.get("reason") or ""),
        message=str(ended.get("message") or ""),
        finished_at=epoch(ended.get("finishedAt")) or 0.0,
    )


def _served_before(status: Mapping[str, Any], ready: Mapping[str, Any]) -> bool:
    """Whether a pod that is not Ready was so before: the kubelet calls a new pod not Ready when it first sees it, and the
    time of that word changes with its next change only."""
    first, since = epoch(status.get("startTime")), epoch(ready.get("lastTransitionTime"))
    if ready.get("status") != "False" or first is None or since is None:
        return False
    return since > first + FIRST_LOOK_SECONDS


def _other_termination(status: Mapping[str, Any]) -> Termination | None:
    """The failed end of another container of the pod, which keeps it from being Ready; init containers first."""
    inits = [("init container", each) for each in _list(status.get("initContainerStatuses"))]
    for what, each in (*inits, *(("container", other) for other in _others(status))):
        ended = _termination(each)
        if ended is not None and ended.exit_code != 0 and not each.get("ready"):
            return replace(ended, message=f"{what} {each.get('name')}: {ended.message}")
    return None


def told(event: Mapping[str, Any]) -> Told:
    """One Event about a pod."""
    series = _map(event, "series")
    count = _whole(event.get("count") or series.get("count") or 1)
    return Told(
        str(event.get("reason") or ""), str(event.get("message") or event.get("note") or "")[:2000], count
    )


def _scheduled_at(status: Mapping[str, Any]) -> float | None:
    scheduled = _condition(status, "PodScheduled")
    return epoch(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None


def _unscheduled(status: Mapping[str, Any]) -> Mapping[str, Any]:
    scheduled = _condition(status, "PodScheduled")
    return scheduled if scheduled.get("status") == "False" else {}


def _memory_limit(spec: Mapping[str, Any], engine: Mapping[str, Any]) -> float | None:
    """What the kubelet says of the running container (a resize in place changes it), else what the pod asks for."""
    asked = _named(spec.get("containers"), names.ENGINE_CONTAINER)
    for each in (engine, asked):
        written = _map(_map(each, "resources"), "limits").get("memory")
        if isinstance(written, int | str) and (found := bytes_of(written)):
            return found
    return None


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((each for each in _list(status.get("conditions")) if each.get("type") == kind), {})


def _named(items: object, name: str) -> Mapping[str, Any]:
    return next((each for each in _list(items) if each.get("name") == name), {})


def _map(owner: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = owner.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _whole(value: object) -> int:
    """A count, as Kubernetes writes it (number, or quantity in a string); 0 where there is none."""
    try:
        return int(str(value))
    except ValueError:
        return 0


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default
