"""What a pass has decided: the status to commit first, then actions, each idempotent and keyed on a UID."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kintsugi.api.objects import Remediation
from kintsugi.api.status import DeploymentStatus


@dataclass(frozen=True, slots=True)
class Create:
    """Create one child; being there already is fine."""

    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Apply:
    """Bring one child that is ours by definition (Service, PodDisruptionBudget) to this form."""

    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one child that nothing needs any more."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Set a ReplicaSet's replicas, if nobody changed it since it was read."""

    name: str
    replicas: int
    resource_version: str


@dataclass(frozen=True, slots=True)
class Avoid:
    """Tell a ReplicaSet's new pods which hosts to avoid, if nobody changed it since it was read. Moves no pod."""

    name: str
    hosts: tuple[str, ...]
    patch: Mapping[str, Any]
    """A merge patch of the ReplicaSet."""
    resource_version: str


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Cordon or taint a node, or undo that, if nobody changed it since it was read. Only by opt-in."""

    name: str
    patch: Mapping[str, Any]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Evict a pod that a node refused: it is Failed, ran nothing, and was replaced by its ReplicaSet already."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class Compact:
    """Ask an engine to release cached allocator memory, in place; the answer is in a later snapshot."""

    uid: str
    attempt: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take a pod out of rotation: its streams run on, no new request reaches it."""

    pod: str
    uid: str
    attempt: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Put a withdrawn pod back in rotation: the complete cancel."""

    pod: str
    uid: str
    attempt: str


@dataclass(frozen=True, slots=True)
class Release:
    """Let a pod go from its ReplicaSet, in one patch, so that its replacement starts at once."""

    pod: str
    uid: str
    attempt: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod with a UID precondition; `grace_seconds` None leaves the pod's own."""

    pod: str
    uid: str
    attempt: str
    grace_seconds: int | None


@dataclass(frozen=True, slots=True)
class Retire:
    """Take a pod out of rotation because a rollout or a scale-down will remove it next."""

    pod: str
    uid: str
    since: str
    """RFC 3339; the drain's deadline counts from here."""


@dataclass(frozen=True, slots=True)
class Unretire:
    """Put a pod back that is not to be removed after all."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a replacement one real request; the answer is in a later snapshot."""

    uid: str


Action: TypeAlias = (
    Create
    | Apply
    | Delete
    | Scale
    | Avoid
    | PatchNode
    | Discard
    | Compact
    | Withdraw
    | Restore
    | Release
    | Evict
    | Retire
    | Unretire
    | Ask
)


@dataclass(frozen=True, slots=True)
class Happening:
    """Something to tell as a Kubernetes Event: `warning` or normal, about the deployment."""

    reason: str
    message: str
    warning: bool = False
    action: str = "Heal"
    node: str = ""
    """The node that it is about as well; '' where it is about the deployment alone."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """What mode Act would have begun now, every other gate being open; mode Observe keeps it from happening."""

    uid: str
    trigger: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One pass's decision. Order of execution: commit `status`, write `remediations`, then `actions`."""

    status: DeploymentStatus
    remediations: tuple[Remediation, ...] = ()
    """To be created where absent, and their status brought to this."""
    actions: tuple[Action, ...] = ()
    happenings: tuple[Happening, ...] = ()
    needs_nodes: bool = False
    """The next pass must read the nodes, since a replacement or a rollout asks for room."""
    shadows: tuple[Shadow, ...] = ()
    """Of mode Observe; the same fault is in every plan while it lasts."""
    next_check: float | None = None
    """Epoch seconds at which something is due by the clock alone."""
