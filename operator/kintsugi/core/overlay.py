"""`podTemplate`, merged last: maps by key, lists of named items by name, anything else replaced."""

from collections.abc import Mapping
from typing import Any, Final

from kintsugi.core.names import ENGINE_CONTAINER

OWNED_LABEL_PREFIX: Final = "kintsugi.dev/"
_LIST_KEYS: Final = {"volumeMounts": "mountPath", "volumeDevices": "devicePath"}
"""Lists of a pod whose items are told apart by something else than a name (Kubernetes API, `patchMergeKey`)."""


def merged(base: Any, over: Any, at: str = "") -> Any:
    """`over` laid over `base`, as kubectl's strategic merge does for pods; None removes a key.

    `at` is the field that both are the value of.
    """
    if isinstance(base, dict) and isinstance(over, Mapping):
        out = dict(base)
        for key, value in over.items():
            if value is None:
                out.pop(key, None)
            else:
                out[key] = merged(out[key], value, key) if key in out else value
        return out
    key = _LIST_KEYS.get(at, "name")
    if isinstance(base, list) and isinstance(over, list) and _keyed(base, key) and _keyed(over, key):
        out_list = [dict(item) for item in base]
        place = {item[key]: index for index, item in enumerate(out_list)}
        for item in over:
            if item[key] in place:
                out_list[place[item[key]]] = merged(out_list[place[item[key]]], item)
            else:
                out_list.append(dict(item))
        return out_list
    return over


def _keyed(items: list[Any], key: str) -> bool:
    return all(isinstance(item, Mapping) and key in item for item in items)


def owned_fields(template: Mapping[str, Any]) -> list[str]:
    """Paths in a `podTemplate` that the operator owns; a template that touches one is refused by name."""
    found = [
        key for key in ("metadata", "spec") if key in template and not isinstance(template[key], Mapping)
    ]
    metadata = _map(template.get("metadata"))
    if "labels" in metadata and not isinstance(metadata["labels"], Mapping):
        found.append("metadata.labels")
    found += [
        f"metadata.{key}"
        for key in ("name", "namespace", "ownerReferences", "generateName")
        if key in metadata
    ]
    for key in ("labels", "annotations"):
        found += [
            f"metadata.{key}[{name}]"
            for name in _map(metadata.get(key))
            if name.startswith(OWNED_LABEL_PREFIX)
        ]
    spec = _map(template.get("spec"))
    if spec.get("restartPolicy", "Always") != "Always":
        found.append("spec.restartPolicy")
    containers = spec.get("containers", [])
    if not isinstance(containers, list) or not _keyed(containers, "name"):
        found.append("spec.containers")  # laid over by name: without one the engine itself would go
        containers = []
    for index, container in enumerate(containers):
        if _map(container).get("name") == ENGINE_CONTAINER:
            path = f"spec.containers[{index}]"
            found += [f"{path}.{key}" for key in ("args", "image") if key in container]
            ports = container.get("ports", [])
            if not isinstance(ports, list) or not _keyed(ports, "name"):
                found.append(f"{path}.ports")
                ports = []
            found += [f"{path}.ports[{at}]" for at, port in enumerate(ports) if port["name"] == "http"]
    return found


def _map(node: Any) -> Mapping[str, Any]:
    return node if isinstance(node, Mapping) else {}
