"""What engines write when they end at their start, and what each of it means."""

import pytest

from kintsugi.core.classify import Retry, StartFacts, StartFailure, Told, classify
from kintsugi.core.classify.lines import telling

V1 = "(EngineCore_DP0 pid=18799) ERROR 10-08 20:33:48 [core.py:708] "
NOISE = """\
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1)   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/utils.py", line 759, in wait_for_engine_startup
(APIServer pid=1)     raise RuntimeError("Engine core initialization failed. "
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}
/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown
[rank0]:[W1008 20:33:50.1 ProcessGroupNCCL.cpp:1538] Warning: destroy_process_group() was not called before program exit"""


def ended(text: str, code: int = 1, **more: object) -> StartFailure:
    facts: dict[str, object] = {
        "phase": "Running",
        "waiting_reason": "CrashLoopBackOff",
        "waiting_message": "back-off 10s restarting failed container=engine",
        "exit_code": code,
        "ended_reason": "Error",
        "restarts": 1,
        "log": tuple(text.splitlines()),
    }
    found = classify(StartFacts(**{**facts, **more}))  # type: ignore[arg-type]
    assert found is not None
    return found


KV_OLD = (
    "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed, which "
    "is larger than the available KV cache memory (4.50 GiB). Based on the available memory, the estimated maximum model "
    "length is 32768. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
)
KV_NEW = (
    "ValueError: To serve at least one request with the model's max seq len (800000), 9.29 GiB KV cache is needed, which is "
    "larger than the available KV cache memory (9.28 GiB). Based on the available memory, the estimated maximum model "
    "length is 200,704. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`."
)
KV_V0 = (
    "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV "
    "cache (77520). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
)
LENGTH = "spec.engine.args.maxModelLen"


@pytest.mark.parametrize(
    ("text", "most"), [(KV_OLD, "32768"), (KV_NEW, "200704"), (KV_V0, "77520")], ids=["0.11", "0.27", "V0"]
)
def test_a_context_that_does_not_fit_names_the_field_and_the_engines_own_maximum(
    text: str, most: str
) -> None:
    """S01."""
    found = ended(
        f"{V1}EngineCore failed to start.\n{V1}Traceback (most recent call last):\n{V1}{text}\n{NOISE}"
    )
    assert (found.kind, found.field, found.retry) == ("ConfigInvalid", LENGTH, Retry.NEVER)
    assert not found.recreate_helps
    assert most in found.cure
    assert f"set {LENGTH}" in found.cure
    assert found.reason.startswith("ValueError: T")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (
            "usage: vllm serve [model_tag] [options]\nvllm serve: error: unrecognized arguments: --disable-log-requests",
            "engine.extraArgs",
        ),
        (
            "usage: api_server.py [-h]\napi_server.py: error: unrecognized arguments: --swap-space 4",
            "engine.extraArgs",
        ),
        ("Usage: kintsugi simulate-engine [OPTIONS]\nError: No such option: --nonsense", "engine.extraArgs"),
        ("error: unexpected argument '--swap-space' found", "engine.extraArgs"),
        (
            "vllm serve: error: argument --kv-cache-dtype: invalid choice: 'fp7' (choose from auto, fp8)",
            "engine.args",
        ),
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
            "engine.args.gpuMemoryUtilization",
        ),
        (
            "ValueError: Total number of attention heads (128) must be divisible by tensor parallel size (3).",
            "engine.args.tensorParallelSize",
        ),
        (
            "ValueError: World size (16) is larger than the number of available GPUs (8) in this node.",
            "engine.args.tensorParallelSize",
        ),
        ('exec: "vllm": executable file not found in $PATH', "podTemplate"),
        ("exec /usr/bin/python3: exec format error", "engine.image"),
    ],
)
def test_a_command_that_the_engine_refuses_blames_the_spec(text: str, field: str) -> None:
    """S06."""
    found = ended(text, 2)
    assert (found.kind, found.field, found.blames_spec) == ("ConfigInvalid", f"spec.{field}", True)
    assert found.retry is Retry.NEVER
    assert f"spec.{field}" in found.cure


