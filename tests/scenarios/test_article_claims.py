"""The article's claims that a manifest can express: the wrong form with its answer, and the right form."""

from typing import Any

import pytest

from tests.scenarios.linting import FLASH, FLASH_0731, PRO, gpus, lint, manifest, vllm

R1 = "deepseek-ai/DeepSeek-R1"
SHORT = {"name": "short", "profile": "HighThroughput", "context": {"maxTokens": 8192}}
LONG = {"name": "long", "profile": "LongContext", "context": {"maxTokens": 1_048_576}}


def words(*extra: str, model: str = FLASH_0731, tag: str = "v0.33.0") -> dict[str, Any]:
    return manifest(model, engine=vllm(tag, extraArgs=list(extra)))


def typed(model: str = FLASH_0731, /, **args: Any) -> dict[str, Any]:
    return manifest(model, engine={"args": args})


WRONG: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "A1 an engine that does not know V4": (
        manifest(FLASH, engine=vllm("v0.19.1")),
        "EngineTooOld",
        "spec.engine.image",
        "0.20.0",
    ),
    "A2 eager mode for paged attention": (
        typed(enforceEager=True),
        "EagerMode",
        "spec.engine.args.enforceEager",
        "paging",
    ),
    "A2 a native engine without its image": (
        manifest(engine={"runtime": "Native"}),
        "ImageMissing",
        "spec.engine",
        "no default image",
    ),
    "A3 a multiple of the layer count": (
        typed(blockSize=86),
        "BlockSize",
        "spec.engine.args.blockSize",
        "nothing to do with the number of layers",
    ),
    "A4 V4 on an A100": (
        manifest(FLASH, hardware=gpus("A100-80GB", 8)),
        "UnsupportedGpu",
        "spec.hardware.gpu",
        "sm_90",
    ),
    "A4 more than 32 sequences on an A100": (
        manifest(R1, hardware=gpus("A100-80GB", 16), engine={"args": {"maxNumSeqs": 64}}),
        "ManySequencesOnA100",
        "spec.engine.args.maxNumSeqs",
        "32",
    ),
    "A4 more sequences than blocks": (
        manifest(
            hardware=gpus("H200", 4),
            pools=[
                {"name": "long", "context": {"maxTokens": 1_048_576}, "engine": {"args": {"maxNumSeqs": 512}}}
            ],
        ),
        "SequencesBeyondCapacity",
        "spec.pools[0].engine.args.maxNumSeqs",
        "KV cache is full before",
    ),
    "A4 the fuse before its version": (
        words("--max-num-queued-reqs", "64", tag="v0.27.1"),
        "FlagTooNew",
        "spec.engine.extraArgs[0]",
        "0.29.0",
    ),
    "A5 a static size": (
        words("--kv-cache-memory-bytes", "80G"),
        "KvMemoryFixed",
        "spec.engine.extraArgs[0]",
        "gpuMemoryUtilization",
    ),
    "A5 nearly all of it": (
        typed(gpuMemoryUtilization=0.99),
        "GpuMemoryUtilizationHigh",
        "spec.engine.args.gpuMemoryUtilization",
        "0.95",
    ),
    "A7 vLLM 0.3.2": (manifest(engine=vllm("v0.3.2")), "EngineTooOld", "spec.engine.image", "0.25.0"),
    "A7 a scaling of one's own": (
        words("--hf-overrides", '{"rope_scaling": {"rope_type": "yarn", "factor": 16}}'),
        "RopeOverridden",
        "spec.engine.extraArgs[0]",
        "built in",
    ),
    "A8 no statistics": (
        words("--disable-log-stats"),
        "LogStatsDisabled",
        "spec.engine.extraArgs[0]",
        "no start gets faster",
    ),
    "A9 a front end without the series": (
        manifest(engine={"env": [{"name": "VLLM_USE_RUST_FRONTEND", "value": "1"}]}),
        "RiskySwitch",
        "spec.engine.env[0]",
        "series",
    ),
    "A10 fragmentation without telemetry": (
        manifest(engine={"telemetry": "Disabled"}),
        "FragmentationBlind",
        "spec.engine.telemetry",
        "no series tells fragmentation",
    ),
    "A10 acting on what the traffic does": (
        manifest(healing={"triggers": {"fragmentation": {"sources": ["BlockWaste"]}}}),
        "FragmentationBlind",
        "spec.healing.triggers.fragmentation.sources",
        "again at once",
    ),
    "A11 the wrong draft": (
        typed(speculative={"method": "MTP"}),
        "Speculation",
        "spec.engine.args.speculative.method",
        "No sampler needs a patch",
    ),
    "A11 a draft head that is not there": (
        typed(FLASH, speculative={"method": "DSpark", "numTokens": 7}),
        "Speculation",
        "spec.engine.args.speculative.method",
        "carries MTP",
    ),
    "A12 AWQ": (
        words("--quantization", "awq"),
        "Quantization",
        "spec.engine.extraArgs[0]",
        "KV cache's pages",
    ),
    "A12 FP16": (words("--dtype", "float16"), "Dtype", "spec.engine.extraArgs[0]", "bfloat16"),
    "A13 swap space": (words("--swap-space", "16G"), "SwapSpace", "spec.engine.extraArgs[0]", "kvOffload"),
    "A13 more than the pod may use": (
        manifest(
            engine={
                "kvOffload": {"hostMemoryPerEngine": "200Gi"},
                "resources": {"limits": {"memory": "128Gi"}},
            }
        ),
        "OffloadMemory",
        "spec.engine.resources.limits.memory",
        "spec.engine.shm.size",
    ),
    "A14 a smaller block": (typed(blockSize=32), "BlockSize", "spec.engine.args.blockSize", "256"),
    "A15 a pool longer than its engine": (
        manifest(pools=[{**LONG, "engine": {"args": {"maxModelLen": 65_536}}}]),
        "PoolLongerThanEngine",
        "spec.pools[0].context.maxTokens",
        "spec.pools[0].engine.args.maxModelLen",
    ),
    "A15 two pools for the same": (
        manifest(pools=[SHORT, {**SHORT, "name": "also"}]),
        "PoolsAlike",
        "spec.pools[1].context.maxTokens",
        "'short'",
    ),
    "A16 the profiles the wrong way round": (
        manifest(pools=[{**SHORT, "profile": "LongContext"}, {**LONG, "profile": "HighThroughput"}]),
        "ProfilesSwapped",
        "spec.pools[0].profile",
        "wrong way round",
    ),
    "A16 a block of 64 for chat": (
        manifest(pools=[{**SHORT, "engine": {"args": {"blockSize": 64}}}]),
        "BlockSize",
        "spec.pools[0].engine.args.blockSize",
        "256",
    ),
    "A18 a probe that kills the busy": (
        manifest(
            podTemplate={
                "spec": {
                    "containers": [
                        {"name": "engine", "livenessProbe": {"httpGet": {"path": "/health", "port": 8000}}}
                    ]
                }
            }
        ),
        "LivenessProbe",
        "spec.podTemplate.spec.containers[0].livenessProbe",
        "spares the sick",
    ),
    "A18 acting on the hit rate": (
        manifest(healing={"triggers": {"cacheHitRate": {"mode": "Act"}}}),
        "InvalidField",
        "spec.healing.triggers.cacheHitRate.mode",
        "empty cache",
    ),
    "A19 a context that the model has not": (
        typed(maxModelLen=2_097_152),
        "ContextBeyondModel",
        "spec.engine.args.maxModelLen",
        "1048576",
    ),
    "A20 metrics on a network volume": (
        manifest(
            podTemplate={
                "spec": {
                    "containers": [{"name": "engine", "volumeMounts": [{"name": "t", "mountPath": "/tmp"}]}],
                    "volumes": [{"name": "t", "persistentVolumeClaim": {"claimName": "rwx"}}],
                }
            }
        ),
        "MetricsDirectoryCovered",
        "spec.podTemplate.spec.containers[0].volumeMounts[0]",
        "500",
    ),
    "A21 weights that do not fit": (
        manifest(PRO, hardware=gpus("H100", 8)),
        "NotEnoughGpuMemory",
        "spec.hardware.gpusPerInstance",
        "960",
    ),
    "A22 a flag that the new version dropped": (
        words("--disable-log-requests"),
        "RemovedFlag",
        "spec.engine.extraArgs[0]",
        "enable-log-requests",
    ),
    "A24 block size 96": (typed(blockSize=96), "BlockSize", "spec.engine.args.blockSize", "256"),
}

