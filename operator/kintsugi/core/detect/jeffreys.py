"""How sure a share is: the one-sided Jeffreys bound of a binomial share, without a statistics library.

It is asked for one thing only: whether `failed` of `total` prove, with 99 % confidence, a share above a limit.
"""

import math
from typing import Final

CONFIDENCE: Final = 0.99
"""One-sided (hang paper §4): with 95 % twice as many healthy engines were suspected."""
_ROUNDS: Final = 200
_TINY: Final = 1e-300


def surely_above(failed: float, total: float, share: float) -> bool:
    """Whether the 99 % lower bound of `failed`/`total` is above `share` (0 to 1).

    Counts need not be whole: they may come from two series that disagree by the moment at which they were read.
    """
    if failed <= 0 or total <= 0 or not 0 < share < 1:
        return False
    return _beta_cdf(share, min(failed, total) + 0.5, max(total - failed, 0.0) + 0.5) < 1.0 - CONFIDENCE


def _beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Numerical Recipes §6.4; DLMF 8.17.22)."""
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Lentz's method; converges in O(sqrt(max(a, b))) rounds."""
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    h = d
    for m in range(1, _ROUNDS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for numerator in (even, odd):
            d = 1.0 + numerator * d
            c = 1.0 + numerator / c
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            h *= d * c
        if abs(d * c - 1.0) < 1e-12:
            break
    return h
