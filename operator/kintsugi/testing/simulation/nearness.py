"""How near healthy engines come to the line of `throughput`: what docs/detectors.md tells users to look at in their fleet."""

import statistics
from dataclasses import dataclass, field
from typing import Final

from kintsugi.core.evidence import Memory

EVERY_SECONDS: Final = 60.0
"""As often as a Prometheus server commonly scrapes the operator."""
FEWEST: Final = 60
"""Values below which an instance has no 99 % quantile: an hour of them."""


@dataclass(slots=True)
class Nearness:
    """`lost_percent` of every instance of one pool, once a minute while it is known."""

    at: float = 0.0
    values: dict[str, list[float]] = field(default_factory=dict)
    """By pod UID, over all of its processes."""

    def note(self, t: float, memory: Memory) -> None:
        """One pass, at simulated second `t`."""
        if t < self.at:
            return
        self.at = t + EVERY_SECONDS
        for key, process in memory.processes.items():
            lost = process.slow.lost_percent()
            if lost is not None:
                self.values.setdefault(key.uid, []).append(lost)

    def worst(self) -> float | None:
        """The 99 % quantile of the instance where it is highest, percent; None where no instance has one."""
        enough = [values for values in self.values.values() if len(values) >= FEWEST]
        return max((quantile(values, 0.99) for values in enough), default=None)


def quantile(values: list[float], share: float) -> float:
    """Between two values in proportion, as Prometheus' `quantile_over_time`. `share` in whole hundredths below 1."""
    return statistics.quantiles(values, n=100, method="inclusive")[round(100 * share) - 1]