RIGHT: dict[str, dict[str, Any]] = {
    "A1": manifest(FLASH, engine=vllm("v0.20.0")),
    "A2 graphs stay on": typed(enforceEager=False),
    "A2 a native pool": manifest(engine={"runtime": "Native", "image": "registry.corp/native:1"}),
    "A3": typed(blockSize=256),
    "A4 advice kept": manifest(
        R1, hardware=gpus("H200", 8), engine={"args": {"maxNumSeqs": 32, "maxModelLen": 16_384}}
    ),
    "A4 the fuse": words("--max-num-queued-reqs", "64"),
    "A5": typed(gpuMemoryUtilization=0.9),
    "A7": manifest(engine=vllm("v0.25.0")),
    "A8": manifest(engine={"startBudgetSeconds": 5400}),
    "A10": manifest(healing={"triggers": {"fragmentation": {"thresholdPercent": 25, "forSeconds": 600}}}),
    "A11": typed(speculative={"method": "DSpark", "numTokens": 7}),
    "A11 preview": typed(FLASH, speculative={"method": "MTP"}),
    "A12": words("--dtype", "bfloat16"),
    "A13": manifest(engine={"kvOffload": {"hostMemoryPerEngine": "32Gi"}}),
    "A14 another family": manifest(R1, hardware=gpus("H200", 8), engine={"args": {"blockSize": 32}}),
    "A15": manifest(pools=[SHORT, LONG]),
    "A16": manifest(
        pools=[SHORT, LONG, {"name": "mixed", "profile": "Balanced", "context": {"maxTokens": 65_536}}]
    ),
    "A18": manifest(healing={"triggers": {"cacheHitRate": {"mode": "Recommend", "minPercent": 85}}}),
    "A21": manifest(PRO, hardware=gpus("H200", 8)),
    "A22": words("--enable-log-requests"),
    "A23": manifest(
        pools=[SHORT, {**LONG, "engine": {"runtime": "Native", "image": "registry.corp/native:1"}}]
    ),
}


@pytest.mark.parametrize("claim", WRONG)
def test_the_wrong_form_is_answered_with_the_field_and_the_reason(claim: str) -> None:
    raw, rule, path, said = WRONG[claim]
    answer = lint(raw)
    assert (rule, path) in answer.errors + answer.warnings
    assert said in answer.text(rule)


@pytest.mark.parametrize("claim", RIGHT)
def test_the_right_form_passes_in_silence(claim: str) -> None:
    assert lint(RIGHT[claim]).findings == []
