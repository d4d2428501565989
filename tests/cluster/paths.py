"""Where the local cluster keeps its things on this machine."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


def cache_root() -> Path:
    """The folder under the user's cache for everything that outlives a cluster."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kintsugi"


def binaries_root() -> Path:
    return cache_root() / "cluster"


def registry_root() -> Path:
    """Layers that were pushed once stay here, so that the next cluster need not be sent them again."""
    return cache_root() / "registry"


def states_root() -> Path:
    """One folder for each cluster that is up.

    It lies beside the caches, on the same file system, so that a node's image store can share files with them.
    """
    return cache_root() / "run"


def state_dir(name: str) -> Path:
    return states_root() / name


def machine_mark() -> str:
    """Tells this machine from another that shares its kernel, as one in namespaces of its own does: 4 letters."""
    root = states_root()
    root.mkdir(parents=True, exist_ok=True)
    found = root.stat()
    return hashlib.sha256(f"{found.st_dev} {found.st_ino}".encode()).hexdigest()[:4]


def lock_of(name: str) -> Path:
    """The file that a command locks while it makes or removes a cluster."""
    return cache_root() / "locks" / name
