"""A virtualenv with a real vLLM, made once for each machine: `python -m tests.engine.install` prints its Python.

The engine is a release of vLLM built for the CPU, with every package pinned by `engine-lock.txt`. It takes 5 GB.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Final

from tests.cluster.machine import Say, exclusive
from tests.cluster.paths import cache_root

LOCK: Final = Path(__file__).with_name("engine-lock.txt")

INSTALLER: Final = "uv==0.13.9"
"""Downloads in parallel: half a minute, where pip takes three."""

_DONE: Final = ".installed"

_UNUSED_SECONDS: Final = 21 * 24 * 3600.0


def engine_python(say: Say = lambda line: print(line, file=sys.stderr, flush=True)) -> Path:
    """The Python of the engine's virtualenv, which is made now if this machine has none for this lock.

    `KINTSUGI_ENGINE_PYTHON` names another one, which is then used as it is. Two processes that ask at once install
    once. Raises RuntimeError with the installer's words where it fails.
    """
    given = os.environ.get("KINTSUGI_ENGINE_PYTHON")
    if given:
        return Path(given)
    root = cache_root() / "engine"
    target = root / cache_key(LOCK.read_bytes())
    python = target / "bin" / "python"
    with exclusive(root / "lock"):
        if not (target / _DONE).exists():
            shutil.rmtree(target, ignore_errors=True)
            _install(target, python, say)
        (target / _DONE).touch()
        _remove_unused(root)
    return python


def cache_key(lock: bytes) -> str:
    """A name that changes with the packages, with the installer, and with the Python that runs them."""
    digest = hashlib.sha256(lock)
    digest.update(f"{INSTALLER} {sys.version} {sys.base_prefix}".encode())
    return digest.hexdigest()[:16]


def _install(target: Path, python: Path, say: Say) -> None:
    started = time.monotonic()
    say(f"installing a real vLLM into {target} (5 GB; a minute on a quick network)")
    target.parent.mkdir(parents=True, exist_ok=True)
    venv.create(target, with_pip=True)
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", INSTALLER])
    uv = target / "bin" / "uv"
    _run([str(uv), "pip", "install", "--quiet", "--python", str(python), "--no-deps", "-r", str(LOCK)])
    say(f"installed in {time.monotonic() - started:.0f} s")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:4])} … failed:\n{(done.stdout + done.stderr)[-4000:]}")


def _remove_unused(root: Path) -> None:
    """Remove the virtualenvs of other locks that nobody has asked for in weeks."""
    for folder in root.iterdir():
        if not folder.is_dir():
            continue
        mark = folder / _DONE
        used = (mark if mark.exists() else folder).stat().st_mtime
        if used < time.time() - _UNUSED_SECONDS:
            shutil.rmtree(folder)


if __name__ == "__main__":
    print(engine_python())
