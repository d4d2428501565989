"""Pages that were saved to files, for commands that read traffic."""

from collections.abc import Iterator
from pathlib import Path

import click

from kintsugi.cli.recordfile import RecordFile
from kintsugi.core.advisor.saved import SavedPage


def pages_in(source: Path) -> Iterator[SavedPage]:
    """Every page of a file or of a folder's files, plain or as `kintsugi record` writes them. Looks that gave no page are
    left out, and what is wrong with a file is told on stderr. Raises SavedInvalid, OSError."""
    files = sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
    for path in files:
        file = RecordFile(path)
        yield from (look for look in file.looks() if "failed" not in look.facts)
        if file.note:
            click.echo(f"Note: {file.note}", err=True)
