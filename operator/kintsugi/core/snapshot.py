"""One deployment at one instant, as plain frozen values; made by `observe`, read by `judge` and `decide`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kintsugi.api.objects import DeepSeekV4Deployment, Remediation
from kintsugi.core.classify.facts import Told
from kintsugi.core.frozen import frozen
from kintsugi.core.names import HOSTNAME_LABEL
from kintsugi.core.reading import Unreadable

if TYPE_CHECKING:
    from kintsugi.core.sample import Sample

LONGEST_PROMPT: Final = 1_048_576
"""Tokens that an engine is assumed to take where nobody says: DeepSeek-V4's own context."""


@dataclass(frozen=True, slots=True)
class Key:
    """Namespace and name of one DeepSeekV4Deployment."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ProcessKey(NamedTuple):
    """One engine process: the pod's UID and its container's start time, so evidence never crosses a restart."""

    uid: str
    started_at: float


@frozen
class Page:
    """The text of one `/metrics` page, read at monotonic time `mono` (seconds)."""

    text: str
    mono: float
    sample: "Sample | None" = None
    """What stands on it, where that is known already: a simulation writes no text that is only read again."""


@unique
class Failure(Enum):
    """Why a page could not be read. Only SILENT (connected, then nothing) counts towards `Silent`."""

    REFUSED = "refused"
    CONNECT_TIMEOUT = "connectTimeout"
    SILENT = "silent"
    HTTP_ERROR = "httpError"
    NO_ADDRESS = "noAddress"
    PENDING = "pending"
    """A reading begun in an earlier pass is still under way: no evidence of anything yet."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A scrape that gave no page; `why` in words for people."""

    failure: Failure
    why: str
    mono: float

    def as_reading(self) -> Unreadable:
        return Unreadable(f"{self.failure.value}: {self.why}")


Scrape: TypeAlias = Page | Failed


@unique
class CanaryOutcome(Enum):
    """How a canary ended; PENDING ones are not reported."""

    ANSWERED = "answered"
    SERVER_ERROR = "serverError"
    ADMISSION_FULL = "admissionFull"
    REFUSED_BY_ENGINE = "refusedByEngine"
    """401, 403, 404, 422, 429 …: no evidence either way."""
    CONNECT_TIMEOUT = "connectTimeout"
    CONNECTION_REFUSED = "connectionRefused"
    ABANDONED = "abandoned"
    """Closed by us after its deadline, unanswered."""
    NOT_SENT = "notSent"
    """History is replayed, where nobody can be asked any more: no evidence either way."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a canary asks where its answer matters: `prompt` in token ids, answered greedily by one token.

    `margin`: log-probabilities are asked for, too, so that a near tie can be told.
    """

    name: str
    prompt: tuple[int, ...]
    margin: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The one token that a question got, by id where the engine tells it, else as text; `margin` in nats to the next
    best token, None where the engine did not say."""

    token: str
    margin: float | None = None


@dataclass(frozen=True, slots=True)
class Canary:
    """A one-token request of ours: `id` is unique, `rank` its data-parallel rank, `sent` monotonic seconds."""

    id: str
    process: ProcessKey
    rank: str
    sent: float
    question: Question | None = None
    """None: any answer will do."""


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """How `canary` ended, at monotonic time `mono`."""

    canary: Canary
    outcome: CanaryOutcome
    mono: float
    status: int = 0
    answer: Answer | None = None
    """What a question was answered; None where nothing was asked, or no token came back."""


@dataclass(frozen=True, slots=True)
class Termination:
    """The last end of the engine container. `finished_at` in epoch seconds."""

    exit_code: int
    reason: str
    message: str
    finished_at: float


class Device(NamedTuple):
    """One device of a pod, as `allocatedResourcesStatus` names it; `health` is Healthy, Unhealthy or Unknown."""

    resource: str
    id: str
    health: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What a Prometheus server says of one pod beside its own page, asked at monotonic time `mono`; None = nothing."""

    mono: float
    memory_rss: float | None = None
    """Bytes of anonymous memory of the engine's container (cadvisor)."""
    memory_working_set: float | None = None
    """Bytes that the kubelet counts as in use, page cache among them."""
    gpu_use: tuple[float, ...] = ()
    """Percent of each of its GPUs (DCGM)."""
    gpu_trouble: tuple[tuple[str, str, float], ...] = ()
    """(GPU, DCGM field, value) of fields that count faults, where they are not zero."""


