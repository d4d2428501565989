"""A row of slots, newest first, each known to be set, known not to be, or unknown: evidence over time in two numbers."""

from dataclasses import dataclass
from typing import Final

KNOWN_SHARE: Final = 0.6
"""Share of the slots that must be known (slow §3)."""
SET_SHARE: Final = 0.8
"""Share of the known slots that must be set (slow §3)."""
OLDEST_SHARE: Final = 0.9
"""From here on begins the oldest tenth, in which one slot must be set, so that it has truly lasted (slow §3)."""


@dataclass(slots=True)
class Register:
    """Two integers used as shift registers."""

    known_bits: int = 0
    set_bits: int = 0

    def shift(self, slots: int, value: bool | None, length: int) -> None:
        """Move on by `slots` (those in between are unknown), write the newest, keep `length` slots. None = unknown.

        With 0 slots the newest is written again: what is unknown then leaves it as it was.
        """
        if value is None and not self.known_bits:
            return
        if slots > 0:
            mask = (1 << length) - 1
            far = min(slots, length)
            self.known_bits = self.known_bits << far & mask
            self.set_bits = self.set_bits << far & mask
        if value is None:
            return
        self.known_bits |= 1
        self.set_bits = self.set_bits | 1 if value else self.set_bits & ~1

    def known(self, length: int) -> int:
        """Known slots of the newest `length`."""
        return (self.known_bits & ((1 << length) - 1)).bit_count()

    def set(self, length: int) -> int:
        """Set slots of the newest `length`."""
        return (self.set_bits & ((1 << length) - 1)).bit_count()

    def newest(self) -> bool:
        """Whether the newest slot is set."""
        return bool(self.set_bits & 1)

    def mostly(self, length: int) -> bool:
        """Enough of the newest `length` slots are known, and most of those are set."""
        known = self.known(length)
        return known >= KNOWN_SHARE * length and known > 0 and self.set(length) >= SET_SHARE * known

    def sustained(self, length: int) -> bool:
        """`mostly`, and the oldest tenth has a set slot too."""
        oldest = self.set_bits & ((1 << length) - 1)
        return self.mostly(length) and oldest >> int(OLDEST_SHARE * length) != 0
