"""What an engine says when it ends at its start, and which kind of failure that is: a table, with its sources.

vLLM's texts are those of its releases 0.8 to 0.33 (`vllm/v1/core/kv_cache_utils.py`, `vllm/worker/worker.py`,
`vllm/v1/worker/gpu_worker.py`, `vllm/envs.py`, `vllm/model_executor/models/registry.py`, `vllm/lora/worker_manager.py`),
the hub's those of huggingface_hub 0.2x and 1.x; issue numbers are vLLM's where no other repository is named.
"""

import re
from dataclasses import dataclass
from typing import Final

from kintsugi.core.classify import kinds
from kintsugi.core.classify.failure import Kind


@dataclass(frozen=True, slots=True)
class Sign:
    """A pattern, the kind it stands for, and where it differs from the kind's own, the field and the cure.

    `{1}`, `{name}` in `cure` are the pattern's groups.
    """

    pattern: re.Pattern[str]
    kind: Kind
    field: str = ""
    cure: str = ""
    calm_too: bool = False
    """Counts in lines of level INFO or WARNING as well, where no error says anything else."""


def _sign(pattern: str, kind: Kind, field: str = "", cure: str = "", calm_too: bool = False) -> Sign:
    return Sign(re.compile(pattern, re.IGNORECASE), kind, field, cure, calm_too)


_LENGTH: Final = "engine.args.maxModelLen"
_RELEASE: Final = "; no new pod is made until the spec changes"

