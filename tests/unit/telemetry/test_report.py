"""The report of the engine tests keeps what others wrote."""

import json
from pathlib import Path

from tests.engine.report import put, put_heal


def test_each_writer_changes_its_own_keys(tmp_path: Path) -> None:
    path = tmp_path / "build" / "engine.json"
    put(lambda document: document.update(native={"a": 1}), path)
    put_heal("idle", 61.04, 70, path)
    put_heal("busy", 62, 71, path)
    put_heal("idle", 63, 72, path)
    assert json.loads(path.read_text()) == {
        "native": {"a": 1},
        "heal": [
            {"fault": "busy", "detectSeconds": 62, "healSeconds": 71},
            {"fault": "idle", "detectSeconds": 63, "healSeconds": 72},
        ],
    }
