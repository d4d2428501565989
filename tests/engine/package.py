"""The engine side's package as it comes into an engine: files on PYTHONPATH, found by vLLM through its entry points."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

from tests.cluster.paths import REPOSITORY


def lay_package(folder: Path) -> Path:
    """Copy `kintsugi_engine` with its metadata to `folder`, which is to stand on PYTHONPATH; returns it."""
    source = REPOSITORY / "engine" / "kintsugi_engine"
    shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder
