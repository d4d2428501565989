"""Numbers as vLLM's command line takes them: `8192`, `8k` (8,000), `8K` (8,192), `25.6k`."""

import re
from typing import Final

_NUMBER: Final = re.compile(r"^(-?\d+)$|^(\d+(?:\.\d+)?)([kKmMgGtT])$", re.ASCII)
_POWERS: Final = {"k": 1, "m": 2, "g": 3, "t": 4}
_LONGEST: Final = 32


def whole(text: str | None) -> int | None:
    """The whole number that the engine reads; None where it would refuse the text, or there is none."""
    found = _NUMBER.match(text.strip()) if text and len(text) <= _LONGEST else None
    if found is None:
        return None
    if found[1]:
        return int(found[1])
    unit = found[3]
    if unit.isupper():  # binary units take no decimals
        return int(found[2]) * 1024 ** _POWERS[unit.lower()] if "." not in found[2] else None
    return int(float(found[2]) * 1000 ** _POWERS[unit])


def share(text: str | None) -> float | None:
    """A number such as `--gpu-memory-utilization` takes; None for anything else, infinities and NaN included."""
    try:
        value = float(text) if text and len(text) <= _LONGEST else None
    except ValueError:
        return None
    return value if value is not None and abs(value) < float("inf") else None
