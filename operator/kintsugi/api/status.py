"""What the operator writes in the status of a `DeepSeekV4Deployment`. Every list is keyed, or atomic on purpose."""

from typing import Annotated, Literal

from pydantic import Field

from kintsugi.api.capacity import CapacityStatus
from kintsugi.api.condition import Condition
from kintsugi.api.model import Keyed, Model, Timestamp, UniqueItems
from kintsugi.api.remediation import Message, Name, Outcome, Phase, RemediationPath, Remedy, Uid, Word
from kintsugi.api.seen import (
    Count,
    FindingStatus,
    InstanceStatus,
    PoolStatus,
    SignalValues,
    Strategy,
    VerdictCounts,
    VerdictName,
)

__all__ = [
    "ActiveRemediation",
    "BreakerReason",
    "BreakerStatus",
    "DeploymentStatus",
    "FindingStatus",
    "InstanceStatus",
    "LastRemediation",
    "LineageStatus",
    "PoolStatus",
    "RecentRemediation",
    "RehearsalStatus",
    "RemediationsStatus",
    "RolloutState",
    "RolloutStatus",
    "SignalValues",
    "StormState",
    "StormStatus",
    "Strategy",
    "StrikeStatus",
    "VerdictCounts",
    "VerdictName",
    "WithheldAction",
]

BreakerReason = Literal["NotCured", "Ambiguous", "WorseAfter", "Count"]
StormState = Literal["Open", "HalfOpen"]
RolloutState = Literal["Progressing", "Stalled", "Done"]


class LastRemediation(Model):
    """The attempt that ended last."""

    name: Name
    """Name of the Remediation."""
    instance: Name = ""
    """Name of the pod."""
    trigger: Word = ""
    """What was found."""
    outcome: Outcome | None = None
    """How it ended."""
    finished_at: Timestamp | None = None
    """When it ended."""


class ActiveRemediation(Model):
    """A reservation: the attempt is committed here before anything is done."""

    id: Annotated[str, Field(max_length=253)]
    """Identity of the attempt."""
    name: Name
    """Name of the Remediation."""
    instance: Name
    """Name of the victim's pod."""
    uid: Uid
    """UID of the victim's pod."""
    node: Name = ""
    """Node of the victim."""
    started_at: Timestamp | None = None
    """Start of the victim's container."""
    pool: Word
    """Pool of the victim."""
    revision: Word
    """Revision of the victim."""
    trigger: Word
    """What was found."""
    remedy: Remedy
    """What is done about it."""
    attempt: Annotated[int, Field(ge=1)] = 1
    """Which attempt in the lineage."""
    lineage: Uid
    """UID of the first pod in the line."""
    path: RemediationPath | None = None
    """Whether the replacement starts before or after the victim goes."""
    phase: Phase
    """The step that the attempt is in."""
    reserved_at: Timestamp
    """When it was committed."""
    detected_at: Timestamp
    """When the verdict was reached; the hold counts from here."""
    approved_at: Timestamp | None = None
    """When a person's approval was seen, where the trigger's mode asks for one."""
    approved_by: Word = ""
    """Who approved it, as written in the annotation."""
    withdrawn_at: Timestamp | None = None
    """When the victim was taken out of traffic."""
    released_at: Timestamp | None = None
    """When the victim was let go so that its replacement could start."""
    draining_since: Timestamp | None = None
    """When its removal was decided; the drain's deadline counts from here."""
    evicting_since: Timestamp | None = None
    """When its eviction was first asked for."""
    deleted_at: Timestamp | None = None
    """When it was seen to be gone."""
    replacement_name: Name | None = None
    """Name of the pod that took its place."""
    replacement_uid: Uid | None = None
    """UID of the pod that took its place."""
    replaced_at: Timestamp | None = None
    """When that pod was made."""
    ready_at: Timestamp | None = None
    """When that pod became ready."""
    warm_at: Timestamp | None = None
    """When that pod's warm-up was over; the probation counts from here."""
    cancelling: bool = False
    """Whether the trigger cleared after the release, so that the attempt ends as Cancelled."""
    streams_cut: Count | None = None
    """Streams still running when the eviction was asked for."""
    served_before: Count | None = None
    """Instances of the pool that served without the victim when its removal was decided."""
    errors_before: Annotated[float, Field(ge=0, le=100)] | None = None
    """Percent of requests that failed in those instances then."""
    traffic_seen: bool = False
    """Whether the replacement has had requests of users."""
    worse_after: bool = False
    """Whether the pool serves worse after the attempt than before it: removals stop until a person resets them."""
    finished_at: Timestamp | None = None
    """When the attempt ended; it stays here until its Remediation says so too."""
    outcome: Outcome | None = None
    """How it ended."""
    message: Message = ""
    """What it is doing or waiting for, in a sentence."""
    counts_towards_budget: bool = True
    """Whether the attempt uses the budget."""


