"""Pods that hold devices, cut down to what counting free GPUs needs: a cluster has thousands of others."""

from typing import Any

Json = dict[str, Any]


def asks_for_devices(pod: Json) -> bool:
    """Whether any container asks for an extended resource: only their names have a domain and a slash."""
    spec = pod.get("spec") or {}
    return any(
        "/" in resource
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for wanted in (container.get("resources") or {}).values()
        if isinstance(wanted, dict)
        for resource in wanted
    )


def trimmed(pod: Json) -> Json:
    """What counting GPUs needs of a pod; the rest is let go at once."""
    spec, meta = pod["spec"], pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: meta[key] for key in ("namespace", "name", "uid") if key in meta},
        "spec": {
            "nodeName": spec.get("nodeName"),
            **{
                key: [
                    {k: each[k] for k in ("name", "resources", "restartPolicy") if k in each}
                    for each in spec[key]
                ]
                for key in ("containers", "initContainers")
                if spec.get(key)
            },
        },
        "status": {"phase": (pod.get("status") or {}).get("phase")},
    }
