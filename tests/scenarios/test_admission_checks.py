"""ADM: what is wrong is said before anything is deployed (S01 to S07), with siblings of each."""

from typing import Any

import pytest

from kintsugi.api.effective import pools_of
from kintsugi.api.objects import parse_deployment
from kintsugi.core.command.render import engine_command
from tests.scenarios.linting import FLASH, FLASH_0731, PRO, gpus, lint, manifest, vllm

MEGA_MOE = {"moeBackend": "deep_gemm_mega_moe"}
FP4 = ["--attention_config.use_fp4_indexer_cache=True"]


def s01(length: int = 800_000, **spec: Any) -> dict[str, Any]:
    args = {
        "dataParallelSize": 8,
        "enableExpertParallel": True,
        "maxModelLen": length,
        "gpuMemoryUtilization": 0.95,
    }
    return manifest(PRO, engine=vllm("v0.25.0", args=args), hardware=gpus("H200", 8), **spec)


def test_s01_a_context_that_nobody_verified_is_accepted_with_a_warning() -> None:
    answer = lint(s01())
    assert answer.code == 0
    assert answer.warnings == [("ContextBeyondVerified", "spec.engine.args.maxModelLen")]
    said = answer.text("ContextBeyondVerified")
    assert "spec.engine.args.maxModelLen" in said
    assert "200000" in said
    assert "spec.validation.allow: [ContextBeyondVerified]" in said


def test_s01_the_verified_context_and_an_acknowledged_one_pass_in_silence() -> None:
    assert lint(s01(200_000)).findings == []
    assert lint(s01(validation={"allow": ["ContextBeyondVerified"]})).findings == []


@pytest.mark.parametrize(
    "spec",
    [
        {"engine": {"extraArgs": ["--max_model_len=800k"]}},
        {"pools": [{"name": "long", "context": {"maxTokens": 800_000}}]},
        {"pools": [{"name": "long", "engine": {"args": {"maxModelLen": 800_000}}}]},
    ],
    ids=["free word", "range of a pool", "typed in a pool"],
)
def test_s01_wherever_the_context_is_said(spec: dict[str, Any]) -> None:
    answer = lint(manifest(PRO, hardware=gpus("H200", 8), **spec))
    assert answer.code == 0
    assert [rule for rule, _ in answer.warnings] == ["ContextBeyondVerified"]


def test_s02_a_generation_without_kernels_is_refused_and_named() -> None:
    answer = lint(manifest(FLASH, hardware=gpus("A100-80GB", 8)))
    assert (answer.code, answer.errors) == (1, [("UnsupportedGpu", "spec.hardware.gpu")])
    said = answer.text("UnsupportedGpu")
    assert FLASH in said
    assert "sm_90" in said


def test_s02_a_fork_may_be_allowed() -> None:
    answer = lint(manifest(FLASH, hardware=gpus("A100-80GB", 8), validation={"allow": ["UnsupportedGpu"]}))
    assert (answer.code, answer.errors) == (0, [])
    assert ("UnsupportedGpu", "spec.hardware.gpu") in answer.warnings


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1"])
def test_s02_older_families_run_on_that_gpu(model: str) -> None:
    assert lint(manifest(model, hardware=gpus("A100-80GB", 8))).code == 0


@pytest.mark.parametrize(
    ("model", "hardware"),
    [
        (FLASH, gpus("A800", 8)),
        (FLASH, gpus("NVIDIA-A100-SXM4-80GB", 8)),
        (FLASH, gpus("L40S", 8)),
        (PRO, gpus("RTX PRO 6000", 16)),
        (PRO, gpus("MI325X", 8)),
        (FLASH, gpus("MI300X", 8)),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", gpus("H200", 8)),
        ("nvidia/DeepSeek-V4-Pro-NVFP4", gpus("H200", 8)),
    ],
    ids=str,
)
def test_s02_siblings_that_can_not_run(model: str, hardware: dict[str, Any]) -> None:
    assert ("UnsupportedGpu", "spec.hardware.gpu") in lint(manifest(model, hardware=hardware)).errors


