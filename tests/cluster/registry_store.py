"""Putting an image into the registry's storage, which outlives the clusters, with no registry running.

The layout is that of the `filesystem` driver of registry 2.x (its docs, "storage driver path layout"): blobs by digest,
and in each repository links to those that it may serve. A push over HTTP would pack each layer, which costs a cluster
on two cores three times what the build does.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
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

    def touch(self, name: str, tag: str) -> None:
        """Remember that the tag is in use."""
        os.utime(self._tag(name, tag))

    def prune(self, name: str, keep: int, unused_seconds: float) -> list[str]:
        """Remove tags beyond the `keep` newest that nobody has used for so long, and what only they held.

        Returns the removed tags. Blobs that came within that time stay, for an image that is just being put in.
        """
        limit = time.time() - unused_seconds
        old = [tag for tag in self.tags(name)[keep:] if self._tag(name, tag).stat().st_mtime < limit]
        for tag in old:
            shutil.rmtree(self._tag(name, tag))
        if old:
            needed = self._needed()
            for data in (self._root / "blobs/sha256").glob("*/*/data"):
                if data.parent.name not in needed and data.stat().st_mtime < limit:
                    shutil.rmtree(data.parent)
        return old

    def _needed(self) -> set[str]:
        """The digests of all manifests that have a tag, and of all that these name."""
        links = (self._root / "repositories").glob("**/_manifests/tags/*/current/link")
        manifests = {link.read_text().removeprefix("sha256:") for link in links}
        needed = set(manifests)
        for digest in manifests:
            needed.update(_blobs((self._root / "blobs/sha256" / digest[:2] / digest / "data").read_bytes()))
        return needed

    def _tag(self, name: str, tag: str) -> Path:
        return self._root / "repositories" / name / "_manifests/tags" / tag

    def _move_blob(self, file: Path, digest: str) -> None:
        target = self._root / "blobs/sha256" / digest[:2] / digest / "data"
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            os.replace(file, target)
        os.utime(target)


def _blobs(manifest: bytes) -> Iterable[str]:
    document = json.loads(manifest)
    for part in (document["config"], *document["layers"]):
        yield part["digest"].removeprefix("sha256:")


def _link(folder: Path, digest: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".link.{os.getpid()}"
    new.write_text(f"sha256:{digest}")
    new.rename(folder / "link")
