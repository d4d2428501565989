"""What the tests of a real engine share: its Python, our package as it is injected, a tiny model."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.engine.package import lay_package


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """A Python that has vLLM. Skips where none is named: `make test-engine` installs one."""
    named = os.environ.get("KINTSUGI_ENGINE_PYTHON")
    if not named:
        pytest.skip("KINTSUGI_ENGINE_PYTHON names no Python with vLLM: `make test-engine` installs one")
    return Path(named)


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with `kintsugi_engine` and its entry points."""
    return lay_package(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def tiny_llama(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny Llama."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    script = Path(__file__).with_name("tiny_llama.py")
    subprocess.run(
        [str(engine_python), str(script), str(folder)], check=True, capture_output=True, timeout=240
    )
    return folder
