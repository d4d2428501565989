"""Putting an image into the registry's storage, which outlives the clusters, with no registry running.

The layout is that of the `filesystem` driver of registry 2.x (its docs, "storage driver path layout"): blobs by digest,
and in each repository links to those that it may serve. A push over HTTP would pack each layer, which costs a cluster
on two cores three times what the build does.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from tests.cluster.paths import registry_root


class RegistryStore:
    """The storage below `root`. Concurrent writers do no harm: every file is named by its content and moved in whole."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = (root or registry_root()) / "docker/registry/v2"

    def has(self, name: str, tag: str) -> bool:
        """Whether `name`:`tag` can be pulled."""
        return (self._tag(name, tag) / "current/link").exists()

    def put(self, name: str, tag: str, folder: Path) -> None:
        """Take in the image that lies in `folder` as buildah's `dir:` transport leaves it; its files are moved."""
        manifest = (folder / "manifest.json").read_bytes()
        digest = hashlib.sha256(manifest).hexdigest()
        repository = self._root / "repositories" / name
        for blob in _blobs(manifest):
            self._move_blob(folder / blob, blob)
            _link(repository / "_layers/sha256" / blob, blob)
        self._move_blob(folder / "manifest.json", digest)
        _link(repository / "_layers/sha256" / digest, digest)
        _link(repository / "_manifests/revisions/sha256" / digest, digest)
        _link(self._tag(name, tag) / "index/sha256" / digest, digest)
        _link(self._tag(name, tag) / "current", digest)

    def tags(self, name: str) -> list[str]:
        """The tags of a repository, newest first."""
        folder = self._root / "repositories" / name / "_manifests/tags"
        if not folder.is_dir():
            return []
        found = sorted(folder.iterdir(), key=lambda tag: tag.stat().st_mtime, reverse=True)
        return [tag.name for tag in found]

    def _tag(self, name: str, tag: str) -> Path:
        return self._root / "repositories" / name / "_manifests/tags" / tag

    def _move_blob(self, file: Path, digest: str) -> None:
        target = self._root / "blobs/sha256" / digest[:2] / digest / "data"
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            os.replace(file, target)


def _blobs(manifest: bytes) -> Iterable[str]:
    document = json.loads(manifest)
    for part in (document["config"], *document["layers"]):
        yield part["digest"].removeprefix("sha256:")


def _link(folder: Path, digest: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".link.{os.getpid()}"
    new.write_text(f"sha256:{digest}")
    new.rename(folder / "link")
