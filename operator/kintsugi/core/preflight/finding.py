"""What a check says: how bad, which rule, where, what is wrong, and what cures it."""

from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["Error", "Warning"]
ORDER: Final[tuple[Severity, ...]] = ("Error", "Warning")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found in one object."""

    severity: Severity
    """`Error`: no pod is made. `Warning`: it runs, and somebody should know."""
    rule: str
    path: str
    """JSON path that exists in the object; where a field is missing, the nearest that holds it. `.` is the whole."""
    message: str
    """A sentence that begins with the path of the field to change."""
    cure: str

    def __str__(self) -> str:
        return f"{self.message} [{self.rule}]: {self.cure}"

    def as_json(self) -> dict[str, str]:
        """The form that `kintsugi lint -o json` prints."""
        return {
            "severity": self.severity,
            "rule": self.rule,
            "path": self.path,
            "message": self.message,
            "cure": self.cure,
        }


def sort_key(finding: Finding) -> tuple[int, str, str, str]:
    """Errors first, then by path: the same object always gives the same list."""
    return ORDER.index(finding.severity), finding.path, finding.rule, finding.message
