"""What the asker adds to the spec."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LENGTHS: Final = (1024, 4096, 8192, 32_768, 131_072, 262_144, 1_048_576)
"""Request lengths in tokens that are shown unless others are asked for."""
MEAN_LENGTH: Final = 8192


@dataclass(frozen=True, slots=True)
class Options:
    """The defaults ask nothing special."""

    lengths: tuple[int, ...] = LENGTHS
    demand: Mapping[int, int] = field(default_factory=dict)
    """Requests at the same time, by their length in tokens: each goes to the smallest pool that takes it."""
    tokens_per_second: float | None = None
    """Output tokens of one instance, where somebody measured them."""
    mean_length: int | None = None
    """For the formulas; None: the demand's own, else 8,192 or the context where that is less."""
    offload_factor: float | None = None
    """Host bytes per byte of offload; None: what is known of the engine's version."""

    def mean(self, context: int) -> int:
        """The mean length of a request in a pool of that context."""
        told = self.mean_length
        if told is None and self.demand and sum(self.demand.values()):
            told = round(sum(n * many for n, many in self.demand.items()) / sum(self.demand.values()))
        return max(1, min(told or MEAN_LENGTH, context))
