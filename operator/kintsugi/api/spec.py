"""What a user writes in a `DeepSeekV4Deployment`: the model, the engine, the hardware and the pools."""

from typing import Annotated, Final, Literal

from pydantic import Field

from kintsugi.api.healing import HealingSpec
from kintsugi.api.model import (
    DNS_LABEL_PATTERN,
    Atomic,
    Keyed,
    Model,
    ObjectName,
    Opaque,
    Quantity,
    UniqueItems,
)

Runtime = Literal["VLLM", "Native"]
Telemetry = Literal["Auto", "Image", "Disabled"]
Profile = Literal["HighThroughput", "LongContext", "Balanced"]
RoutingMode = Literal["Envoy", "GatewayAPI"]
RolloutStrategy = Literal["Auto", "Surge", "DeleteFirst"]
PodMonitorMode = Literal["Auto", "Always", "Never"]

MOST_POOLS: Final = 16
GroupRestartPolicy = Literal["RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"]

ShortText = Annotated[str, Field(max_length=253)]
Path = Annotated[str, Field(min_length=1, max_length=1024)]
PoolName = Annotated[str, Field(pattern=DNS_LABEL_PATTERN, min_length=1, max_length=40)]


class SecretKeyRef(Model):
    """One key of a Secret in the deployment's namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)]
    """Key in the Secret's data."""


class ClaimSource(Model):
    """Weights that lie on a PersistentVolumeClaim. It is mounted read-only."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim."""
    sub_path: Annotated[str, Field(max_length=1024)] | None = None
    """Folder of the weights in the volume. Absent: the volume's root."""


class HubSource(Model):
    """Weights that the engine fetches from the Hugging Face hub when it starts."""

    token_secret_ref: SecretKeyRef | None = None
    """Secret with the access token. Absent: the model is public."""
    cache: ClaimSource | None = None
    """Claim, mounted writable, that keeps the download over restarts. Absent: every new pod downloads anew."""


class ImageSource(Model):
    """Weights shipped as an OCI image, mounted as an image volume (Kubernetes 1.33 or later)."""

    reference: Annotated[str, Field(min_length=1, max_length=512)]
    """The image, by tag or digest."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When to pull it. Absent: Kubernetes' own rule."""


class ModelSource(Model):
    """Where the weights come from: exactly one of `pvc`, `hub` and `image`."""

    pvc: ClaimSource | None = None
    """A PersistentVolumeClaim that holds the weights."""
    hub: HubSource | None = None
    """The Hugging Face hub."""
    image: ImageSource | None = None
    """An OCI image that holds the weights."""


class LoraAdapter(Model):
    """One LoRA adapter, loaded at start and again after every replacement."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name that requests use in `model`."""
    path: Path
    """Folder in the container, or hub id."""


class ModelSpec(Model):
    """The model to serve."""

    id: Path
    """Hub id such as `deepseek-ai/DeepSeek-V4-Flash-0731`, or a path in the container."""
    revision: ShortText | None = None
    """Branch, tag or commit on the hub. Absent: the hub's default branch."""
    served_names: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=253)], ...], Field(max_length=16), UniqueItems
    ] = ()
    """Names that clients may use in `model`. Empty: the model's id."""
    source: ModelSource | None = None
    """Where the weights come from. Absent: the hub, without a token."""
    lora_adapters: Annotated[tuple[LoraAdapter, ...], Keyed("name", max_items=64)] = ()
    """LoRA adapters to load."""


class Speculative(Model):
    """Speculative decoding."""

    method: Literal["DSpark", "MTP", "NGram", "Disabled"]
    """How drafts are made. `DSpark` needs a checkpoint that carries it; `Disabled` overrides the recipe."""
    num_tokens: Annotated[int, Field(ge=1, le=32)] | None = None
    """Draft tokens per step. Absent: the recipe decides."""


