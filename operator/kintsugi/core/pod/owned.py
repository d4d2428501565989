"""What is wrong with a `podTemplate` before it is laid over a pod: each fault by its path, with the cure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kintsugi.api.objects import Problem
from kintsugi.api.spec import DeploymentSpec, PoolSpec
from kintsugi.core.names import ENGINE_CONTAINER, ENGINE_PORT
from kintsugi.core.pod.fields import wrong_kinds
from kintsugi.core.pod.merge import MERGE_KEYS, PATCH, identity, keyed

OWNED_LABEL_PREFIX: Final = "kintsugi.dev/"
_OWNED: Final = "belongs to the operator: remove it here and use the typed field, if there is one"
_TYPED: Final[Mapping[str, str]] = {
    "args": "belongs to the operator: use engine.args for settings it knows and engine.extraArgs for all others",
    "image": "belongs to the operator: set engine.image",
}
_NOT_HERE: Final[Mapping[str, str]] = {
    "activeDeadlineSeconds": "would end the engine at its best: Kubernetes refuses it for pods that are to stay up",
    "ephemeralContainers": "can only be added to a pod that runs (kubectl debug): remove it",
}
_POD_LISTS: Final = ("volumes", "initContainers", "imagePullSecrets", "resourceClaims", "schedulingGates")
_CONTAINER_LISTS: Final = ("env", "volumeMounts", "volumeDevices")


def template_problems(template: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Every fault: what the operator owns, what can't be joined, and values of the wrong kind.

    Paths begin below the template: `spec.containers[0].image`. Names that Kubernetes does not have are another matter
    (`fields.unknown_fields`): a newer one may have them.
    """
    found = list(_faults(template))
    named = {problem.path for problem in found}
    return (*found, *(problem for problem in wrong_kinds(template) if problem.path not in named))


def problems_in_templates(spec: DeploymentSpec) -> tuple[Problem, ...]:
    """The faults of every template of a spec, the pools' included, with their whole paths."""
    owners: list[tuple[str, DeploymentSpec | PoolSpec]] = [("spec", spec)]
    owners += [(f"spec.pools[{index}]", pool) for index, pool in enumerate(spec.pools)]
    return tuple(
        Problem(f"{at}.{field}.{fault.path}", fault.message)
        for at, owner in owners
        for field, template in (
            ("podTemplate", owner.pod_template),
            ("leaderPodTemplate", owner.leader_pod_template),
            ("workerPodTemplate", owner.worker_pod_template),
        )
        for fault in template_problems(template or {})
    )


def owned_fields(template: Mapping[str, Any]) -> list[str]:
    """Paths in a `podTemplate` that the operator refuses by name."""
    return [problem.path for problem in template_problems(template)]


def _faults(template: Mapping[str, Any]) -> Iterator[Problem]:
    for key in template:
        if key not in ("metadata", "spec"):
            known = "a pod template has metadata and spec"
            yield Problem(key, f"is unknown: {known}; did you mean spec.{key}?")
    for key in ("metadata", "spec"):
        if key in template and not isinstance(template[key], Mapping):
            yield Problem(key, "must be an object")
    yield from _metadata(_map(template.get("metadata")))
    yield from _spec(_map(template.get("spec")))
    yield from _directives(template, "")


def _metadata(metadata: Mapping[str, Any]) -> Iterator[Problem]:
    for key in ("labels", "annotations"):
        if key in metadata and not isinstance(metadata[key], Mapping):
            yield Problem(f"metadata.{key}", "must be an object")
    for key in ("name", "namespace", "ownerReferences", "generateName"):
        if key in metadata:
            yield Problem(f"metadata.{key}", _OWNED)
    for key in ("labels", "annotations"):
        for name in _map(metadata.get(key)):
            if str(name).startswith(OWNED_LABEL_PREFIX):
                yield Problem(f"metadata.{key}[{name}]", _OWNED)


def _spec(spec: Mapping[str, Any]) -> Iterator[Problem]:
    policy = spec.get("restartPolicy", "Always")
    if policy != "Always":
        yield Problem(
            "spec.restartPolicy",
            f"must be Always, not {policy}: an engine that dies can end with exit code 0, and would never come back",
        )
    for key, message in _NOT_HERE.items():
        if spec.get(key) is not None:
            yield Problem(f"spec.{key}", message)
    for key in _POD_LISTS:
        yield from _items(spec, key, "spec")
    yield from _containers(spec)
    for index, container in enumerate(_list(spec.get("initContainers"))):
        yield from _lists_of(container, f"spec.initContainers[{index}]")


def _containers(spec: Mapping[str, Any]) -> Iterator[Problem]:
    if "containers" not in spec:
        return
    containers = spec["containers"]
    if not isinstance(containers, list) or not keyed(containers, "containers"):
        # Laid over by name: without one the engine itself would go.
        yield Problem("spec.containers", "must be a list of containers, each with its name")
        return
    seen: set[str] = set()
    for index, container in enumerate(containers):
        path = f"spec.containers[{index}]"
        name = str(container["name"])
        if name in seen:
            yield Problem(f"{path}.name", f"names {name!r} a second time: write it once")
        seen.add(name)
        if name == ENGINE_CONTAINER:
            yield from _engine(container, path)
        elif not container.get("image") and PATCH not in container:
            yield Problem(
                f"{path}.image",
                f"is required: {name!r} is a sidecar. The engine's own container is called {ENGINE_CONTAINER!r}",
            )
        yield from _lists_of(container, path)


def _engine(container: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for key, message in _TYPED.items():
        if key in container:
            yield Problem(f"{path}.{key}", message)
    if PATCH in container:
        yield Problem(
            f"{path}.{PATCH}", "would remove what the operator puts there: name the fields to change"
        )
    ports = container.get("ports", [])
    if not isinstance(ports, list) or not keyed(ports, "ports"):
        yield Problem(f"{path}.ports", "must be a list of ports, each with its containerPort")
        return
    for at, port in enumerate(ports):
        if port.get("name") == "http" or port["containerPort"] == ENGINE_PORT:
            message = (
                f"is the serving port of the operator (http, {ENGINE_PORT}): choose another name and number"
            )
            yield Problem(f"{path}.ports[{at}]", message)


def _lists_of(container: Any, path: str) -> Iterator[Problem]:
    for key in _CONTAINER_LISTS:
        yield from _items(_map(container), key, path)


def _items(owner: Mapping[str, Any], key: str, path: str) -> Iterator[Problem]:
    """A list that is joined by key must have one in each item, or it would replace the operator's whole."""
    value = owner.get(key)
    if value is None:
        return
    if not isinstance(value, list):
        yield Problem(f"{path}.{key}", "must be a list")
        return
    for index, item in enumerate(value):
        if identity(item, key) is None and item != {PATCH: "replace"}:
            wanted = " and ".join(MERGE_KEYS[key])
            yield Problem(f"{path}.{key}[{index}]", f"must be an object that says its {wanted}")


def _directives(value: Any, path: str) -> Iterator[Problem]:
    """Kubernetes' patch directives: `$patch: delete` and `$patch: replace` work, below what the operator owns."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _directives(item, f"{path}[{index}]")
    if not isinstance(value, Mapping):
        return
    for key, item in value.items():
        here = f"{path}.{key}".removeprefix(".")
        if not str(key).startswith("$"):
            yield from _directives(item, here)
        elif key != PATCH or item not in ("delete", "replace"):
            yield Problem(here, "is no directive that is understood here: $patch is, with delete or replace")
        elif path in ("", "metadata", "metadata.labels", "spec"):
            yield Problem(here, "would remove what the operator puts there: name the fields to change")


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
