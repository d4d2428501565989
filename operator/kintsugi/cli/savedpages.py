"""Pages that were saved to files, for commands that read traffic."""

from collections.abc import Iterator
from pathlib import Path

from kintsugi.cli.recordfile import RecordFile
from kintsugi.core.advisor.saved import SavedPage


def pages_in(source: Path) -> Iterator[SavedPage]:
    """Every page of a file or of a folder's files, plain or as `kintsugi record` writes them. Looks that gave no page are
    left out. Raises SavedInvalid, OSError."""
    files = sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
    for path in files:
        yield from (look for look in RecordFile(path).looks() if "failed" not in look.facts)
