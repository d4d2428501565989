"""How much memory a container without a limit may use before its node runs short: raw nodes and pods → bytes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kintsugi.adapters.kube.engine_command import bytes_of


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """Bytes of one node: what pods may use together, and what the pods with devices on it ask for, by UID."""

    allocatable: float
    asked: Mapping[str, float]

    def without(self, uid: str) -> float | None:
        """What is left for the pod `uid` when all others have what they ask for; None where nothing is."""
        left = self.allocatable - sum(asked for other, asked in self.asked.items() if other != uid)
        return left if left > 0.0 else None


def node_memory(
    nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]
) -> dict[str, NodeMemory]:
    """By node name. `pods`: those that hold devices, which is what fills such nodes; what is not readable is left out."""
    asked: dict[str, dict[str, float]] = {}
    for pod in pods:
        spec = pod.get("spec") or {}
        uid = str((pod.get("metadata") or {}).get("uid", ""))
        total = sum(_asked(container) for container in spec.get("containers") or ())
        asked.setdefault(str(spec.get("nodeName") or ""), {})[uid] = total
    found: dict[str, NodeMemory] = {}
    for node in nodes:
        name = str((node.get("metadata") or {}).get("name", ""))
        room = _bytes(((node.get("status") or {}).get("allocatable") or {}).get("memory"))
        if room:
            found[name] = NodeMemory(room, asked.get(name, {}))
    return found


def _asked(container: Mapping[str, Any]) -> float:
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    return _bytes(requests.get("memory", limits.get("memory"))) or 0.0


def _bytes(written: object) -> float | None:
    return bytes_of(written) if isinstance(written, int | str) else None
