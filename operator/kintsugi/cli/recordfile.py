"""Files of saved pages: gzip or plain, and readable as far as they are whole: up to a cut, and around a damage."""

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from kintsugi.cli.gunzip import CHUNK, Run
from kintsugi.core.advisor.saved import SavedInvalid, SavedPage, saved_looks

_GZIP: Final = b"\x1f\x8b"


class RecordWriter:
    """Writes a gzip file. What was written before the last `flush` can be read whatever happens to the writer.

    A file to which nothing was written is removed again, so that it stands in nobody's way."""

    def __init__(self, path: Path) -> None:
        self.empty = True
        self._path = path
        self._file = path.open("xb")
        self._packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        self.bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            self._put(self._packer.flush())
        if self.empty:
            self._path.unlink(missing_ok=True)

    def write(self, text: str) -> None:
        """Add text; it is on disk only after `flush`."""
        self.empty = self.empty and not text
        self._put(self._packer.compress(text.encode()))

    def flush(self) -> None:
        """Bring everything so far to the file."""
        self._put(self._packer.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def _put(self, packed: bytes) -> None:
        self.bytes += len(packed)
        self._file.write(packed)


class RecordFile:
    """One file of saved pages, read as far as it can be. Once its looks were read, `note` says what was left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut = False
        """It ends in the middle."""
        self.damage = ""
        """What is wrong in the middle of it."""
        self.read = 0
        """Bytes read so far."""

    @property
    def note(self) -> str:
        """What is to be said of it; '' = it is whole."""
        if self.damage:
            return f"{self.path} is damaged ({self.damage}): the pages near the damage are left out, or may be wrong"
        return f"{self.path} ends in the middle of a page, which is left out" if self.cut else ""

    def looks(self) -> Iterator[SavedPage]:
        """Every look in it; the last page before a cut or a damage is left out. Raises SavedInvalid, OSError."""
        with self.path.open("rb") as file:
            if file.read(2) != _GZIP:
                file.seek(0)
                yield from saved_looks(_lines(self._plain(file), self.path, lambda: True), str(self.path))
                return
            start: int | None = 0
            some = False
            while start is not None:
                run = Run(file, start)
                for look in self._looks_of(run):
                    some = True
                    yield look
                self.damage = self.damage or run.damage
                self.cut = not run.whole
                self.read = max(self.read, file.tell())
                start = run.next
        if self.damage and not some:
            raise SavedInvalid(f"{self.path}: is damaged ({self.damage}): record it anew")

    def _looks_of(self, run: Run) -> Iterator[SavedPage]:
        held: SavedPage | None = None
        pieces = self._counted(run)
        try:
            for look in saved_looks(_lines(pieces, self.path, lambda: run.whole), str(self.path)):
                if held is not None:
                    yield held
                held = look
        except SavedInvalid:
            deque(pieces, 0)  # only at its end does a run know whether it is damaged
            if run.whole and not run.damage:
                raise
            if held is not None:
                yield held
            return
        if held is not None and run.whole:
            yield held

    def _counted(self, run: Run) -> Iterator[bytes]:
        for piece in run.pieces():
            self.read = max(self.read, run.at)
            yield piece

    def _plain(self, file: BinaryIO) -> Iterator[bytes]:
        while chunk := file.read(CHUNK):
            self.read += len(chunk)
            yield chunk


def _lines(pieces: Iterable[bytes], path: Path, whole: Callable[[], bool]) -> Iterator[str]:
    """Lines with their ends. Raises SavedInvalid where they are no text; half a line at the end of what is not `whole`,
    asked once the pieces were read, may be anything."""
    rest = b""
    try:
        for piece in pieces:
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            for line in lines:
                yield line.decode() + "\n"
        if rest:
            yield rest.decode(errors="strict" if whole() else "replace")
    except UnicodeDecodeError as error:
        raise SavedInvalid(f"{path}: is no text and no gzip file: {error.reason}") from error
