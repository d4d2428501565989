"""The table of kinds. One line per way in which a start fails; the documentation prints it."""

from typing import Final

from kintsugi.core.classify.failure import Kind, Retry

CONFIG_INVALID: Final = Kind(
    "ConfigInvalid",
    Retry.NEVER,
    False,
    "engine",
    "Correct {at}; no new pod is made until the spec changes",
    blames_spec=True,
)
UNSUPPORTED_GPU: Final = Kind(
    "UnsupportedGpu",
    Retry.NEVER,
    False,
    "hardware.gpu",
    "The engine has no kernels for this GPU: choose another in {at}, or an image that has them in spec.engine.image",
    blames_spec=True,
)
UNSUPPORTED_MODEL: Final = Kind(
    "UnsupportedModel",
    Retry.NEVER,
    False,
    "engine.image",
    "This engine does not know the model: name a newer image in {at}",
    blames_spec=True,
)
SERVICE_LINK: Final = Kind(
    "ServiceLinkPort",
    Retry.NEVER,
    False,
    "podTemplate.spec.enableServiceLinks",
    "Kubernetes set VLLM_PORT for a Service named vllm: leave {at} at false, or rename the Service",
    blames_spec=True,
)
ADAPTER_FAILED: Final = Kind(
    "AdapterFailed",
    Retry.BACK_OFF,
    False,
    "model.loraAdapters",
    "Correct the path of this adapter in {at}; engines without it serve the base model on",
)
IMAGE_PULL: Final = Kind(
    "ImagePull",
    Retry.BY_KUBELET,
    False,
    "engine.image",
    "Check {at}, and podTemplate.spec.imagePullSecrets where the registry asks for a login",
)
SECRET_NOT_FOUND: Final = Kind(
    "SecretNotFound",
    Retry.BY_KUBELET,
    False,
    "engine",
    "Create the Secret, or correct its name in {at}; the pod then starts by itself",
)
CONFIG_MAP_NOT_FOUND: Final = Kind(
    "ConfigMapNotFound",
    Retry.BY_KUBELET,
    False,
    "engine",
    "Create the ConfigMap, or correct its name in {at}; the pod then starts by itself",
)
KEY_NOT_FOUND: Final = Kind(
    "KeyNotFound",
    Retry.BY_KUBELET,
    False,
    "engine",
    "Add the key, or correct its name in {at}; the pod then starts by itself",
)
CONTAINER_CONFIG: Final = Kind(
    "ContainerConfig",
    Retry.BY_KUBELET,
    False,
    "podTemplate",
    "The node refuses the container: correct {at}",
)
PVC_NOT_FOUND: Final = Kind(
    "PVCNotFound",
    Retry.BY_KUBELET,
    False,
    "model.source.pvc.claimName",
    "Create the claim, or correct {at}; the pod then starts by itself",
)
PVC_UNBOUND: Final = Kind(
    "PVCUnbound",
    Retry.BY_KUBELET,
    False,
    "model.source.pvc.claimName",
    "The claim has no volume yet: look at it with kubectl describe pvc; the pod starts once it is bound",
)
MULTI_ATTACH: Final = Kind(
    "MultiAttach",
    Retry.BY_KUBELET,
    False,
    "model.source.pvc.claimName",
    "The volume is held by another node: name a claim in {at} that is ReadOnlyMany or ReadWriteMany, or keep all "
    "instances on one node",
)
MOUNT_FAILED: Final = Kind(
    "MountFailed",
    Retry.BY_KUBELET,
    False,
    "model.source",
    "The node can't mount a volume: check {at} and the storage driver; the kubelet tries again",
)
SANDBOX_FAILED: Final = Kind(
    "SandboxFailed",
    Retry.BY_KUBELET,
    True,
    "podTemplate",
    "The node can't set up a place for the pod: look at its network plugin and, where {at} names one, at the runtime class",
)
MODEL_FETCH_THROTTLED: Final = Kind(
    "ModelFetchThrottled",
    Retry.BACK_OFF,
    False,
    "model.source",
    "The hub refuses more downloads for now, and asking more often makes that longer: put the model on a claim and name "
    "it in {at}.pvc, which also makes the engine work offline",
)
MODEL_FORBIDDEN: Final = Kind(
    "ModelForbidden",
    Retry.NEVER,
    False,
    "model.source.hub.tokenSecretRef",
    "Name in {at} a token that may read this model, and accept the model's terms on the hub",
)
MODEL_NOT_FOUND: Final = Kind(
    "ModelNotFound",
    Retry.NEVER,
    False,
    "model.id",
    "Check {at}, spec.model.revision and, where the model lies on a volume, spec.model.source",
)
MODEL_FETCH_FAILED: Final = Kind(
    "ModelFetchFailed",
    Retry.BACK_OFF,
    False,
    "model.source",
    "The hub was not reached: check DNS, proxy and network policy, or put the model on a claim and name it in {at}.pvc",
)
DISK_FULL: Final = Kind(
    "DiskFull",
    Retry.BACK_OFF,
    True,  # its emptyDirs begin empty
    "model.source",
    "The node's disk can't hold what the pod writes: put the model on a claim and name it in {at}.pvc, or request "
    "ephemeral-storage in engine.resources so that only a node with room is chosen",
)
EVICTED: Final = Kind(
    "Evicted",
    Retry.BY_KUBELET,
    True,
    "engine.resources",
    "The node ran short and put the pod out: request in {at} what it really uses",
)
NODE_REFUSED: Final = Kind(
    "NodeRefused",
    Retry.BY_KUBELET,
    True,
    "hardware",
    "The node did not take the pod it was given: look at the node's devices; Kubernetes makes another pod",
)
UNSCHEDULABLE: Final = Kind(
    "Unschedulable",
    Retry.BY_KUBELET,
    False,
    "hardware",
    "No node can take it: add room, or ask for less in {at}; the pod starts as soon as one can",
)
OOM_KILLED: Final = Kind(
    "OOMKilled",
    Retry.BACK_OFF,
    False,
    "engine.resources.limits.memory",
    "Raise {at}: it must hold the engine's own memory, /dev/shm and any KV cache offloaded to the host",
)
GPU_OUT_OF_MEMORY: Final = Kind(
    "GpuOutOfMemory",
    Retry.BACK_OFF,
    True,
    "engine.args.gpuMemoryUtilization",
    "Lower {at}, maxNumBatchedTokens or maxNumSeqs, or give the instance more GPUs",
)
GPU_ERROR: Final = Kind(
    "GpuError",
    Retry.BACK_OFF,
    True,
    "hardware",
    "The GPU or its driver failed: look at the node",
)
START_PROBE_TOO_SHORT: Final = Kind(
    "StartProbeTooShort",
    Retry.NEVER,
    False,
    "engine.startBudgetSeconds",
    "The kubelet ended the engine while it was still loading: raise {at}",
)
LIVENESS_PROBE: Final = Kind(
    "LivenessProbe",
    Retry.NEVER,
    False,
    "podTemplate",
    "A liveness probe ended the engine: take it out of {at}. A busy engine misses its deadline, a hung one answers it; the "
    "operator watches for both",
)
SHM_TOO_SMALL: Final = Kind(
    "SharedMemoryTooSmall",
    Retry.BACK_OFF,
    False,
    "engine.shm.size",
    "/dev/shm is full: raise {at}",
)
SHM_LEFTOVER: Final = Kind(
    "SharedMemoryLeftover",
    Retry.BACK_OFF,
    True,
    "engine.shm.size",
    "What an earlier run left in /dev/shm outlives restarts of the container; a fresh pod begins with an empty one. Where "
    "that one fails too, raise {at}",
)
CACHE_NOT_WRITABLE: Final = Kind(
    "CacheNotWritable",
    Retry.NEVER,
    False,
    "podTemplate",
    "Give the engine a place to write: mount a volume there in {at}, or point HF_HOME, VLLM_CACHE_ROOT or TMPDIR at one "
    "in engine.env",
)
ENGINE_EXITED: Final = Kind(
    "EngineExited",
    Retry.BACK_OFF,
    True,
    "engine",
    "An engine that serves never ends by itself, whatever its exit code: look at its log",
)
ENGINE_CRASHED: Final = Kind(
    "EngineCrashed",
    Retry.BACK_OFF,
    True,
    "engine",
    "Look at the engine's log: kubectl logs --previous",
)
INIT_FAILED: Final = Kind(
    "InitContainerFailed",
    Retry.BACK_OFF,
    False,
    "podTemplate",
    "Look at the log of that container; the engine is not started before it succeeds",
)

SIDECAR_FAILED: Final = Kind(
    "SidecarFailed",
    Retry.BACK_OFF,
    False,
    "podTemplate",
    "Look at the log of that container; the pod takes no traffic before it is ready too",
)

KINDS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Kind))
"""Every kind, in the order of this file."""
KIND_NAMES: Final = frozenset(kind.name for kind in KINDS)
