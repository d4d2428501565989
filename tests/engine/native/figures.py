"""`build/engine.json`: the figures that this build measured, one key for each part."""

import json
import os
from typing import Any, Final

from tests.cluster.machine import exclusive
from tests.cluster.paths import REPOSITORY

FILE: Final = REPOSITORY / "build" / "engine.json"


def record(key: str, figures: Any) -> None:
    """Write one key; what others wrote stays."""
    FILE.parent.mkdir(exist_ok=True)
    with exclusive(FILE.with_suffix(".lock")):
        found = json.loads(FILE.read_text()) if FILE.exists() else {}
        found[key] = figures
        made = FILE.with_suffix(".new")
        made.write_text(json.dumps(found, indent=1) + "\n")
        os.replace(made, FILE)