@frozen
class Instance:
    """One pod that serves, or is about to serve, one copy of the model. Times in epoch seconds."""

    name: str
    uid: str
    pool: str
    revision: str
    node: str
    created_at: float
    phase: str
    """Pod phase: Pending, Running, Succeeded, Failed or Unknown."""
    phase_reason: str
    started_at: float | None
    """Start of the running engine container; None while none runs."""
    ready: bool
    ready_since: float | None
    in_rotation: bool
    member: bool
    """Selected by its ReplicaSet (False once released)."""
    deleting: bool
    restarts: int
    waiting_reason: str
    """Why the engine container waits (CrashLoopBackOff, ImagePullBackOff …), or ''."""
    waiting_message: str
    last_termination: Termination | None
    pod_ip: str
    annotations: Mapping[str, str]
    scrape: Scrape
    canaries: tuple[CanaryResult, ...] = ()
    """Canaries that ended since the last pass."""
    scheduled_at: float | None = None
    """When it was bound to its node; None while it is not, or where nobody says."""
    grace_seconds: float = 30.0
    max_num_seqs: int | None = None
    chunked_prefill: bool = True
    longest_prompt: int = LONGEST_PROMPT
    """Tokens of the longest prompt that its engine takes."""
    told: tuple[Told, ...] = ()
    """Events about a pod that does not start; () where nobody asked."""
    log_tail: tuple[str, ...] = ()
    """The last lines of the run that ended, of a pod that does not start; () where nobody asked."""
    listed: frozenset[str] | None = None
    """Models and adapters that the engine lists; None where it was not asked, or gave no list."""
    served_before: bool = False
    """It is not Ready, and once was: Kubernetes keeps when that changed, whoever looked."""
    host_ipc: bool = False
    """The pod shares the node's /dev/shm."""
    devices: tuple[Device, ...] | None = ()
    """Its GPUs; () where it asks for none, None where Kubernetes says nothing about those it has."""
    image: str = ""
    """The engine container's image; '' where it is not known."""
    image_id: str = ""
    """What its node calls the image that it runs, usually by digest; '' where it says nothing."""
    compactable: bool | None = None
    """Whether its engine can release cached allocator memory; None where nobody asked."""
    memory_limit: float | None = None
    """Bytes that the engine's container may use (`resources.limits.memory`); where no limit is set, what the node's
    allocatable memory leaves to it beside the requests of the other pods with devices; None where neither is known."""
    offload: float = 0.0
    """Bytes of host memory that its engines may fill with KV cache."""
    measured: Measured | None = None
    """The newest word of a Prometheus server on this pod; None where there is none."""

    @property
    def start_began_at(self) -> float:
        """From when on its start budget counts: waiting for a GPU is no part of a start."""
        return self.created_at if self.scheduled_at is None else self.scheduled_at

    @property
    def process(self) -> ProcessKey | None:
        return None if self.started_at is None else ProcessKey(self.uid, self.started_at)


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """One pool and revision's ReplicaSet. `wanted` is spec.replicas, `actual` status.replicas."""

    name: str
    uid: str
    pool: str
    revision: str
    wanted: int
    actual: int
    created_at: float
    resource_version: str
    avoids: tuple[str, ...] = ()
    """Host names that we told its new pods to avoid."""
    affinity: Mapping[str, Any] = field(default_factory=dict)
    """`affinity` of its template's pod spec."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """`nodeSelector` of its template's pod spec."""


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """GPUs of one schedulable node: allocatable minus requested by pods bound to it."""

    name: str
    ready: bool
    schedulable: bool
    gpus_free: int
    """Negative where more are in use than its device plugin calls healthy."""
    labels: Mapping[str, str] = field(default_factory=dict)
    cordoned: bool = False
    taints: tuple[Mapping[str, Any], ...] = ()
    holders: Mapping[str, str] = field(default_factory=dict)
    """UIDs of deployments that want it kept free for now, with until when."""
    action: str = ""
    """What we did to it ourselves: Cordon, Taint, or ''."""
    resource_version: str = ""

    @property
    def host(self) -> str:
        """What affinities know it by; its name where it has no label of that kind."""
        return self.labels.get(HOSTNAME_LABEL, self.name)


@dataclass(frozen=True, slots=True)
class Cover:
    """A disruption budget of somebody else that covers a pod. `blocks`: it would refuse its eviction at this moment;
    `never`: however many are healthy."""

    name: str
    blocks: bool
    never: bool


@dataclass(frozen=True, slots=True)
class Quota:
    """The resource quota that leaves the least room for further pods of a pool; `room` is negative where it is overdrawn."""

    name: str
    resource: str
    room: int


@frozen
class Fleet:
    """What this operator knows of all its deployments together, for the operator-wide storm and hourly cap."""

    instances: int
    newly_sick: int
    """Instances, of all deployments, newly Sick within the storm window (growing not counted)."""
    actions_last_hour: int


@frozen
class Snapshot:
    """Everything one pass knows. `now` is epoch seconds, `mono` monotonic seconds; read once per pass."""

    key: Key
    now: float
    mono: float
    late_by: float
    """Seconds by which this pass began later than it was due."""
    observed_since: float
    """Monotonic time of this process's first pass over this deployment."""
    deployment: DeepSeekV4Deployment
    resource_version: str
    uid: str
    instances: tuple[Instance, ...]
    replica_sets: tuple[ReplicaSet, ...]
    remediations: Mapping[str, Remediation]
    """By attempt id: those that `status.remediations.active` names and that exist."""
    nodes: tuple[NodeRoom, ...] | None
    """None where not asked for in this pass."""
    fleet: Fleet
    children: tuple[Mapping[str, Any], ...] | None = None
    """Services and disruption budgets as read; None where not asked for in this pass."""
    answers: Mapping[str, bool] = field(default_factory=dict)
    """By pod UID: whether the one real request that verifies a replacement was answered, where it was made."""
    compacted: Mapping[str, bool] = field(default_factory=dict)
    """By attempt id: whether the engine said that it released its cached memory, where it was asked and has answered."""
    paused: tuple[str, ...] = field(default=())
    """Names of pause requests, from spec and annotations."""
    unknown_fields: tuple[str, ...] = field(default=())
    covers: Mapping[str, tuple[Cover, ...]] = field(default_factory=dict)
    """By pod UID: disruption budgets of others; empty where not asked for in this pass."""
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    """By pool: the tightest resource quota; empty where there is none, or nobody asked in this pass."""
    unmeasured: str = ""
    """Why the Prometheus server that was to be asked says nothing; '' where it does, or where there is none."""
    operator_image: str = ""
    """The operator's own image, from which new engines get the telemetry; '' where it is not known."""
    clock_set_at: float | None = None
    """Epoch seconds at which this operator last found its wall clock set; None where it never was."""
