"""What a Prometheus histogram tells: counts between edges, taken apart, added and asked for quantiles."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

OPEN_END: Final = 2.0
"""The bucket above the last edge is taken to reach this many times as far as that edge: the engines' edges go up in
steps of 2 to 2.5, so one more bucket of the usual width."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """`count` observations above `low` and up to `high`."""

    low: float
    high: float
    count: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2.0


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by (low, high). Empty where nothing was observed."""

    counts: Mapping[tuple[float, float], float] = field(default_factory=dict)
    total: float = 0.0
    """The sum of what was observed."""

    def __iter__(self) -> Iterator[Bucket]:
        """The buckets that hold something, lowest first."""
        return (Bucket(*edges, count) for edges, count in sorted(self.counts.items()) if count > 0)

    @property
    def count(self) -> float:
        return math.fsum(self.counts.values())

    @property
    def mean(self) -> float | None:
        """The mean, from the sum that the engine keeps; None where nothing was observed."""
        return self.total / self.count if self.count > 0 else None

    def since(self, earlier: "Histogram") -> "Histogram":
        """What came after `earlier` was read from the same process."""
        counts = {
            edges: max(0.0, count - earlier.counts.get(edges, 0.0)) for edges, count in self.counts.items()
        }
        return Histogram(counts, max(0.0, self.total - earlier.total))

    def plus(self, other: "Histogram") -> "Histogram":
        """Both together; their edges may differ."""
        counts = dict(self.counts)
        for edges, count in other.counts.items():
            counts[edges] = counts.get(edges, 0.0) + count
        return Histogram(counts, self.total + other.total)

    def quantile(self, share: float) -> float | None:
        """The value that `share` (0 to 1) of the observations do not exceed, as if a bucket were evenly filled."""
        wanted, passed, last = share * self.count, 0.0, None
        for bucket in self:
            if passed + bucket.count >= wanted:
                inside = (wanted - passed) / bucket.count
                return bucket.low + inside * (bucket.high - bucket.low)
            passed, last = passed + bucket.count, bucket.high
        return last

    def share_above(self, value: float) -> float | None:
        """The share of observations above `value`; None where nothing was observed."""
        if self.count <= 0:
            return None
        above = math.fsum(b.count * min(1.0, max(0.0, (b.high - value) / (b.high - b.low))) for b in self)
        return above / self.count


def histogram(cumulative: Mapping[float, float], total: float) -> Histogram:
    """From the page's own form: the number of observations up to each edge, `inf` included."""
    counts = {}
    for (low, below), (high, upto) in pairwise([(0.0, 0.0), *sorted(cumulative.items())]):
        end = high if math.isfinite(high) else max(1.0, OPEN_END * low)
        if end > low:
            counts[low, end] = max(0.0, upto - below)
    return Histogram(counts, total)


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """All of them together."""
    out = Histogram()
    for each in histograms:
        out = out.plus(each)
    return out