@pytest.mark.parametrize(
    ("model", "hardware"),
    [
        (FLASH, gpus("RTX PRO 6000", 8)),
        (FLASH, gpus("MI355X", 8)),
        (PRO, gpus("MI355X", 8)),
        (FLASH, gpus("H20", 8)),
        (FLASH, gpus("h200", 8)),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", gpus("B200", 8)),
        ("/models/DeepSeek-V4-Flash", gpus("GB200", 4)),
    ],
    ids=str,
)
def test_s02_siblings_that_can(model: str, hardware: dict[str, Any]) -> None:
    answer = lint(manifest(model, hardware=hardware))
    assert (answer.code, answer.errors) == (0, [])


@pytest.mark.parametrize("kind", ["H200", "RTX PRO 6000", "H100", "GB10"])
def test_s03_flags_of_datacenter_blackwell_are_refused_elsewhere_both_at_once(kind: str) -> None:
    answer = lint(manifest(hardware=gpus(kind, 8), engine={"args": MEGA_MOE, "extraArgs": FP4}))
    assert answer.code == 1
    assert answer.errors == [
        ("BlackwellOnly", "spec.engine.args.moeBackend"),
        ("BlackwellOnly", "spec.engine.extraArgs[0]"),
    ]


@pytest.mark.parametrize(("kind", "count"), [("B200", 8), ("GB200", 4), ("B300", 8), ("GB300", 4)])
def test_s03_they_are_accepted_where_they_belong(kind: str, count: int) -> None:
    answer = lint(manifest(hardware=gpus(kind, count), engine={"args": MEGA_MOE, "extraArgs": FP4}))
    assert (answer.code, answer.errors) == (0, [])


@pytest.mark.parametrize(
    "words",
    [
        ["--attention-config", '{"use_fp4_indexer_cache": true}'],
        ["-ac", '{"indexer_kv_dtype": "mxfp4"}'],
        ["--attention-config.indexer_kv_dtype=mxfp4"],
        ["--attention_config.use_fp4_indexer_cache", "True"],
        ["--moe_backend=deep_gemm_mega_moe"],
    ],
    ids=" ".join,
)
def test_s03_however_they_are_spelled_and_in_a_pool(words: list[str]) -> None:
    pools = [{"name": "a", "engine": {"extraArgs": ["--max-num-seqs=8", *words]}}]
    answer = lint(manifest(hardware=gpus("H200", 8), pools=pools))
    assert answer.errors == [("BlackwellOnly", "spec.pools[0].engine.extraArgs[1]")]


def test_s03_switched_off_they_are_nothing() -> None:
    off = {"extraArgs": ["--attention_config.use_fp4_indexer_cache=False"]}
    assert lint(manifest(hardware=gpus("H200", 8), engine=off)).code == 0


def test_s04_nothing_said_renders_what_the_family_needs() -> None:
    raw = manifest(engine={"args": {}})
    assert lint(raw).findings == []
    spec = parse_deployment(raw).spec
    words = engine_command(spec, pools_of(spec)[0]).words()
    assert words[words.index("--block-size") + 1] == "256"
    assert words[words.index("--kv-cache-dtype") + 1] == "fp8"
    assert spec.dump()["engine"].get("args", {}) == {}, "nothing is written back"


@pytest.mark.parametrize("size", [1, 16, 64, 96, 128, 512])
def test_s04_an_explicit_block_size_is_refused_by_its_field(size: int) -> None:
    answer = lint(manifest(engine={"args": {"blockSize": size}}))
    assert (answer.code, answer.errors) == (1, [("BlockSize", "spec.engine.args.blockSize")])
    assert "256" in answer.text("BlockSize")


def test_s04_in_free_words_and_in_one_pool_only() -> None:
    free = lint(manifest(engine={"extraArgs": ["--block_size", "64"]}))
    assert free.errors == [("BlockSize", "spec.engine.extraArgs[0]")]
    pools = [
        {"name": "a", "context": {"maxTokens": 8192}},
        {"name": "b", "engine": {"args": {"blockSize": 16}}},
    ]
    assert lint(manifest(pools=pools)).errors == [("BlockSize", "spec.pools[1].engine.args.blockSize")]