class EngineArgs(Model):
    """Typed engine arguments. What is absent is decided by the recipe for model, hardware and engine version."""

    tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] | None = None
    """GPUs over which each layer is split."""
    pipeline_parallel_size: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Stages into which the layers are cut."""
    data_parallel_size: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Copies of the attention layers in one instance."""
    enable_expert_parallel: bool | None = None
    """Whether experts are spread over the GPUs instead of each being split."""
    block_size: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Tokens per KV cache block."""
    max_model_len: Annotated[int, Field(ge=1, le=16_777_216)] | None = None
    """Longest context in tokens, prompt and answer together. Absent: the pool's `context.maxTokens`."""
    max_num_seqs: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Requests that run at the same time."""
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=16_777_216)] | None = None
    """Tokens of one engine step."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of GPU memory that the engine takes, above 0 and at most 1."""
    kv_cache_dtype: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$", max_length=63)] | None = None
    """Number format of the KV cache, such as `fp8`."""
    moe_backend: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=63)] | None = None
    """Kernels that compute the experts, such as `deep_gemm_mega_moe` (datacenter Blackwell) or `marlin`."""
    enforce_eager: bool | None = None
    """Whether to run without CUDA graphs and compilation: slow, starts faster."""
    enable_prefix_caching: bool | None = None
    """Whether finished prompts stay in the KV cache for reuse."""
    enable_chunked_prefill: bool | None = None
    """Whether long prompts are computed in pieces, between other requests' steps."""
    tokenizer_mode: ShortText | None = None
    """Tokenizer mode, such as `deepseek_v4`. Absent: the model's own; empty: none is passed."""
    tool_call_parser: ShortText | None = None
    """Parser of tool calls, such as `deepseek_v4`. Absent: the model's own; empty: none."""
    reasoning_parser: ShortText | None = None
    """Parser of reasoning output, such as `deepseek_v4`. Absent: the model's own; empty: none."""
    chat_template: Path | None = None
    """Path of a chat template in the container."""
    speculative: Speculative | None = None
    """Speculative decoding."""


class SharedMemory(Model):
    """The pod's `/dev/shm`."""

    size: Quantity
    """Size of the memory-backed volume, such as `16Gi`. It counts towards the container's memory limit."""


class KvOffload(Model):
    """KV cache blocks that are moved to host memory instead of being dropped."""

    host_memory_per_engine: Quantity
    """Host memory of one engine, all its ranks together, such as `32Gi`."""


class EnvVar(Model):
    """One environment variable, in the form that Kubernetes knows."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=65_536)] | None = None
    """Its value; may be the empty string."""
    value_from: Opaque | None = None
    """Source of the value: `secretKeyRef`, `configMapKeyRef`, `fieldRef` or `resourceFieldRef`."""


class ResourceClaim(Model):
    """A device claim of the pod that the engine's container uses."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name in the pod's `resourceClaims`."""
    request: Annotated[str, Field(max_length=63)] | None = None
    """One request of the claim. Absent: all of it."""


class Resources(Model):
    """Resources of the engine's container, beside the GPUs that `hardware` asks for."""

    requests: Annotated[dict[str, Quantity], Field(max_length=64)] | None = None
    """What the scheduler sets aside."""
    limits: Annotated[dict[str, Quantity], Field(max_length=64)] | None = None
    """What the container may use."""
    claims: Annotated[tuple[ResourceClaim, ...], Keyed("name", max_items=16)] = ()
    """Device claims that the container uses."""


