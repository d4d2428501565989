"""The package is laid so that an engine of another image finds it and its entry points."""

import subprocess
import sys
from pathlib import Path

from kintsugi_engine import inject

ASK = (
    "import importlib.metadata as m, kintsugi_engine; print(kintsugi_engine.__file__);"
    "print([point.value for point in m.entry_points(group='vllm.general_plugins')])"
)


def test_an_interpreter_without_the_package_finds_it_with_its_entry_points(tmp_path: Path) -> None:
    assert inject.main([str(tmp_path)]) == 0
    assert inject.main([str(tmp_path)]) == 0, "a container that starts again finds its folder as it was left"
    done = subprocess.run(
        [sys.executable, "-S", "-c", ASK], capture_output=True, text=True, check=True, cwd="/",
        env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    where, points = done.stdout.splitlines()
    assert where == str(tmp_path / "kintsugi_engine" / "__init__.py")
    assert points == "['kintsugi_engine.plugin:register']"


def test_a_folder_that_cannot_be_written_is_said() -> None:
    assert inject.main(["/proc/nowhere"]) == 1