def test_s04_other_families_choose_freely() -> None:
    r1 = manifest("deepseek-ai/DeepSeek-R1", hardware=gpus("H200", 8), engine={"args": {"blockSize": 64}})
    assert lint(r1).errors == []


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "fp16"])
def test_s04_sibling_a_cache_format_that_the_kernels_refuse(dtype: str) -> None:
    assert lint(manifest(engine={"args": {"kvCacheDtype": dtype}})).errors == [
        ("KvCacheDtype", "spec.engine.args.kvCacheDtype")
    ]


def test_s05_a_an_image_older_than_the_model() -> None:
    answer = lint(manifest(FLASH, engine=vllm("v0.19.1")))
    assert (answer.code, answer.errors) == (1, [("EngineTooOld", "spec.engine.image")])
    assert "0.20.0" in answer.text("EngineTooOld")


def test_s05_b_an_image_without_a_version() -> None:
    answer = lint(manifest(FLASH, engine={"image": "registry.corp/llm/vllm@sha256:" + "0" * 64}))
    assert (answer.code, answer.errors) == (0, [])
    assert answer.warnings == [("EngineVersionUnknown", "spec.engine.image")]
    assert "spec.engine.version" in answer.text("EngineVersionUnknown")


def test_s05_c_a_version_in_its_field() -> None:
    answer = lint(manifest(FLASH, engine={"image": "registry.corp/llm/vllm:prod", "version": "0.27.1"}))
    assert answer.findings == []


@pytest.mark.parametrize("tag", ["nightly", "latest", "deepseekv4-cu130", "prod-2026-11", "main"])
def test_s05_tags_that_are_no_versions(tag: str) -> None:
    answer = lint(manifest(FLASH, engine=vllm(tag)))
    assert (answer.code, answer.warnings) == (0, [("EngineVersionUnknown", "spec.engine.image")])


def test_s05_a_tag_with_a_suffix_is_a_version() -> None:
    assert lint(manifest(FLASH, engine=vllm("v0.27.1-cu129"))).findings == []


@pytest.mark.parametrize(
    ("model", "tag", "least"),
    [
        (FLASH_0731, "v0.24.0", "0.25.0"),
        ("deepseek-ai/DeepSeek-V4-Pro-0813", "v0.22.1", "0.25.0"),
        ("deepseek-ai/DeepSeek-V4.1-Flash", "v0.29.0", "0.30.0"),
        (FLASH, "v0.3.2", "0.20.0"),
    ],
)
def test_s05_siblings_each_checkpoint_has_its_own_minimum(model: str, tag: str, least: str) -> None:
    answer = lint(manifest(model, engine=vllm(tag)))
    assert answer.errors == [("EngineTooOld", "spec.engine.image")]
    assert least in answer.text("EngineTooOld")


def test_s06_a_flag_that_is_gone_is_named_with_its_replacement() -> None:
    answer = lint(manifest(engine=vllm("v0.27.1", extraArgs=["--disable-log-requests"])))
    assert (answer.code, answer.errors) == (1, [("RemovedFlag", "spec.engine.extraArgs[0]")])
    assert "--enable-log-requests" in answer.text("RemovedFlag")