class EngineSpec(Model):
    """The engine of every instance. A pool may set each field again for itself."""

    runtime: Runtime | None = None
    """`VLLM`, or `Native`: a PyTorch server with a contiguous KV cache. Absent: `VLLM`."""
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Engine image by tag or digest. Absent: the operator's default for the model."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When to pull the image. Absent: Kubernetes' own rule."""
    command: Annotated[
        tuple[Annotated[str, Field(max_length=65_536)], ...], Atomic, Field(max_length=64)
    ] = ()
    """Entry point in place of the image's. The arguments follow it: a shell wrapper passes them on, as in
    `[/bin/bash, -c, 'ulimit -l unlimited; exec vllm serve "$@"', --]`. Empty: the image's own."""
    version: (
        Annotated[str, Field(pattern=r"^v?[0-9]+(\.[0-9]+)*([-.+a-zA-Z0-9]*)$", max_length=63)] | None
    ) = None
    """The engine's version, needed only where the image's tag does not say it."""
    telemetry: Telemetry | None = None
    """Fragmentation telemetry: `Auto` lays it beside the image's vLLM where its version is known, `Image` trusts the
    image to have it, `Disabled` goes without. Absent: `Auto`, and `Disabled` with a `command` of your own, which may start
    something else."""
    api_key_secret_ref: SecretKeyRef | None = None
    """Secret with the key that clients must send. Absent: no key."""
    shm: SharedMemory | None = None
    """The pod's `/dev/shm`. Absent: 16Gi."""
    args: EngineArgs | None = None
    """Typed engine arguments."""
    kv_offload: KvOffload | None = None
    """Host memory for KV cache blocks. Absent: none."""
    extra_args: Annotated[
        tuple[Annotated[str, Field(max_length=16_384)], ...], Atomic, Field(max_length=256)
    ] = ()
    """Further command-line arguments, each passed byte for byte, after the typed ones."""
    env: Annotated[tuple[EnvVar, ...], Keyed("name", max_items=256)] = ()
    """Environment variables. They win over the operator's own."""
    env_from: Annotated[tuple[Opaque, ...], Atomic, Field(max_length=32)] = ()
    """Sources whose every key becomes a variable: `configMapRef`, `secretRef`, `prefix`."""
    resources: Resources | None = None
    """Resources of the container, beside the GPUs that `hardware` asks for."""
    start_budget_seconds: Annotated[int, Field(ge=30, le=86_400)] | None = None
    """How long a start may take before it counts as failed. Absent: from the model's size and source."""


class HardwareSpec(Model):
    """The hardware of one instance."""

    gpu: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """Kind of GPU, such as `H200` or `B200`. Absent: the recipe's smallest known fit."""
    gpus_per_instance: Annotated[int, Field(ge=0, le=1024)] | None = None
    """GPUs of one instance on each of its nodes. 0 runs on the CPU, for trials. Absent: the recipe's smallest
    known fit."""
    nodes_per_instance: Annotated[int, Field(ge=1, le=64)] | None = None
    """Nodes of one instance. More than one needs LeaderWorkerSet in the cluster. Absent: 1."""
    resource_name: Annotated[str, Field(min_length=1, max_length=316)] | None = None
    """Resource that stands for one GPU. Absent: `nvidia.com/gpu`, and `amd.com/gpu` for AMD's."""
    group_restart_policy: GroupRestartPolicy | None = None
    """What happens to an instance of several nodes when one of its pods ends. Absent: `RecreateGroupOnPodRestart`."""


class ContextRange(Model):
    """The requests that a pool takes, by length."""

    max_tokens: Annotated[int, Field(ge=1, le=16_777_216)]
    """Longest request in tokens, prompt and answer together."""
    default_output_tokens: Annotated[int, Field(ge=1, le=16_777_216)] | None = None
    """Length assumed of an answer whose request does not limit it. Absent: 1024, or a quarter of `maxTokens`
    where that is less."""


class PoolSpec(Model):
    """A named group of instances with the same settings and one context range."""

    name: PoolName
    """Name of the pool. Together with the deployment's name at most 45 characters."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Instances of the pool. Absent: 1."""
    profile: Profile | None = None
    """What the pool is tuned for. Absent: `Balanced`."""
    context: ContextRange | None = None
    """The requests that the pool takes. Absent: the model's whole context."""
    engine: EngineSpec | None = None
    """Engine fields that differ in this pool. `env` is joined by name; other lists replace the deployment's."""
    hardware: HardwareSpec | None = None
    """Hardware fields that differ in this pool."""
    pod_template: Opaque | None = None
    """Like the deployment's `podTemplate`, merged after it."""
    leader_pod_template: Opaque | None = None
    """Like the deployment's `leaderPodTemplate`, merged after it."""
    worker_pod_template: Opaque | None = None
    """Like the deployment's `workerPodTemplate`, merged after it."""


class ValidationSpec(Model):
    """Checks before anything is deployed."""

    allow: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=63)], ...],
        Field(max_length=64),
        UniqueItems,
    ] = ()
    """Names of preflight rules whose errors become warnings."""