class RecentRemediation(Model):
    """An entry of the budget's ledger and of the lineage's memory."""

    id: Annotated[str, Field(max_length=253)]
    """Identity of the attempt."""
    pool: Word
    """Pool of the victim."""
    revision: Word = ""
    """Revision of the victim."""
    lineage: Uid
    """UID of the first pod in the line."""
    trigger: Word = ""
    """What was found."""
    remedy: Remedy | None = None
    """What was done about it."""
    attempt: Annotated[int, Field(ge=1)] = 1
    """Which attempt in the lineage."""
    started_at: Timestamp
    """When the attempt was committed."""
    finished_at: Timestamp | None = None
    """When it ended."""
    outcome: Outcome | None = None
    """How it ended."""
    replacement_uid: Uid | None = None
    """UID of the pod that took the place."""
    counts_towards_budget: bool = True
    """Whether the attempt used the budget."""


class BreakerStatus(Model):
    """Removals stopped in one pool and revision."""

    pool: Word
    """The pool."""
    revision: Word
    """The revision."""
    reason: BreakerReason
    """`Count` resets itself when its window has passed; the others need a person or a new revision."""
    since: Timestamp
    """When it opened."""
    message: Message = ""
    """Why, and what to do."""


class StormStatus(Model):
    """Too many newly sick instances at once."""

    pool: Annotated[str, Field(max_length=63)]
    """The pool; empty for all instances of this operator."""
    since: Timestamp
    """When it began."""
    last_sick_at: Timestamp
    """When the last instance fell sick."""
    state: StormState = "Open"
    """`Open`: no removals. `HalfOpen`: one trial removal is under way."""
    sick: Annotated[tuple[Uid, ...], Field(max_length=1000), UniqueItems] = ()
    """UIDs of the instances that fell sick."""


class WithheldAction(Model):
    """An action that is not taken now, and why."""

    instance: Name
    """Name of the pod."""
    gate: Word
    """The gate that is closed."""
    message: Message = ""
    """Why, and what would open it."""
    next_check: Timestamp | None = None
    """When it may open by itself. Absent: nobody can tell; it is asked again in every pass, once in each
    `monitoring.scrapeIntervalSeconds`."""


class LineageStatus(Model):
    """What a replacement inherits."""

    uid: Uid
    """UID of the replacement's pod."""
    lineage: Uid
    """UID of the first pod in the line."""
    attempts: Annotated[int, Field(ge=0)] = 0
    """Attempts made in the line."""
    exhausted: bool = False
    """Whether the ladder has ended for the line."""
    exhausted_at: Timestamp | None = None
    """When it ended. An annotation `kintsugi.dev/reset-ladders` with a later time lets healing begin anew."""