SIGNS: Final = (
    # Context length and KV cache (S01, recipes#381). "models's" up to 0.11, "model's" since.
    _sign(
        r"estimated\s+maximum\s+model\s+length\s+is\s+(?P<most>[\d,]*\d)",
        kinds.CONFIG_INVALID,
        _LENGTH,
        "The engine itself suggests at most {most}: set {at} to that or less" + _RELEASE,
    ),
    _sign(
        r"max\s+seq\s+len\s*\((?P<asked>[\d,]+)\)[^\n]{0,80}larger\s+than\s+the\s+maximum\s+number\s+of\s+tokens\s+that"
        r"\s+can\s+be\s+stored\s+in\s+KV\s+cache\s*\((?P<most>[\d,]+)\)",
        kinds.CONFIG_INVALID,
        _LENGTH,
        "The KV cache holds {most} tokens: set {at} to that or less" + _RELEASE,
    ),
    _sign(
        r"max[_ ]seq[_ ]len[^\n]{0,200}KV cache is needed, which is larger than the available KV cache",
        kinds.CONFIG_INVALID,
        _LENGTH,
        "One request of that length does not fit: lower {at}" + _RELEASE,
    ),
    _sign(
        r"No available memory for the cache blocks",
        kinds.CONFIG_INVALID,
        "engine.args.gpuMemoryUtilization",
        "The weights leave no memory for the KV cache: raise {at}, or give the instance more GPUs" + _RELEASE,
    ),
    _sign(
        r"max_model_len \(?(?P<asked>[\d,]+)\)? is greater than the derived max_model_len[^\n]{0,80}?(?P<most>\d[\d,]{3,})",
        kinds.CONFIG_INVALID,
        _LENGTH,
        "The model itself ends at {most}: set {at} to that or less" + _RELEASE,
    ),
    # The command line (S06, kserve#6037): argparse since ever, click and clap in front ends.
    _sign(
        r"unrecognized arguments?:\s*(?P<flags>[^\n]{1,200})",
        kinds.CONFIG_INVALID,
        "engine.extraArgs",
        "This engine does not know these flags: take them out of {at}, or name an image that knows them",
    ),
    _sign(
        r"no such option:?\s*(?P<flags>[^\n]{1,80})|unexpected argument '(?P<flag>[^'\n]{1,80})' found",
        kinds.CONFIG_INVALID,
        "engine.extraArgs",
        "This engine does not know the flag: take it out of {at}, or name an image that knows it",
    ),
    _sign(
        r": error: argument (?P<flag>--?[\w.-]+(?:/-{1,2}[\w.-]+){0,4}):",
        kinds.CONFIG_INVALID,
        "engine.args",
        "Correct the value of {flag} in {at} or engine.extraArgs" + _RELEASE,
    ),
    _sign(
        r": error: (?:the following arguments are required|ambiguous option)",
        kinds.CONFIG_INVALID,
        "engine.extraArgs",
    ),
    _sign(
        r"(?P<total>Total number of attention heads|The number of (?:key/value )?heads)[^\n]{0,60}must be divisible by"
        r"[^\n]{0,40}(?:tensor parallel|world) size",
        kinds.CONFIG_INVALID,
        "engine.args.tensorParallelSize",
    ),
    _sign(
        r"World size \(?\d+\)? is larger than the number of available GPUs|tensor.parallel.size[^\n]{0,60}(?:larger|greater|exceed)"
        r"[^\n]{0,60}GPUs|requires \d+ GPUs but only \d+",
        kinds.CONFIG_INVALID,
        "engine.args.tensorParallelSize",
        "Tensor and data parallelism ask for more GPUs than the instance has: lower {at}, or raise hardware.gpusPerInstance",
    ),
    _sign(
        r"unknown vllm environment|invalid (?:value|choice)[^\n]{0,60}(?:choose from|valid options)|(?m:^\s{1,8}(?:Value error|Assertion failed), )",
        kinds.CONFIG_INVALID,
        "engine.args",
    ),
    _sign(
        r"executable file not found in \$PATH|exec: [^\n]{1,120}: (?:no such file or directory|permission denied)"
        r"|stat [^\n]{1,120}: no such file or directory",
        kinds.CONFIG_INVALID,
        "podTemplate",
        "The image has no such command: correct command and args of the engine container in {at}, or the image",
    ),
    _sign(
        r"exec format error",
        kinds.CONFIG_INVALID,
        "engine.image",
        "The image is built for another kind of processor: name another in {at}",
    ),
    # Model and GPU (S02: #40851, #57144; S05: #40954).
    _sign(
        r"Unsupported (?:architecture|GPU|compute capability)|no kernel image is available for execution on the device"
        r"|compute capability[^\n]{0,60}(?:not supported|is required|too low)|requires? (?:a )?(?:GPU with )?compute capability"
        r"|only supported on (?:Blackwell|Hopper|sm_?\d+)|requires (?:sm_?\d+|Blackwell|Hopper)",
        kinds.UNSUPPORTED_GPU,
    ),
    _sign(
        r"Model architectures? [^\n]{0,120}(?:not supported|failed to be inspected)"
        r"|does not recognize this architecture|model type [`'\"]?[\w-]{1,60}[`'\"]? but Transformers",
        kinds.UNSUPPORTED_MODEL,
    ),
    # Service links (S48: #34199).
    _sign(r"VLLM_PORT\b[^\n]{0,120}appears to be a URI|VLLM_PORT[^\n]{0,20}tcp://", kinds.SERVICE_LINK),
    # Adapters (S53).
    _sign(
        r"Loading lora (?P<adapter>\S{1,120}) failed|Lora adapter [`'\"]?(?P<name>[\w./-]{1,120})[`'\"]? (?:not found|failed)"
        r"|No adapter found for (?P<path>\S{1,200})|adapter_config\.json[^\n]{0,80}(?:not found|no such file|does not exist)"
        r"|can't find ['\"]adapter_config\.json",
        kinds.ADAPTER_FAILED,
    ),
    # The hub (S51: huggingface_hub#3312, dynamo#874).
    _sign(
        r"\b429\b[^\n]{0,60}(?:Client Error|Too Many Requests)|Too Many Requests for url|rate.?limit(?:ed|s)? (?:reached|exceeded)"
        r"|HTTP(?: Error)? 429\b",
        kinds.MODEL_FETCH_THROTTLED,
        calm_too=True,
    ),
    _sign(
        r"gated repo|GatedRepoError|\b40[13] Client Error|Invalid (?:user|username or) (?:token|password)|Access to model [^\n]{1,120} is restricted",
        kinds.MODEL_FORBIDDEN,
        calm_too=True,
    ),
    _sign(
        r"RepositoryNotFoundError|RevisionNotFoundError|\b404 Client Error|Repository Not Found for url"
        r"|is not a (?:valid model identifier|local folder)|Repo id must (?:be|use)|Can't load the configuration of"
        r"|No (?:model weights|safetensors|\S{0,20} weights) found|Cannot find any model weights",
        kinds.MODEL_NOT_FOUND,
    ),
    _sign(
        r"LocalEntryNotFoundError|OfflineModeIsEnabled|We couldn't connect to"
        r"|NameResolutionError|Max retries exceeded with url|ConnectTimeout|Could not resolve host",
        kinds.MODEL_FETCH_FAILED,
        calm_too=True,
    ),
    # Memory of the GPU. A word before torch 2.5: torch.cuda.OutOfMemoryError.
    _sign(
        r"CUDA out of memory|CUDA error: out of memory|HIP out of memory|torch\.(?:cuda\.)?OutOfMemoryError"
        r"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED",
        kinds.GPU_OUT_OF_MEMORY,
    ),
    _sign(
        r"Free memory on device[^\n]{0,120}is less than desired GPU memory utilization",
        kinds.GPU_OUT_OF_MEMORY,
        cure="Another process holds memory of this GPU: free it, or lower {at}",
    ),
    # The node's GPUs.
    _sign(
        r"uncorrectable ECC|CUDA error: (?:unspecified launch failure|an illegal memory access|device-side|misaligned)"
        r"|no CUDA-capable device|CUDA driver version is insufficient|NVML[^\n]{0,40}(?:Not Found|mismatch|failed)"
        r"|Failed to infer device type|GPU is lost|fallen off the bus|libcuda\.so[^\n]{0,20}(?:cannot open|not found)",
        kinds.GPU_ERROR,
    ),
    # Shared memory (S23: #54002; S49: production-stack#276). The kind is decided by how often it happened.
    _sign(
        r"(?:/dev/shm|shared.memory|SharedMemory|shm_(?:open|broadcast)|psm_)[^\n]{0,200}(?:No space left on device|Cannot allocate memory)"
        r"|(?:No space left on device|Errno 28)[^\n]{0,200}(?:/dev/shm|shared.memory|SharedMemory)"
        r"|OSError: \[Errno 14\]|Bus error|insufficient shared memory|bus error[^\n]{0,40}shm"
        r"|creating shared memory segment /dev/shm",
        kinds.SHM_LEFTOVER,
    ),
    _sign(r"No space left on device|\[Errno 28\]|Disk quota exceeded", kinds.DISK_FULL),
    # Caches on a read-only or foreign file system.
    _sign(
        r"Read-only file system:?\s*(?P<place>['\"][^'\"\n]{1,200}['\"])?|\[Errno 30\]",
        kinds.CACHE_NOT_WRITABLE,
    ),
    _sign(
        r"PermissionError: \[Errno 13\]|PermissionError at /|Permission denied: ['\"]?/|mkdir: cannot create directory [^\n]{1,120}Permission denied",
        kinds.CACHE_NOT_WRITABLE,
    ),
    # Memory of the host, from inside.
    _sign(r"(?:^|\s)MemoryError\b|std::bad_alloc|OSError: \[Errno 12\]|Out of host memory", kinds.OOM_KILLED),
)
"""Asked in the order of the text: the sign that occurs first counts, and of two at one place the one further up here."""
