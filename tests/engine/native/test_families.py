"""Common families of models are served as they are without a cache: windows, experts, sinks, tied and learnt positions."""

import json
import os
import subprocess
from pathlib import Path

from tests.engine.native.served import START_SECONDS, environment


def test_slots_and_no_cache_agree_on_models_of_common_families(
    engine_python: Path, package: Path, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("families.py")
    done = subprocess.run(
        [str(engine_python), str(script), str(tmp_path)], capture_output=True, text=True, timeout=START_SECONDS,
        check=False, env=os.environ | environment(package),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert len(found) == 7
    assert all(distance is not None and distance < 1e-5 for distance in found.values()), found
