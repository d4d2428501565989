"""Gzip files that may be cut or damaged: runs of text that can be read, one after the other."""

import re
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from kintsugi.core.advisor.saved import MARK

CHUNK: Final = 1 << 16
HEADER: Final = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]", re.DOTALL)
"""How a gzip member begins; such bytes may stand in packed data by chance, too."""
TAIL: Final = "bytes that are no record follow it"
_PEEKED: Final = 4096


class Run:
    """What can be read from `start`, the beginning of a member: it, and those that follow it as `cat` joins them.

    Once `pieces` was read to its end: `whole` says whether its last member is, `damage` what is wrong with it, `next`
    where another run begins.
    """

    def __init__(self, file: BinaryIO, start: int) -> None:
        self._file = file
        self.at = start
        """Bytes of the file that were read."""
        self._member = start
        self.whole = False
        self.damage = ""
        self.next: int | None = None

    def pieces(self) -> Iterator[bytes]:
        """Its text, piece by piece."""
        unpacker, fresh = zlib.decompressobj(31), True
        while left := self._chunk():
            while left:
                if unpacker.eof:
                    self._member = self.at - len(left)
                    if left[0] != 0x1F:
                        self._end(TAIL, True)
                        return
                    unpacker, fresh = zlib.decompressobj(31), True
                before = unpacker.copy()
                try:
                    piece = unpacker.decompress(left)
                except zlib.error as error:
                    last = _last(before, left)
                    yield last
                    self._end(str(error), fresh and not last and self._member > 0)
                    return
                fresh = fresh and not piece
                yield piece
                left = unpacker.unused_data
        if not unpacker.eof and fresh and self._member > 0:
            self._end(TAIL, True)
        self.whole = unpacker.eof or bool(self.damage)

    def _chunk(self) -> bytes:
        self._file.seek(self.at)
        chunk = self._file.read(CHUNK)
        self.at += len(chunk)
        return chunk

    def _end(self, damage: str, whole: bool) -> None:
        self.damage, self.whole = damage, whole
        self.next = member_after(self._file, self._member + 1)


def member_after(file: BinaryIO, start: int) -> int | None:
    """Where the next member that begins with a page begins, at `start` or later."""
    at = start
    while True:
        file.seek(at)
        chunk = file.read(CHUNK + 3)
        for found in HEADER.finditer(chunk):
            if found.start() < CHUNK and _begins(file, at + found.start()):
                return at + found.start()
        if len(chunk) <= CHUNK:
            return None
        at += CHUNK


def _begins(file: BinaryIO, start: int) -> bool:
    file.seek(start)
    return _last(zlib.decompressobj(31), file.read(_PEEKED)).startswith(MARK.encode())


def _last(unpacker: Any, packed: bytes) -> bytes:
    """All that can be unpacked before the first byte that can't."""
    found = []
    try:
        for n in range(len(packed)):
            found.append(unpacker.decompress(packed[n : n + 1]))
    except zlib.error:
        pass
    return b"".join(found)
