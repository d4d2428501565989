"""`kintsugi-engine inject FOLDER`, for an init container: lay this package where an engine of another image finds it.

Copies the package and its metadata, so that with FOLDER on PYTHONPATH vLLM finds the entry points, as if the package
had been installed. Nothing in it is compiled, so it fits every Python from 3.11 on.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "kintsugi"
_METADATA: Final = ("METADATA", "entry_points.txt")


def main(words: Sequence[str]) -> int:
    """Exit code 0 once the package lies there, 1 where it can't."""
    parser = argparse.ArgumentParser(prog="kintsugi-engine inject", allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(words).folder
    try:
        lay(folder)
    except (OSError, PackageNotFoundError) as error:
        print(f"kintsugi-engine inject: {error}", file=sys.stderr)
        return 1
    return 0


def lay(folder: Path) -> None:
    """Copy the package and its metadata; what lies there of an earlier start is replaced."""
    source = Path(__file__).parent
    shutil.copytree(
        source, folder / source.name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    found = distribution(DISTRIBUTION)
    info = folder / f"{DISTRIBUTION}-{found.version}.dist-info"
    info.mkdir(exist_ok=True)
    for name in _METADATA:
        if text := found.read_text(name):
            (info / name).write_text(text)