def test_a_flag_that_is_gone_is_named() -> None:
    found = ended("usage: vllm serve\nvllm serve: error: unrecognized arguments: --disable-log-requests", 2)
    assert "--disable-log-requests" in found.reason
    assert "flags" in found.cure


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "UnsupportedGpu",
            "RuntimeError: Assertion error (/workspace/.deps/deepgemm-src/csrc/apis/hyperconnection.hpp:56): Unsupported architecture",
        ),
        (
            "UnsupportedGpu",
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        ),
        (
            "UnsupportedModel",
            "ValueError: Model architectures ['DeepseekV4ForCausalLM'] are not supported for now.",
        ),
        (
            "UnsupportedModel",
            "ValueError: The checkpoint has model type `deepseek_v4` but Transformers does not recognize this architecture.",
        ),
        (
            "ServiceLinkPort",
            "ValueError: VLLM_PORT 'tcp://172.20.0.9:8000' appears to be a URI. This may be caused by a Kubernetes service discovery issue",
        ),
        ("AdapterFailed", "ValueError: Loading lora tax failed: No adapter found for /models/tax"),
        (
            "ModelFetchThrottled",
            "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://hub/api/models/x (Request ID: Root=1)",
        ),
        (
            "ModelForbidden",
            "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1)\n\nCannot access gated repo for url https://hub/x",
        ),
        ("ModelForbidden", "OSError: You are trying to access a gated repo."),
        (
            "ModelNotFound",
            "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. (Request ID: 1)",
        ),
        (
            "ModelNotFound",
            "OSError: /models/v4 is not a local folder and is not a valid model identifier listed on the hub",
        ),
        ("ModelFetchFailed", "OSError: We couldn't connect to 'https://hub' to load the files"),
        (
            "GpuOutOfMemory",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.00 GiB. GPU 0 has a total capacity of 139.8 GiB",
        ),
        ("GpuOutOfMemory", "torch.cuda.OutOfMemoryError: CUDA out of memory."),
        (
            "GpuOutOfMemory",
            "ValueError: Free memory on device cuda:0 (3.25/23.43 GiB) on startup is less than desired GPU memory utilization (0.96, 22.49 GiB).",
        ),
        ("GpuError", "RuntimeError: CUDA error: an illegal memory access was encountered"),
        ("GpuError", "RuntimeError: No CUDA-capable device is detected"),
        ("DiskFull", "OSError: [Errno 28] No space left on device: '/root/.cache/huggingface/x.incomplete'"),
        ("CacheNotWritable", "OSError: [Errno 30] Read-only file system: '/root/.cache'"),
        ("CacheNotWritable", "PermissionError: [Errno 13] Permission denied: '/.cache'"),
        ("OOMKilled", "MemoryError"),
    ],
)
def test_each_text_has_its_kind_and_a_cure_that_names_a_field(kind: str, text: str) -> None:
    found = ended(f"INFO 10-08 20:33:40 [core.py:1] starting\n{V1}{text}\n{NOISE}")
    assert found.kind == kind, found
    assert found.reason in text or text.startswith(found.reason[:60])
    assert found.field.startswith("spec.")
    assert found.cure


def test_the_first_error_counts_and_not_the_noise_of_the_end() -> None:
    """S22: 6 kB of which the last 300 characters say nothing."""
    body = "\n".join(f'(EngineCore_DP0 pid=7)   File "/x/y{n}.py", line {n}, in step' for n in range(90))
    text = f"{V1}ValueError: bad thing in the KV cache of group 3\n{body}\n{NOISE}"
    assert len(text) > 6000
    found = ended(text, log=(), ended_message=text)
    assert found.kind == "EngineCrashed"
    assert found.reason == "ValueError: bad thing in the KV cache of group 3 (exit 1)"


def test_what_is_kept_of_a_log_says_the_same_as_the_whole_of_it() -> None:
    calm = [f"INFO 10-08 20:33:{n % 60:02} [utils.py:1] calm {n}" for n in range(200)]
    trace = [
        line
        for n in range(80)
        for line in (f'{V1}  File "/x/y{n}.py", line {n}, in step', f"{V1}    return f({n})")
    ]
    for words in (KV_NEW, "KeyError: 'layers.7'", SHM, "torch.OutOfMemoryError: CUDA out of memory."):
        log = [*calm, f"{V1}Traceback (most recent call last):", *trace, V1 + words, *NOISE.splitlines()]
        kept = telling(log)
        assert len(kept) < 12
        assert ended("\n".join(log)) == ended("\n".join(kept))
    warned = [*calm, "WARNING 10-08 20:30:00 [hub.py:1] 429 Client Error: Too Many Requests for url x", *calm]
    assert ended("\n".join(telling(warned)), 137).kind == "ModelFetchThrottled"
    assert ended("\n".join(telling([*calm, SHARDS])), 143, events=PROBE).kind == "StartProbeTooShort"
    assert telling(calm) == tuple(calm[-20:])
    assert telling([]) == ()


def test_a_retry_that_was_overcome_is_not_the_cause() -> None:
    text = f"WARNING 10-08 20:30:00 [hub.py:1] 429 Client Error: Too Many Requests for url x, retrying\n{V1}{KV_NEW}"
    assert ended(text).kind == "ConfigInvalid"


def test_throttled_downloads_that_are_only_warned_of_explain_a_kill() -> None:
    text = "WARNING 10-08 20:30:00 [hub.py:1] 429 Client Error: Too Many Requests for url x, retrying in 8 s"
    found = ended(text, 137)
    assert (found.kind, found.retry, found.recreate_helps) == ("ModelFetchThrottled", Retry.BACK_OFF, False)
    assert "spec.model.source.pvc" in found.cure