class RoutingSpec(Model):
    """The router in front of the pools, which sends each request to the smallest pool that can hold it."""

    enabled: bool = True
    """Whether to run a router. Absent: true."""
    mode: RoutingMode = "Envoy"
    """`Envoy` runs one; `GatewayAPI` only prepares InferencePools and labels for a gateway of yours. Absent:
    `Envoy`."""
    replicas: Annotated[int, Field(ge=1, le=100)] = 2
    """Routers. Absent: 2."""
    spill: Literal["Upward", "Never"] = "Upward"
    """Whether a request may go to a larger pool while its own has no usable instance. Absent: `Upward`."""


class CanarySpec(Model):
    """How a new revision proves itself before the rest follows."""

    instances: Annotated[int, Field(ge=0, le=100)] = 1
    """Instances that get the new revision first; 0 goes without a canary. Absent: 1."""
    analysis_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    """How long they are compared with the old ones. Absent: 300."""


class RolloutSpec(Model):
    """How a change of the spec reaches the instances."""

    strategy: RolloutStrategy = "Auto"
    """`Surge` starts the new instance first, `DeleteFirst` ends the old one first, `Auto` surges where a node can
    take one more. Absent: `Auto`."""
    canary: CanarySpec = CanarySpec()
    """The first instances of a new revision."""
    max_unavailable: Annotated[int, Field(ge=1, le=1000)] = 1
    """Instances of a pool that may be out of service at once for rollouts. Absent: 1."""


class PrometheusSpec(Model):
    """A Prometheus server: asked once a minute for what cadvisor and DCGM measure of the pods, and for history by
    `kintsugi backtest`. The engines themselves are read directly."""

    url: Annotated[str, Field(max_length=2048, pattern=r"^(https?://.+)?$")] = ""
    """Base address. Empty or absent: the operator's own setting, or none."""
    metric_prefix: Annotated[str, Field(max_length=63, pattern=r"^([a-zA-Z_:][a-zA-Z0-9_:]*)?$")] = ""
    """Prefix that something puts before metric names; they are read with and without it, out of Prometheus and from
    the engines. Empty or absent: none."""


class MonitoringSpec(Model):
    """How instances are watched."""

    scrape_interval_seconds: Annotated[int, Field(ge=1, le=30)] = 5
    """Seconds between two readings of each engine; at most 30, since evidence with wider gaps does not count.
    Absent: 5."""
    prometheus: PrometheusSpec = PrometheusSpec()
    """A Prometheus server for memory, GPUs and history."""
    pod_monitor: PodMonitorMode = "Auto"
    """Whether to write PodMonitor and PrometheusRule objects: `Auto` where the cluster knows them. Absent:
    `Auto`."""


class DeploymentSpec(Model):
    """The wanted state. The operator never writes to it; defaults are computed, not written back."""

    model: ModelSpec
    """The model to serve."""
    engine: EngineSpec | None = None
    """The engine of every instance."""
    hardware: HardwareSpec | None = None
    """The hardware of one instance. Absent: the recipe's smallest known fit."""
    pools: Annotated[tuple[PoolSpec, ...], Keyed("name", max_items=MOST_POOLS)] = ()
    """Groups of instances. Empty: one pool `main` with one replica and the model's whole context."""
    replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Instances of the pool `scalePool`, in place of that pool's own `replicas`. This is what `kubectl scale` and
    autoscalers write."""
    scale_pool: PoolName | None = None
    """Pool that `replicas` is about. Needed when `replicas` is set and there are several pools."""
    validation: ValidationSpec = ValidationSpec()
    """Checks before anything is deployed."""
    routing: RoutingSpec = RoutingSpec()
    """The router in front of the pools."""
    healing: HealingSpec = HealingSpec()
    """How sick instances are found and replaced."""
    rollout: RolloutSpec = RolloutSpec()
    """How a change of the spec reaches the instances."""
    monitoring: MonitoringSpec = MonitoringSpec()
    """How instances are watched."""
    pod_template: Opaque | None = None
    """Last resort: a strategic merge patch of the pod (`metadata`, `spec`), applied last, containers matched by
    name. Fields that the operator owns are refused by name."""
    leader_pod_template: Opaque | None = None
    """Merged after `podTemplate` into the pod that leads an instance of several nodes."""
    worker_pod_template: Opaque | None = None
    """Merged after `podTemplate` into the other pods of an instance of several nodes."""
