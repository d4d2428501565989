"""What only a cluster can tell; offline nothing of it is known, and rules that need it keep silent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known beside the object itself."""

    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Access modes (`ReadWriteOnce`, …) of PersistentVolumeClaims of the object's namespace, by name."""
    all_claims: bool = False
    """Whether `claims` are all there are, so that one that is not among them does not exist."""
    most_replicas: int | None = None
    """Instances to which an autoscaler may scale the pool of `/scale`; None where none is known."""


NOTHING_KNOWN: Final = Facts()
