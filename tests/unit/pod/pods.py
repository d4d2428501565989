"""Pods as the operator renders them, and how what a user wrote is looked for in one."""

from typing import Any

import kubernetes_validate

from kintsugi.api.effective import pools_of
from kintsugi.api.objects import DeepSeekV4Deployment, parse_deployment
from kintsugi.core.pod.merge import identity
from kintsugi.core.render import leader_worker_set, pod_template, pool_labels

Json = dict[str, Any]

FLASH = "deepseek-ai/DeepSeek-V4-Flash-0731"
PRO = "deepseek-ai/DeepSeek-V4-Pro"
KUBERNETES = "1.36"
ORDERED = ("env", "initContainers", "containers")
"""Lists whose order says something: a variable may refer to those before it, init containers run one by one."""


def deployment(spec: Json) -> DeepSeekV4Deployment:
    body = {"model": {"id": FLASH}, **spec}
    return parse_deployment({"metadata": {"name": "chat", "namespace": "llm", "uid": "d-uid"}, "spec": body})


def pod(spec: Json, index: int = 0, operator_image: str = "") -> Json:
    """The template of the pool at `index`; fields of `spec` beside the model."""
    made = deployment(spec).spec
    pool = pools_of(made)[index]
    return pod_template(made, pool, pool_labels("chat", pool.name), operator_image=operator_image)


def group(spec: Json, index: int = 0, operator_image: str = "") -> Json:
    """`leaderWorkerTemplate` of the pool at `index`."""
    made = deployment(spec)
    document = leader_worker_set(
        made, "d-uid", pools_of(made.spec)[index], "r1", 2, operator_image=operator_image
    )
    template: Json = document["spec"]["leaderWorkerTemplate"]
    return template


def container(template: Json, name: str = "engine") -> Json:
    found: Json = next(c for c in template["spec"]["containers"] if c["name"] == name)
    return found


def env(template: Json) -> dict[str, Any]:
    """The engine's variables: the value, or where it comes from."""
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container(template)["env"]}


def valid(template: Json) -> None:
    """Raises where Kubernetes' own schema refuses a pod made from this template."""
    as_pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "x"},
        "spec": template["spec"],
    }
    kubernetes_validate.validate(as_pod, KUBERNETES, strict=True)


def missing(wanted: Any, found: Any, at: str = "", path: str = "") -> list[str]:
    """Where `found` differs from what `wanted` says; fields that `wanted` does not name don't matter.

    Lists that Kubernetes joins by key are compared item by item, and some in their order; others must be equal.
    """
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [f"{path}: {found!r} is no object"]
        return [
            problem
            for key, value in wanted.items()
            for problem in (
                missing(value, found[key], key, f"{path}.{key}")
                if key in found
                else [f"{path}.{key}: absent"]
            )
        ]
    if isinstance(wanted, list) and wanted and all(identity(item, at) for item in wanted):
        places = {identity(item, at): place for place, item in enumerate(found)}
        order = [places.get(identity(item, at), -1) for item in wanted]
        if -1 in order or (at in ORDERED and order != sorted(order)):
            return [f"{path}: {[identity(i, at) for i in wanted]} is not in {list(places)} in that order"]
        pairs = zip(wanted, order, strict=True)
        return [
            p
            for item, place in pairs
            for p in missing(item, found[place], at, f"{path}[{identity(item, at)}]")
        ]
    return (
        [] if wanted == found and type(wanted) is type(found) else [f"{path}: {found!r}, wanted {wanted!r}"]
    )