@pytest.mark.parametrize(
    ("tag", "words", "rule"),
    [
        ("v0.27.1", ["--disable_log_requests"], "RemovedFlag"),
        ("v0.33.0", ["--swap-space", "16G"], "SwapSpace"),
        ("v0.27.1", ["--max-num-queued-reqs=64"], "FlagTooNew"),
        ("v0.33.0", ["--max-model-lenght=8192"], "UnknownFlag"),
        ("v0.33.0", ["--max-num-seqs 64"], "StrayWord"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_s06_siblings_words_that_end_the_engine_at_parsing(tag: str, words: list[str], rule: str) -> None:
    answer = lint(manifest(engine=vllm(tag, extraArgs=words)))
    assert (answer.code, answer.errors) == (1, [(rule, "spec.engine.extraArgs[0]")])


def test_s06_where_the_version_is_unknown_the_models_own_minimum_counts() -> None:
    answer = lint(manifest(engine=vllm("nightly", extraArgs=["--disable-log-requests"])))
    assert answer.errors == [("RemovedFlag", "spec.engine.extraArgs[0]")]
    assert "0.25.0, the oldest that runs the model" in answer.text("RemovedFlag")


def test_s06_where_nothing_is_known_it_is_a_warning() -> None:
    own = manifest(
        "me/own", hardware=gpus("H200", 1), engine=vllm("nightly", extraArgs=["--disable-log-requests"])
    )
    answer = lint(own)
    assert answer.code == 0
    assert ("RemovedFlag", "spec.engine.extraArgs[0]") in answer.warnings


def test_s07_the_same_setting_twice_is_refused_naming_both_paths() -> None:
    engine = {
        "args": {"maxModelLen": 131_072},
        "extraArgs": ["--max_model_len=262144", "-tp", "8"],
        "env": [{"name": "VLLM_API_KEY", "value": "x"}],
    }
    answer = lint(manifest(hardware=gpus("H200", 8), engine=engine))
    assert answer.code == 1
    assert answer.errors == [("ConflictingArguments", "spec.engine.extraArgs[0]")]
    said = answer.text("ConflictingArguments")
    assert "spec.engine.args.maxModelLen" in said
    assert "spec.engine.extraArgs[0]" in said
    assert answer.warnings == [("PlainSecret", "spec.engine.env[0]")]
    assert "apiKeySecret" in answer.text("PlainSecret")


@pytest.mark.parametrize(
    ("args", "words", "place"),
    [
        ({"tensorParallelSize": 4}, ["-tp", "8"], 0),
        ({"tensorParallelSize": 4}, ["-tp=8"], 0),
        ({"dataParallelSize": 2}, ["--data_parallel_size", "4"], 0),
        ({"enablePrefixCaching": True}, ["--no-enable-prefix-caching"], 0),
        ({"gpuMemoryUtilization": 0.9}, ["--gpu_memory_utilization=0.95"], 0),
        (
            {"speculative": {"method": "DSpark"}},
            ["-sc", '{"method": "dspark", "num_speculative_tokens": 1}'],
            0,
        ),
        ({}, ["--max-num-seqs", "64", "--max_num_seqs=32"], 2),
    ],
    ids=str,
)
def test_s07_siblings_by_any_spelling(args: dict[str, Any], words: list[str], place: int) -> None:
    answer = lint(manifest(hardware=gpus("H200", 8), engine={"args": args, "extraArgs": words}))
    assert ("ConflictingArguments", f"spec.engine.extraArgs[{place}]") in answer.errors


def test_s07_the_same_value_twice_is_a_warning() -> None:
    engine = {"args": {"tensorParallelSize": 4}, "extraArgs": ["--tensor_parallel_size=4"]}
    answer = lint(manifest(hardware=gpus("H200", 4), engine=engine))
    assert (answer.code, answer.warnings) == (0, [("DuplicateArgument", "spec.engine.extraArgs[0]")])


def test_several_errors_come_in_one_run_in_a_steady_order() -> None:
    raw = manifest(
        FLASH,
        hardware=gpus("A100", 8),
        engine=vllm("v0.19.1", args={"blockSize": 16}, extraArgs=["--swap-space=16", "--disable-log-stats"]),
        shmSize="20Gi",
        pools=[{"name": "a", "engine": {"extraArgs": ["-q", "awq"]}}],
    )
    first, second = lint(raw), lint(raw)
    assert first.findings == second.findings
    assert [path for _, path in first.errors] == sorted(path for _, path in first.errors)
    assert {rule for rule, _ in first.errors} == {
        "BlockSize",
        "EngineTooOld",
        "Quantization",
        "UnknownField",
        "UnsupportedGpu",
    }
