"""`podTemplate`, merged last: maps by key, lists of named items by name, anything else replaced."""

from collections.abc import Mapping
from typing import Any, Final

from kintsugi.core.names import ENGINE_CONTAINER

OWNED_LABEL_PREFIX: Final = "kintsugi.dev/"


def merged(base: Any, over: Any) -> Any:
    """`over` laid over `base`, as kubectl's strategic merge does for pods; None removes a key."""
    if isinstance(base, dict) and isinstance(over, Mapping):
        out = dict(base)
        for key, value in over.items():
            if value is None:
                out.pop(key, None)
            else:
                out[key] = merged(out[key], value) if key in out else value
        return out
    if isinstance(base, list) and isinstance(over, list) and _named(base) and _named(over):
        out_list = [dict(item) for item in base]
        place = {item["name"]: index for index, item in enumerate(out_list)}
        for item in over:
            if item["name"] in place:
                out_list[place[item["name"]]] = merged(out_list[place[item["name"]]], item)
            else:
                out_list.append(dict(item))
        return out_list
    return over


def _named(items: list[Any]) -> bool:
    return all(isinstance(item, Mapping) and "name" in item for item in items)


def owned_fields(template: Mapping[str, Any]) -> list[str]:
    """Paths in a `podTemplate` that the operator owns; a template that touches one is refused by name."""
    found: list[str] = []
    metadata = _map(template.get("metadata"))
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
    containers = spec.get("containers")
    for index, container in enumerate(containers if isinstance(containers, list) else ()):
        if _map(container).get("name") == ENGINE_CONTAINER:
            path = f"spec.containers[{index}]"
            found += [f"{path}.{key}" for key in ("args", "image") if key in container]
            ports = container.get("ports")
            found += [
                f"{path}.ports[{at}]"
                for at, port in enumerate(ports if isinstance(ports, list) else ())
                if _map(port).get("name") == "http"
            ]
    return found


def _map(node: Any) -> Mapping[str, Any]:
    return node if isinstance(node, Mapping) else {}
