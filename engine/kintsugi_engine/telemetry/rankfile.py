"""One small JSON file for each rank, with the time of its sample: what an engine that hangs last knew, and since when.

Written by the process that measures, read by the API process and by people. A file is replaced as a whole.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kintsugi_engine.contract import TELEMETRY_DIR_VARIABLE

FORMAT: Final = 1

STALE_SECONDS: Final = 24 * 3600.0
"""Files of other engines are removed when they are this old; one that may still run is left alone."""


def folder() -> Path:
    """Where the files of this engine lie; not made yet."""
    given = os.environ.get(TELEMETRY_DIR_VARIABLE)
    return Path(given) if given else Path(tempfile.gettempdir()) / f"kintsugi-telemetry-{os.getuid()}"


class RankFile:
    """The file of one rank of one engine process."""

    def __init__(self, where: Path, instance: str, kind: str, rank: str) -> None:
        self._path = where / f"{kind}-{_plain(rank)}-{_plain(instance)}.json"
        self._head = {"format": FORMAT, "instance": instance, "kind": kind, "rank": rank, "pid": os.getpid()}

    def write(self, sample: Mapping[str, Any]) -> None:
        """Replace the file. Raises OSError where it cannot be written."""
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        scratch = self._path.with_suffix(f".{os.getpid()}.new")
        scratch.write_text(json.dumps({**self._head, **sample}), encoding="utf-8")
        scratch.replace(self._path)


def read(where: Path, instance: str) -> Iterator[dict[str, Any]]:
    """The samples of one engine, of all its ranks. What cannot be read, or was written otherwise, is left out."""
    return (found for found in _all(where) if _same(found, instance))


def last_records(where: Path, now: float) -> list[dict[str, Any]]:
    """What each rank in this container wrote last, with its `age` in seconds at `now` (epoch seconds), by kind and rank.

    Whichever process wrote it: after a restart that came to no sample, the age tells that it is of the one before.
    """
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for found in _all(where):
        key, at = (str(found.get("kind")), str(found.get("rank"))), found.get("at")
        if isinstance(at, int | float) and (key not in newest or newest[key]["at"] < at):
            newest[key] = found
    return [{**found, "age": round(max(0.0, now - found["at"]), 3)} for _, found in sorted(newest.items())]


def _all(where: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(where.glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(found, dict) and found.get("format") == FORMAT:
                yield found


def remove_stale(where: Path, instance: str, now: float) -> None:
    """Remove what engines left here that ended long ago (`now`: epoch seconds)."""
    for path in where.glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            if path.stat().st_mtime < now - STALE_SECONDS and not _same(
                json.loads(path.read_text()), instance
            ):
                path.unlink()


def _same(found: Mapping[str, Any], instance: str) -> bool:
    """vLLM names the ranks of a data-parallel engine INSTANCE_dpN."""
    name = str(found.get("instance", ""))
    return name == instance or name.startswith(f"{instance}_dp")


def _plain(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in text)[:64]
