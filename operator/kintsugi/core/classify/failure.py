"""The kinds of failed starts, and what is right to do about each."""

from dataclasses import dataclass
from enum import Enum, unique


@unique
class Retry(Enum):
    """Who tries again, and when."""

    NEVER = "Never"
    """The same will happen again until the spec changes."""
    BACK_OFF = "BackOff"
    """With growing pauses, in the same pod: what it has fetched so far is kept."""
    BY_KUBELET = "ByKubelet"
    """Kubernetes waits for what is missing, and goes on by itself."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of failed start."""

    name: str
    """One CamelCase word: the reason in conditions, and the gate where healing holds back."""
    retry: Retry
    recreate_helps: bool
    """Whether a fresh pod of the same revision may start where this one does not."""
    field: str
    """The field of the spec to look at, without `spec.` or the pool."""
    cure: str
    """What to do; `{at}` is the field's path."""
    blames_spec: bool = False
    """The engine refused what the spec says, so the spec is not accepted."""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """Why a pod does not start: for conditions, rollout and healing."""

    kind: str
    reason: str
    """What Kubernetes or the engine says, in one line: the first error, not the noise of the end."""
    field: str
    """JSON path of the field to look at."""
    cure: str
    recreate_helps: bool
    retry: Retry
    blames_spec: bool = False

    @property
    def message(self) -> str:
        """Reason and cure, for people."""
        return f"{self.reason.rstrip('.')}. {self.cure}" if self.reason else self.cure


def made(kind: Kind, reason: str, at: str, cure: str = "") -> StartFailure:
    """The failure of that kind at that path; `cure` replaces the kind's own."""
    return StartFailure(
        kind=kind.name,
        reason=reason,
        field=at,
        cure=(cure or kind.cure).replace("{at}", at),
        recreate_helps=kind.recreate_helps,
        retry=kind.retry,
        blames_spec=kind.blames_spec,
    )
