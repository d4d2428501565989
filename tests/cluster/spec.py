"""What one cluster was asked to be: written beside it, so that a later command can find it again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster import paths
from tests.cluster.names import ClusterNames, NodeNames

FILE = "cluster.json"


@dataclass(frozen=True, slots=True)
class Owner:
    """The process whose end ends the cluster: its id, and its start in clock ticks since the machine's boot."""

    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster's shape. `port` on 127.0.0.1 leads to its API server; `owner` is None for one that stays up."""

    name: str
    token: str
    nodes: int
    gpus_per_node: int
    node_silence_seconds: int | None
    """After so long without a sign of life a node is NotReady, and its pods are replaced 3 s later; None: as Kubernetes has it."""
    audit: bool
    binaries: str
    port: int
    owner: Owner | None

    @property
    def names(self) -> ClusterNames:
        return ClusterNames(self.name, self.token)

    @property
    def folder(self) -> Path:
        return paths.state_dir(self.name)

    def node(self, index: int) -> NodeNames:
        """Raises ValueError if the cluster has no such node; they are counted from 1."""
        if not 1 <= index <= self.nodes:
            raise ValueError(f"cluster {self.name!r} has the nodes 1 to {self.nodes}, not {index}")
        return self.names.node(index)

    def node_folder(self, index: int) -> Path:
        return self.folder / f"n{index}"

    def save(self) -> None:
        new = self.folder / f".{FILE}.new"
        new.write_text(json.dumps(asdict(self), indent=1) + "\n")
        new.rename(self.folder / FILE)


def load(name: str) -> ClusterSpec | None:
    """The spec of the cluster `name`; None where no start of that name came so far as to write it."""
    try:
        found = json.loads((paths.state_dir(name) / FILE).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    owner = found.pop("owner")
    return ClusterSpec(**found, owner=Owner(**owner) if owner else None)


def known() -> list[str]:
    """The names of all clusters that have a folder on this machine, whole or half made."""
    root = paths.states_root()
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir()) if root.is_dir() else []
