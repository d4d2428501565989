"""Sizes as people write them: bytes, or a number with a decimal or binary unit."""

import re
from typing import Final

_AMOUNT: Final = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kMGTP]?)(i?)[Bb]?\s*$")
_POWERS: Final = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def bytes_of(written: object) -> int | None:
    """`80Gi`, `80 GiB` and `85899345920` as bytes (`G`, `GB` are 10^9, `Gi`, `GiB` 2^30); None for anything else."""
    if isinstance(written, bool):
        return None
    if isinstance(written, int):
        return written if written > 0 else None
    found = _AMOUNT.match(written) if isinstance(written, str) and len(written) <= 64 else None
    if found is None or (found[3] and not found[2]):
        return None
    return round(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[found[2]]) or None
