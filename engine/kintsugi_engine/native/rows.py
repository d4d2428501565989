"""Which slots one pass through the model works on, and where each of them stands."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Rows:
    """`width` new tokens for each row. Either one row of any width (a piece of a prompt), or many rows of width 1."""

    slots: torch.Tensor
    """Slot of each row, [B]."""
    starts: torch.Tensor
    """Tokens that each slot held before this pass, [B]."""
    width: int
    end: int
    """The most tokens that any of the slots holds after this pass."""
    run: slice | None
    """The slots as a slice, where they lie one after the other: read in place, without a copy."""

    @property
    def one(self) -> int:
        """The slot of a pass over a piece of a prompt."""
        return int(self.slots[0])

    @property
    def start(self) -> int:
        """Tokens before a piece of a prompt."""
        return int(self.starts[0])

    @property
    def positions(self) -> torch.Tensor:
        """Position of every new token, [B, width]."""
        return self.starts[:, None] + torch.arange(self.width, device=self.starts.device)

    def of(self, store: torch.Tensor) -> torch.Tensor:
        """The rows' part of a store with a slot as its first dimension."""
        return store[self.run] if self.run is not None else store[self.slots]


def rows(slots: Sequence[int], starts: Sequence[int], width: int, device: torch.device) -> Rows:
    """A pass over `slots`, which hold `starts` tokens now."""
    if width > 1 and len(slots) > 1:
        raise ValueError("only one row may be wider than one token")
    first = slots[0]
    beside = list(slots) == list(range(first, first + len(slots)))
    return Rows(
        torch.tensor(slots, device=device),
        torch.tensor(starts, device=device),
        width,
        max(starts) + width,
        slice(first, first + len(slots)) if beside else None,
    )
