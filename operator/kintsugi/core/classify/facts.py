"""What is known of one start: what Kubernetes says of the pod, and the end of what its engine wrote."""

import re
from dataclasses import dataclass
from typing import Final

OTHER_CONTAINER: Final = re.compile(r"^(?P<init>init )?container (?P<name>\S+?):\s*")
"""How messages begin that are about another container of the pod than the engine's."""


@dataclass(frozen=True, slots=True)
class Told:
    """One Kubernetes Event about the pod."""

    reason: str
    message: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class StartFacts:
    """One pod that is not Ready, as plain values; '' and () where nothing is known."""

    pod: str = ""
    phase: str = "Pending"
    phase_reason: str = ""
    """The pod's own reason (Evicted, UnexpectedAdmissionError …), or why it is not scheduled."""
    phase_message: str = ""
    scheduled: bool = True
    waiting_reason: str = ""
    """Why a container waits (ImagePullBackOff, CrashLoopBackOff …)."""
    waiting_message: str = ""
    exit_code: int | None = None
    """Of the last end of the container; None where it has not ended yet."""
    ended_reason: str = ""
    """Kubernetes' word for that end: Error, Completed, OOMKilled, ContainerCannotRun …"""
    ended_message: str = ""
    """The termination message: the last 2,048 bytes of the log where the container wrote none of its own."""
    restarts: int = 0
    events: tuple[Told, ...] = ()
    log: tuple[str, ...] = ()
    """The last lines of the run that ended."""
    served: bool = False
    """It was Ready before: what stands in its way now was not there when it first started."""
    host_ipc: bool = False
    """The pod shares the node's /dev/shm, which a fresh pod does not empty."""
    pool: str = ""
    """JSON path of the pool, such as `spec.pools[1]`; '' where the deployment has none."""
    own: tuple[str, ...] = ()
    """Fields that this pool writes itself (`engine.image`), rather than the deployment for all pools."""

    references: tuple[tuple[str, str], ...] = ()
    """Fields that name a Secret, and the name each has: (`engine.apiKeySecretRef`, `keys`)."""

    claims: tuple[tuple[str, str], ...] = ()
    """Fields that name a claim, and the claim's name: (`model.source.pvc.claimName`, `models`)."""

    def path(self, field: str) -> str:
        """The JSON path under which the user wrote `field`, or would write it."""
        for written in self.own:
            if field == written or field.startswith(f"{written}.") or written.startswith(f"{field}."):
                return f"{self.pool}.{field}"
        return f"spec.{field}"
