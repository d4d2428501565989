"""Which files of its context a Dockerfile's result depends on."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

_IGNORED = {
    "__pycache__",
    ".git",
    ".venv",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "build",
}
"""Folders that are never sent to a build: what they hold differs from machine to machine."""


def copied(dockerfile: str) -> list[str]:
    """The sources of all COPY and ADD instructions that come out of the context, as written, in order."""
    joined = re.sub(r"\\\n", " ", dockerfile)
    sources: list[str] = []
    for line in joined.splitlines():
        found = re.match(r"\s*(COPY|ADD)\s+(.*)", line, re.IGNORECASE)
        if found is None:
            if re.match(r"\s*RUN\s+.*--mount=\S*type=bind(?!\S*from=)", line, re.IGNORECASE):
                sources.append(".")
            continue
        words = shlex.split(found.group(2).strip().strip("[]").replace(",", " "))
        options = [word for word in words if word.startswith("--")]
        if not any(option.startswith("--from=") for option in options):
            sources.extend([word for word in words if word not in options][:-1])
    return sources


def context_files(context: Path, sources: Iterable[str]) -> list[Path]:
    """All files below `context` that the sources name, relative to it, in a fixed order.

    Raises FileNotFoundError for a source that names none.
    """
    found: set[Path] = set()
    for source in sources:
        matches = sorted(context.glob(source.lstrip("/"))) if source.strip("./") else [context]
        if not matches:
            raise FileNotFoundError(f"the Dockerfile copies {source!r}, which {context} does not have")
        for match in matches:
            found.update(_below(match) if match.is_dir() else [match])
    return sorted(file.relative_to(context) for file in found)


def _below(folder: Path) -> Iterable[Path]:
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _IGNORED and not name.endswith(".egg-info")]
        yield from (Path(where) / name for name in files if not name.endswith(".pyc"))


def content_key(
    dockerfile: str, context: Path, files: Iterable[Path], arguments: Mapping[str, str], base: str
) -> str:
    """A name for what the build makes: it changes with the Dockerfile, a file's path, mode or bytes, or an argument."""
    digest = hashlib.sha256(repr((dockerfile, sorted(arguments.items()), base)).encode())
    for file in files:
        path = context / file
        digest.update(f"{file}\0{path.stat().st_mode & 0o777:o}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:20]
