"""The control groups under which a node keeps its pods."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.cluster.names import cgroup_prefix

ROOT = Path("/sys/fs/cgroup")
WEIGHTS = {"cpu.weight": "400", "cpu.shares": "4096"}
"""Four times an ordinary group's share of a busy processor, as cgroup v2 and v1 write it: engines are judged by the clock,
what runs beside the cluster is not."""


def is_v2(root: Path = ROOT) -> bool:
    return (root / "cgroup.controllers").exists()


def hierarchies(root: Path = ROOT) -> list[Path]:
    """The folders in which a group has to be made: one on cgroup v2, one for each controller on v1."""
    if is_v2(root):
        return [root]
    return [
        folder
        for folder in sorted(root.iterdir())
        if folder.is_dir()
        and not folder.is_symlink()
        and folder.name != "unified"
        and os.access(folder, os.W_OK)
    ]


def create(name: str, root: Path = ROOT) -> None:
    """Make the group `name` at the top; on v1, cpuset's lists must be filled in before a process may enter."""
    if is_v2(root):
        wanted = (root / "cgroup.controllers").read_text().split()
        try:
            (root / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in wanted))
        except OSError as refusal:
            raise RuntimeError(
                f"no groups can be made below {root}, as in a container without its own: {refusal}"
            ) from refusal
    for hierarchy in hierarchies(root):
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if not is_v2(root) and (hierarchy / file).exists():
                (group / file).write_text((hierarchy / file).read_text())
        for file, weight in WEIGHTS.items():
            if (group / file).exists():
                (group / file).write_text(weight)


def left_by(cluster: str, mark: str, root: Path = ROOT) -> list[Path]:
    """The top groups that any run of the cluster has made on the machine of that mark, see `paths.machine_mark`."""
    # Beside v1's controllers there may be a v2 hierarchy without any, in which the runtime makes its groups too.
    places = [*hierarchies(root), root / "unified"]
    return [
        found
        for place in places
        for found in place.glob(f"{cgroup_prefix(cluster)}{mark}*")
        if found.is_dir()
    ]


def remove(groups: list[Path], timeout_seconds: float = 3) -> list[Path]:
    """Remove the groups with all below them; returns those that still hold a process of somebody else's.

    The kernel frees a group a moment after its last process has gone, hence the time.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        groups = [group for group in groups if not _remove_tree(group)]
        if not groups or time.monotonic() > deadline:
            return groups
        time.sleep(0.02)


def _remove_tree(group: Path) -> bool:
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
    except FileNotFoundError:
        return not group.exists()
    except OSError:  # busy
        return False
    return True
