"""Greedy tokens of the native runtime are those of the model without a cache, however requests come and go."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.engine.package import lay_package
from tests.engine.report import put

SECONDS = 900


def measured(python: Path, model: Path, tmp_path: Path) -> dict[str, Any]:
    """What `greedy.py` says of a model."""
    package = lay_package(tmp_path / "package")
    script = Path(__file__).with_name("greedy.py")
    done = subprocess.run(
        [str(python), str(script), str(model)], check=False, capture_output=True, timeout=SECONDS, text=True,
        env=os.environ | {"PYTHONPATH": str(package), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def held(found: dict[str, Any]) -> None:
    """What must be true of any model."""
    assert found["wrong"] == []
    assert found["requests"] == 32
    assert found["equalTokens"] > 300
    assert found["tiedTokens"] <= 2, "more ties than rounding explains"
    assert found["mostAtOnce"] == 8, "the slots were never all in use, so nothing was shown"
    assert found["freed"]


@pytest.mark.timeout(SECONDS + 60)
def test_deepseek_v4_writes_what_it_writes_without_a_cache(
    engine_python: Path, tiny_v4: Path, tmp_path: Path
) -> None:
    found = measured(engine_python, tiny_v4, tmp_path)
    held(found)
    figures = {
        "batchedTokensPerSecond": round(found["batched"], 1),
        "oneByOneTokensPerSecond": round(found["oneByOne"], 1),
    }
    put(lambda document: document.update(native=figures))
    assert found["batched"] > 2 * found["oneByOne"], "16 rows together bring less than twice one alone"


@pytest.mark.timeout(SECONDS + 60)
def test_deepseek_v4_picks_the_same_entries_where_it_cannot_attend_to_all(
    engine_python: Path, sparse_v4: Path, tmp_path: Path
) -> None:
    held(measured(engine_python, sparse_v4, tmp_path))


@pytest.mark.timeout(SECONDS + 60)
def test_llama_writes_what_it_writes_without_a_cache(
    engine_python: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    found = measured(engine_python, tiny_llama, tmp_path)
    held(found)
    assert found["batched"] > 2 * found["oneByOne"], "16 rows together bring less than twice one alone"
