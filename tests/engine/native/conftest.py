"""What the native runtime's tests share: tiny models, and servers of them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.native.served import Served, serve


def written(python: Path, folder: Path, *words: str) -> Path:
    """A tiny DeepSeek-V4 in `folder`."""
    script = Path(__file__).with_name("tiny_v4.py")
    subprocess.run(
        [str(python), str(script), str(folder), *words], check=True, capture_output=True, timeout=240
    )
    return folder


@pytest.fixture(scope="session")
def tiny_v4(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DeepSeek-V4 whose sparse layers attend to all entries of the longest prompt: no ties of the index."""
    return written(engine_python, tmp_path_factory.mktemp("tiny-v4"))


@pytest.fixture(scope="session")
def sparse_v4(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DeepSeek-V4 whose sparse layers attend to 64 entries, so that prompts above 256 tokens lose some."""
    return written(engine_python, tmp_path_factory.mktemp("sparse-v4"), "64")


@pytest.fixture(scope="module")
def server(
    engine_python: Path, package: Path, tiny_v4: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """The tiny DeepSeek-V4, served with 12 slots of 4096 tokens and room for 56 requests."""
    words = ["--max-model-len", "4K", "--max-num-seqs", "12", "--max-num-queued-reqs", "56"]
    with serve(engine_python, package, tiny_v4, tmp_path_factory.mktemp("native"), *words) as served:
        yield served