class StrikeStatus(Model):
    """Remediations blamed on one node or one GPU of it."""

    node: Name
    """The node."""
    device: Annotated[str, Field(max_length=128)]
    """The GPU; empty for the node as a whole."""
    host: Name = ""
    """The node's label `kubernetes.io/hostname`, which new pods avoid."""
    reason: Word = ""
    """Why the last one was made, in one CamelCase word."""
    count: Annotated[int, Field(ge=0)] = 0
    """How many."""
    last_at: Timestamp | None = None
    """When the last one was made."""
    expires_at: Timestamp | None = None
    """Until when the node is avoided; absent while it is only counted."""
    action: Word = ""
    """What stands on the node because of it: `Cordon` or `Taint`, where `healing.nodeActions` allows that."""
    pools: Annotated[tuple[Word, ...], Field(max_length=32), UniqueItems] = ()
    """Pools whose new pods avoid the node."""
    pods: Annotated[tuple[Uid, ...], Field(max_length=16), UniqueItems] = ()
    """UIDs of the last pods for which one was made, so that none counts twice."""


class RemediationsStatus(Model):
    """What healing has done, does and holds back. Budgets and strikes are counted from here."""

    in_flight: Count = 0
    """Attempts under way."""
    last: LastRemediation | None = None
    """The attempt that ended last."""
    active: Annotated[tuple[ActiveRemediation, ...], Keyed("id", max_items=256)] = ()
    """Attempts under way."""
    recent: Annotated[tuple[RecentRemediation, ...], Keyed("id", max_items=1000)] = ()
    """Attempts that budgets and lineages still count."""
    breakers: Annotated[tuple[BreakerStatus, ...], Keyed("pool", "revision", max_items=64)] = ()
    """Pools and revisions in which removals are stopped."""
    storms: Annotated[tuple[StormStatus, ...], Keyed("pool", max_items=32)] = ()
    """Storms, one per pool and one for all."""
    withheld: Annotated[tuple[WithheldAction, ...], Keyed("instance", max_items=1000)] = ()
    """Actions not taken now."""
    lineages: Annotated[tuple[LineageStatus, ...], Keyed("uid", max_items=1000)] = ()
    """What replacements inherit."""
    strikes: Annotated[tuple[StrikeStatus, ...], Keyed("node", "device", max_items=256)] = ()
    """Nodes and GPUs that are avoided."""


class RehearsalStatus(Model):
    """A drill is on: the judge's clock runs faster."""

    speed_up: float
    """Factor by which every duration of the judge is divided."""


class RolloutStatus(Model):
    """The rollout of one pool."""

    pool: Word
    """The pool."""
    revision: Word
    """The revision that is being rolled out."""
    state: RolloutState
    """How it stands."""
    message: Message = ""
    """Why."""
    since: Timestamp | None = None
    """When it came into this state."""
    canary_since: Timestamp | None = None
    """When the canaries were all ready; the analysis counts from here."""


class DeploymentStatus(Model):
    """The observed state. Conditions are the contract: Available, Progressing, SpecAccepted, DataFresh,
    HealingAllowed, Degraded."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the spec that this status is about."""
    replicas: Count = 0
    """Instances of the pool that `/scale` is about."""
    selector: Annotated[str, Field(max_length=1024)] = ""
    """Label selector of those instances, for autoscalers."""
    ready: Annotated[str, Field(max_length=32)] = ""
    """Instances that serve, of those wanted, such as `3/4`."""
    why: Message = ""
    """Message of the worst condition; empty when all is well."""
    healing: Word = ""
    """Mode of healing, or the reason why it is paused."""
    conditions: Annotated[tuple[Condition, ...], Keyed("type", max_items=16)] = ()
    """What holds, and why."""
    pools: Annotated[tuple[PoolStatus, ...], Keyed("name", max_items=32)] = ()
    """The pools."""
    instances: Annotated[tuple[InstanceStatus, ...], Keyed("name", max_items=1000)] = ()
    """The instances."""
    remediations: RemediationsStatus = RemediationsStatus()
    """What healing has done, does and holds back."""
    rehearsal: RehearsalStatus | None = None
    """Present while a drill speeds up the judge's clock."""
    rollouts: Annotated[tuple[RolloutStatus, ...], Keyed("pool", max_items=32)] = ()
    """The rollouts, one per pool."""
    capacity: CapacityStatus | None = None
    """The planner's figures, then the engine's own."""
