"""Memory of the container in which this process runs, from its cgroup (version 2, or 1)."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
MEMBERSHIP: Final = Path("/proc/self/cgroup")

_UNLIMITED: Final = 1 << 60
"""Version 1 writes "no limit" as the largest number of pages that fits."""


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    """Bytes. None: not told, or no limit."""

    anonymous: int | None = None
    shared: int | None = None
    limit: int | None = None


def container_memory(root: Path = ROOT, membership: Path = MEMBERSHIP) -> ContainerMemory:
    """What is charged to this process' own container now."""
    for folder, anonymous, limit in _places(root, membership):
        stat = _stat(folder / "memory.stat")
        if anonymous in stat:
            return ContainerMemory(stat[anonymous], stat.get("shmem"), _limit(folder / limit))
    return ContainerMemory()


def _places(root: Path, membership: Path) -> list[tuple[Path, str, str]]:
    """Folders to try, own one first: in a container the root shows as `/`, but the path may be told from outside."""
    paths = {"": "/", "memory": "/"}
    with contextlib.suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for name in controllers.split(","):
                paths[name] = path
    tries = []
    for base, path, anonymous, limit in (
        (root, paths[""], "anon", "memory.max"),
        (root / "memory", paths["memory"], "rss", "memory.limit_in_bytes"),
    ):
        tries += [(base / path.lstrip("/"), anonymous, limit), (base, anonymous, limit)]
    return tries


def _stat(path: Path) -> dict[str, int]:
    try:
        return {key: int(value) for key, value in (line.split() for line in path.read_text().splitlines())}
    except (OSError, ValueError):
        return {}


def _limit(path: Path) -> int | None:
    try:
        number = int(path.read_text())
    except (OSError, ValueError):  # `max` too
        return None
    return number if number < _UNLIMITED else None
