"""What the planner has to tell about a pool."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["Error", "Warning", "Info"]


@dataclass(frozen=True, slots=True)
class PlanFinding:
    """One sentence with its figures. `Error`: the pool can't run so, or nobody can say whether it can."""

    severity: Severity
    rule: str
    """One CamelCase word."""
    path: str
    """JSON path of the field that it is about."""
    message: str
    cure: str


def grouped(number: float) -> str:
    """`1048576` as `1,048,576`."""
    return f"{round(number):,}"


def gigabytes(amount: float) -> str:
    """Bytes as GB (10^9), one decimal below 100."""
    size = amount / 1e9
    return f"{size:,.1f} GB" if abs(size) < 100 else f"{size:,.0f} GB"