def test_a_leader_that_is_not_found_is_no_failed_download() -> None:
    assert ended(f"{V1}socket.gaierror: [Errno -2] Name or service not known").kind == "EngineCrashed"


def test_a_worker_that_failed_is_quoted_where_nothing_else_is_said() -> None:
    text = "(EngineCore pid=1) RuntimeError: Worker failed with error 'NCCL says no', please check the stack trace above"
    assert ended(text).reason.startswith("NCCL says no")


def test_pydantics_second_line_is_the_cause() -> None:
    text = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, User-specified max_model_len (2000000) is greater than the derived max_model_len "
        "(max_position_embeddings=1048576 or model_max_length=None in model's config.json)."
    )
    found = ended(text)
    assert (found.kind, found.field) == ("ConfigInvalid", LENGTH)
    assert "1048576" in found.cure


SHARDS = "Loading safetensors checkpoint shards:  53% Completed | 34/64 [04:50<04:10,  8.4s/it]"
PROBE = (
    Told("Unhealthy", 'Startup probe failed: Get "http://10.0.0.7:8000/health": connection refused', 60),
    Told("Killing", "Container engine failed startup probe, will be restarted"),
)


@pytest.mark.parametrize("code", [143, 137, 0])
def test_an_engine_killed_while_it_loads_had_too_little_time(code: int) -> None:
    """S52."""
    found = ended(SHARDS, code, events=PROBE)
    assert (found.kind, found.field) == ("StartProbeTooShort", "spec.engine.startBudgetSeconds")
    assert "34 of 64 shards" in found.reason
    assert not found.recreate_helps


def test_a_liveness_probe_of_the_users_own_is_named() -> None:
    told = (*PROBE, Told("Killing", "Container engine failed liveness probe, will be restarted"))
    found = ended("INFO 10-08 20:33:40 [core.py:1] busy", 137, events=told)
    assert (found.kind, found.field) == ("LivenessProbe", "spec.podTemplate")
    assert ended(SHARDS, 137, events=(*told, PROBE[1])).kind == "StartProbeTooShort", "the newest counts"


def test_a_crash_while_the_probe_has_not_succeeded_yet_is_a_crash() -> None:
    found = ended(f"{SHARDS}\nRuntimeError: something broke", 1, events=PROBE[:1])
    assert found.kind == "EngineCrashed"


def test_an_oom_kill_is_one_even_where_the_probe_failed_too() -> None:
    found = ended(SHARDS, 137, events=PROBE, ended_reason="OOMKilled")
    assert (found.kind, found.field) == ("OOMKilled", "spec.engine.resources.limits.memory")


SHM = "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'"


@pytest.mark.parametrize("text", [SHM, "OSError: [Errno 14] Bad address", "Bus error (core dumped)"])
def test_shared_memory_full_over_restarts_is_what_a_crash_left(text: str) -> None:
    """S23, and S49 where it happens at once."""
    assert ended(text, restarts=1, served=True).kind == "SharedMemoryTooSmall"
    assert ended(text, restarts=9).kind == "SharedMemoryTooSmall", "no run has served with it"
    left = ended(text, restarts=3, served=True)
    assert (left.kind, left.recreate_helps) == ("SharedMemoryLeftover", True)
    shared = ended(text, restarts=3, served=True, host_ipc=True)
    assert (shared.recreate_helps, shared.field) == (False, "spec.podTemplate.spec.hostIPC")


def test_a_bus_error_without_a_word_is_full_shared_memory() -> None:
    assert ended("", 135, restarts=0).kind == "SharedMemoryTooSmall"
    assert (
        ended("INFO 10-08 20:33:40 [core.py:1] loading", 135, restarts=4, served=True).kind
        == "SharedMemoryLeftover"
    )
    assert ended("RuntimeError: CUDA out of memory", 135).kind == "GpuOutOfMemory"


def test_a_clean_exit_is_a_failure_all_the_same() -> None:
    """S21."""
    found = ended("INFO 10-08 20:33:40 [launcher.py:1] Shutting down", 0, ended_reason="Completed")
    assert (found.kind, found.recreate_helps) == ("EngineExited", True)


def test_a_segfault_names_its_signal() -> None:
    found = ended("!!!!!!! Segfault encountered !!!!!!!", 139)
    assert "SIGSEGV" in found.reason


def test_secrets_never_reach_a_condition() -> None:
    text = (
        "ValueError: cannot use token=abcdefgh12345 of hf_AbCdEfGhIjKl with --api-key sk-verysecretkey123 at "
        "https://me:pa55word@mirror/x, Authorization: Bearer abc.def"
    )
    found = ended(text)
    for secret in ("abcdefgh12345", "AbCdEfGhIjKl", "verysecretkey123", "pa55word", "abc.def"):
        assert secret not in found.message
