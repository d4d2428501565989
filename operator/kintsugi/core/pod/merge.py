"""`podTemplate` laid over a pod as `kubectl patch --type=strategic` lays a patch: by Kubernetes' own merge keys."""

from collections.abc import Mapping
from typing import Any, Final

MERGE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "evictionResponders": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "hostAliases": ("ip",),
    "ports": ("containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
"""Lists of a pod that are joined item by item, and what tells their items apart; every other list is replaced.

Source: `x-kubernetes-patch-strategy` and `x-kubernetes-list-map-keys` of PodTemplateSpec in Kubernetes' OpenAPI
document (a test compares them). `ownerReferences` and `finalizers` are left out: they are not a template's.
"""
KEY_DEFAULTS: Final[Mapping[str, str]] = {"protocol": "TCP"}
"""What Kubernetes takes for a key that is not written."""

_HANDLERS: Final = frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"})
_ONE_OF: Final[Mapping[str, frozenset[str]]] = {
    "startupProbe": _HANDLERS,
    "readinessProbe": _HANDLERS,
    "livenessProbe": _HANDLERS,
    "preStop": _HANDLERS,
    "postStart": _HANDLERS,
    "env": frozenset({"value", "valueFrom"}),
    "valueFrom": frozenset({"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"}),
}
"""Fields of which an object may have one: naming another one takes the place of ours."""

PATCH: Final = "$patch"
"""Kubernetes' directive: `delete` an item or a map, `replace` it whole."""


def merged(base: Any, over: Any, at: str = "") -> Any:
    """`over` laid over `base`; both are the value of the field `at`. None removes a key.

    An item that is not told apart by its keys makes its list replace the other one whole.
    """
    if isinstance(over, Mapping):
        if over.get(PATCH) == "replace" or not isinstance(base, Mapping):
            return plain(over)
        return _merged_map(base, over, at)
    if isinstance(over, list):
        replaced, items = _directives(over)
        if isinstance(base, list) and not replaced and keyed(base, at) and keyed(items, at):
            return _merged_list(base, items, at)
        return [plain(item) for item in items if not _deletes(item)]
    return over


def plain(value: Any) -> Any:
    """`value` as it stands where there is nothing to lay it over: without directives and without removals."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items() if key != PATCH and each is not None}
    if isinstance(value, list):
        return [plain(item) for item in value if not _deletes(item)]
    return value


def identity(item: Any, at: str) -> tuple[Any, ...] | None:
    """What tells an item of the list `at` from the others; None where it does not say, or the list has no keys."""
    keys = MERGE_KEYS.get(at)
    if keys is None or not isinstance(item, Mapping):
        return None
    found = tuple(item.get(key, KEY_DEFAULTS.get(key)) for key in keys)
    if not all(isinstance(value, str | int) for value in found):
        return None
    # `/dev/shm` and `/dev/shm/` are one place; Kubernetes would take both and mount one over the other.
    return tuple(str(value).rstrip("/") or "/" if at == "volumeMounts" else value for value in found)


def keyed(items: list[Any], at: str) -> bool:
    """Whether each item of the list `at` says which one it is."""
    return all(identity(item, at) is not None for item in items)


def _merged_map(base: Mapping[str, Any], over: Mapping[str, Any], at: str) -> dict[str, Any]:
    out = dict(base)
    for key in _put_aside(base, over, at):
        out.pop(key, None)
    for key, value in over.items():
        if value is None or (isinstance(value, Mapping) and _deletes(value)):
            out.pop(key, None)
        elif key != PATCH:
            out[key] = merged(out[key], value, key) if key in out else plain(value)
    return out


def _put_aside(base: Mapping[str, Any], over: Mapping[str, Any], at: str) -> frozenset[str]:
    """Fields of `base` that cannot stand beside what `over` names."""
    named = frozenset(key for key, value in over.items() if value is not None)
    if at in ("volumes", "resourceClaims"):  # `retainKeys`: a source of another kind replaces ours
        return frozenset(base) - named - {"name"} if named - {"name"} else frozenset()
    group = _ONE_OF.get(at, frozenset())
    return group - named if group & named else frozenset()


def _merged_list(base: list[Any], over: list[Any], at: str) -> list[Any]:
    out = {identity(item, at): item for item in base}
    for item in over:
        key = identity(item, at)
        if _deletes(item):
            out.pop(key, None)
        else:
            out[key] = merged(out[key], item, at) if key in out else plain(item)
    return list(out.values())


def _directives(items: list[Any]) -> tuple[bool, list[Any]]:
    """Whether the list replaces the other one whole, and its items without the item that says so."""
    whole = [item for item in items if isinstance(item, Mapping) and dict(item) == {PATCH: "replace"}]
    return bool(whole), [item for item in items if item not in whole]


def _deletes(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get(PATCH) == "delete"
