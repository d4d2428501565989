"""Files of saved pages: gzip or plain, and readable up to the last whole page where the writing was interrupted."""

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kintsugi.core.advisor.saved import SavedInvalid, SavedPage, saved_looks

CHUNK: Final = 1 << 16
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
    """One file of saved pages. `cut` is True once its looks were read and it turned out to end in the middle."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut = False
        self.read = 0
        """Bytes read so far."""

    def looks(self) -> Iterator[SavedPage]:
        """Every look in it; the last page of a file that ends in the middle is left out. Raises SavedInvalid, OSError."""
        held: SavedPage | None = None
        for look in saved_looks(self._lines(), str(self.path)):
            if held is not None:
                yield held
            held = look
        if held is not None and not self.cut:
            yield held

    def _lines(self) -> Iterator[str]:
        rest = ""
        try:
            for piece in self._pieces():
                lines = (rest + piece).split("\n")
                rest = lines.pop()
                for line in lines:
                    yield line + "\n"
        except UnicodeDecodeError as error:
            raise SavedInvalid(f"{self.path}: is no text and no gzip file: {error.reason}") from error
        if rest:
            yield rest

    def _pieces(self) -> Iterator[str]:
        """Its text, piece by piece, each of whole characters."""
        rest = b""
        for raw in self._raw():
            whole = rest + raw
            end = whole.rfind(b"\n") + 1
            rest = whole[end:]
            yield whole[:end].decode()
        yield rest.decode(errors="replace" if self.cut else "strict")

    def _raw(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            chunks = self._counted(iter(lambda: file.read(CHUNK), b""))
            try:
                yield from self._unpacked(chunks) if packed else chunks
            except zlib.error as error:
                raise SavedInvalid(f"{self.path}: is damaged ({error}): record it anew") from error

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.read += len(chunk)
            yield chunk

    def _unpacked(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Members of a gzip file one after the other, as `cat` joins them."""
        unpacker = zlib.decompressobj(31)
        for chunk in chunks:
            left = chunk
            while left:
                if unpacker.eof:
                    unpacker = zlib.decompressobj(31)
                yield unpacker.decompress(left)
                left = unpacker.unused_data
        self.cut = not unpacker.eof
