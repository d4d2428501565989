"""`build/engine.json`: what the tests of real engines measured. Several of them write it, each its own keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.machine import exclusive
from tests.cluster.paths import REPOSITORY, cache_root

REPORT = REPOSITORY / "build" / "engine.json"


def put(change: Callable[[dict[str, Any]], None], path: Path = REPORT) -> None:
    """Change the report in place, and leave what others wrote."""
    path.parent.mkdir(exist_ok=True)
    with exclusive(cache_root() / "locks" / "engine-report"):
        document = json.loads(path.read_text()) if path.exists() else {}
        change(document)
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(document, indent=2) + "\n")
        scratch.replace(path)


def put_heal(fault: str, detect: float, heal: float, path: Path = REPORT) -> None:
    """One row of `heal`, in place of an older one of the same fault. Seconds."""

    def change(document: dict[str, Any]) -> None:
        rows = [row for row in document.get("heal", []) if row["fault"] != fault]
        row = {"fault": fault, "detectSeconds": round(detect, 1), "healSeconds": round(heal, 1)}
        document["heal"] = [*rows, row]

    put(change, path)
