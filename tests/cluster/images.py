"""The project's images in a cluster's registry: built from its Dockerfiles, and only when something has changed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import buildah, dockerfile, paths
from tests.cluster.base_image import base_archive
from tests.cluster.machine import Say, exclusive, silent
from tests.cluster.names import REGISTRY
from tests.cluster.registry_store import RegistryStore

_LOCAL = "localhost/kintsugi"
_KEPT = 8
"""How many images of a name stay whatever their age, where nobody says."""
_UNUSED_SECONDS = 6 * 3600.0
"""Beyond those, one that nobody has asked for this long goes: a cluster that runs may still want it."""


def build_image(
    path: Path,
    context: Path,
    name: str,
    *,
    arguments: Mapping[str, str] | None = None,
    base: str | None = None,
    kept: int = _KEPT,
    say: Say = silent,
) -> str:
    """The reference by which any cluster pulls the image of the Dockerfile at `path`: `registry/name:key`.

    The key names the content: the Dockerfile, the files that it copies out of `context`, the arguments and the base. An
    image that the registry has under that key is not built again; clusters share its storage and need not be up. `base`, another image's reference
    from here, goes in as the argument BASE; without it that is a small Debian with Python. `kept`: how many images of the
    name stay whatever their age. Raises
    buildah.BuildFailed, or FileNotFoundError for a file that the Dockerfile copies and the context lacks.
    """
    text = path.read_text()
    files = dockerfile.context_files(context, dockerfile.copied(text))
    arguments = dict(arguments or {})
    archive = base_archive(say) if base is None else None
    key = dockerfile.content_key(text, context, files, arguments, base or str(archive and archive.name))
    reference = f"{REGISTRY}/{name}:{key}"
    registry = RegistryStore()
    if registry.has(name, key):
        registry.touch(name, key)
        return reference
    with exclusive(paths.cache_root() / "images" / "build.lock"):
        if registry.has(name, key):
            return reference
        local = f"{_LOCAL}/{name}:{key}"
        if not buildah.has(local):
            arguments["BASE"] = _local_name(base) if base else _base_image(archive, say)
            say(f"building the image {name}")
            with tempfile.TemporaryDirectory(prefix="kintsugi-context-") as scratch:
                _copy(context, files, Path(scratch))
                buildah.build(path, Path(scratch), local, arguments)
        with tempfile.TemporaryDirectory(prefix=".push-", dir=_same_file_system()) as scratch:
            buildah.export(local, Path(scratch) / "image")
            registry.put(name, key, Path(scratch) / "image")
        registry.prune(name, kept, _UNUSED_SECONDS)
        buildah.keep_small()
    return reference


def _same_file_system() -> Path:
    """A place from which files can be moved into the registry's storage."""
    paths.registry_root().mkdir(parents=True, exist_ok=True)
    return paths.registry_root()


def _local_name(reference: str) -> str:
    return f"{_LOCAL}/{reference.removeprefix(f'{REGISTRY}/')}"


def _base_image(archive: Path | None, say: Say) -> str:
    assert archive is not None
    name = f"localhost/kintsugi-base:{archive.stem.removeprefix('base-')}"
    if not buildah.has(name):
        say("unpacking the base image")
        with tempfile.TemporaryDirectory(prefix=".context-", dir=archive.parent) as scratch:
            (Path(scratch) / "base.tar").hardlink_to(archive)
            recipe = Path(scratch) / "Dockerfile"
            recipe.write_text('FROM scratch\nADD base.tar /\nCMD ["/bin/sh"]\n')
            buildah.build(recipe, Path(scratch), name, {})
    return name


def _copy(context: Path, files: list[Path], target: Path) -> None:
    """A context that holds the files that were looked at for the key and no others."""
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(context / file, target / file, follow_symlinks=True)
