"""Whatever is written: an answer, the same one each time, with paths that lead somewhere, and never a traceback."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kintsugi.core.preflight.check import check
from kintsugi.core.preflight.facts import NOTHING_KNOWN, Facts
from kintsugi.core.preflight.finding import sort_key
from kintsugi.core.preflight.paths import locate
from kintsugi.core.preflight.registry import RULES, names

SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["engine", "16Gi", "fp8", "--max-model-len", "spec", "$patch", "delete", "[0]", "a.b", ""]
    )
)
KEYS = st.text(max_size=6) | st.sampled_from(
    [
        "spec",
        "model",
        "id",
        "engine",
        "args",
        "extraArgs",
        "env",
        "name",
        "value",
        "hardware",
        "gpu",
        "pools",
        "podTemplate",
        "metadata",
        "labels",
        "annotations",
        "containers",
        "volumes",
        "volumeMounts",
        "mountPath",
        "resources",
        "limits",
        "memory",
        "lifecycle",
        "preStop",
        "sleep",
        "seconds",
        "affinity",
        "nodeSelector",
        "startupProbe",
        "livenessProbe",
        "periodSeconds",
        "emptyDir",
        "persistentVolumeClaim",
        "claimName",
    ]
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)

WORDS = st.lists(
    st.sampled_from(
        [
            "-tp",
            "-tp=8",
            "8",
            "--max_model_len=8k",
            "--max-model-len",
            "auto",
            "--block-size",
            "16",
            "--swap-space",
            "16G",
            "-q",
            "awq",
            "--dtype=half",
            "--attention_config.use_fp4_indexer_cache=True",
            "--moe-backend",
            "deep_gemm_mega_moe",
            "--speculative-config",
            '{"method":"mtp"}',
            "--speculative-config.method=dspark",
            "--hf-overrides",
            '{"rope_scaling":1}',
            "--kv-transfer-config",
            '{"kv_role":"kv_both"}',
            "--disable-log-stats",
            "--no-enable-chunked-prefill",
            "--max-num-batched-tokens",
            "8",
            "--shutdown-timeout",
            "9999",
            "--port",
            "1",
            "--",
            "-",
            "--kv-offloading-size",
            "300",
            "--gpu-memory-utilization",
            "7",
            "--api-key",
            "x",
            "--compilation-config",
            "[",
            "-O3",
            "-O.mode=3",
        ]
    )
    | st.text(max_size=6),
    max_size=6,
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.dictionaries(KEYS, ANYTHING, max_size=3),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": st.lists(
                    st.fixed_dictionaries(
                        {"name": st.sampled_from(["engine", "side"])},
                        optional={
                            key: ANYTHING
                            for key in (
                                "resources",
                                "lifecycle",
                                "env",
                                "volumeMounts",
                                "livenessProbe",
                                "startupProbe",
                                "image",
                                "args",
                                "ports",
                                "command",
                            )
                        },
                    )
                    | ANYTHING,
                    max_size=2,
                ),
                "volumes": st.lists(
                    st.fixed_dictionaries(
                        {"name": SCALARS}, optional={"emptyDir": ANYTHING, "persistentVolumeClaim": ANYTHING}
                    ),
                    max_size=2,
                )
                | ANYTHING,
                "affinity": ANYTHING,
                "nodeSelector": ANYTHING,
                "terminationGracePeriodSeconds": SCALARS,
                "enableServiceLinks": SCALARS,
                "hostIPC": SCALARS,
            },
        )
        | ANYTHING,
    },
)
SIZES = st.sampled_from([0, 1, 2, 3, 4, 8, 16, 1024])
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "tensorParallelSize": SIZES.filter(bool),
        "dataParallelSize": SIZES.filter(bool),
        "blockSize": st.sampled_from([16, 96, 256]),
        "maxModelLen": st.sampled_from([1, 8192, 200_000, 1_048_576, 16_777_216]),
        "maxNumSeqs": st.sampled_from([1, 64, 65_536]),
        "maxNumBatchedTokens": st.sampled_from([1, 8192]),
        "gpuMemoryUtilization": st.sampled_from([0.01, 0.5, 0.99, 1.0]),
        "kvCacheDtype": st.sampled_from(["auto", "fp8"]),
        "moeBackend": st.sampled_from(["marlin", "deep_gemm_mega_moe"]),
        "enableChunkedPrefill": st.booleans(),
        "speculative": st.sampled_from(
            [{"method": "MTP"}, {"method": "DSpark", "numTokens": 3}, {"method": "Disabled"}]
        ),
    },
)
ENGINES = st.fixed_dictionaries(
    {},
    optional={
        "args": ARGS,
        "extraArgs": WORDS,
        "command": st.lists(
            st.sampled_from(["/bin/sh", "bash", "-c", "-lc", "--", "", 'exec vllm serve "$@"', "vllm"]),
            max_size=4,
        ),
        "image": st.sampled_from(
            ["vllm/vllm-openai:v0.19.1", "x@sha256:0", "vllm/vllm-openai:v0.27.1", "a:nightly", "a/b"]
        ),
        "version": st.sampled_from(["0.25", "v0.33.0rc1", "1", "0.99.9"]),
        "runtime": st.sampled_from(["VLLM", "Native"]),
        "kvOffload": st.sampled_from([{"hostMemoryPerEngine": "32Gi"}, {"hostMemoryPerEngine": "1m"}]),
        "shm": st.sampled_from([{"size": "1Mi"}, {"size": "1Ei"}]),
        "env": st.sampled_from(
            [
                [{"name": "VLLM_PORT", "value": "x"}],
                [{"name": "HF_TOKEN", "value": "y"}],
                [{"name": "VLLM_ENGINE_READY_TIMEOUT_S", "value": "²"}],
                [{"name": "A", "valueFrom": {}}],
            ]
        ),
        "resources": st.sampled_from(
            [{"limits": {"memory": "1Gi"}}, {"limits": {"nvidia.com/gpu": "3"}}, {}]
        ),
        "startBudgetSeconds": st.sampled_from([30, 86_400]),
        "telemetry": st.sampled_from(["Auto", "Disabled"]),
    },
)
HARDWARE = st.fixed_dictionaries(
    {},
    optional={
        "gpu": st.sampled_from(["H200", "A100", "B200", "RTX PRO 6000", "MI300X", "H900", "gb10"]),
        "gpusPerInstance": SIZES,
        "nodesPerInstance": st.sampled_from([1, 2, 64]),
    },
)
POOLS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("abc")},
        optional={
            "replicas": st.sampled_from([0, 1, 3]),
            "profile": st.sampled_from(["HighThroughput", "LongContext", "Balanced"]),
            "context": st.sampled_from([{"maxTokens": 8192}, {"maxTokens": 1_048_576}]),
            "engine": ENGINES,
            "hardware": HARDWARE,
            "podTemplate": TEMPLATES,
        },
    ),
    max_size=3,
    unique_by=lambda pool: pool["name"],
)
MANIFESTS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("kintsugi.dev/v1alpha1"),
        "kind": st.just("DeepSeekV4Deployment"),
        "metadata": st.sampled_from([{"name": "chat"}, {"name": "vllm"}]),
        "spec": st.fixed_dictionaries(
            {
                "model": st.fixed_dictionaries(
                    {
                        "id": st.sampled_from(
                            [
                                "deepseek-ai/DeepSeek-V4-Flash-0731",
                                "deepseek-ai/DeepSeek-V4-Pro",
                                "me/own",
                                "deepseek-ai/DeepSeek-V4.1-Flash",
                                "nvidia/DeepSeek-V4-Pro-NVFP4",
                                "deepseek-ai/DeepSeek-R1",
                            ]
                        )
                    },
                    optional={
                        "source": st.sampled_from(
                            [{"pvc": {"claimName": "m"}}, {"hub": {"cache": {"claimName": "m"}}}, {}]
                        )
                    },
                )
            },
            optional={
                "engine": ENGINES,
                "hardware": HARDWARE,
                "pools": POOLS,
                "podTemplate": TEMPLATES,
                "validation": st.fixed_dictionaries(
                    {
                        "allow": st.lists(
                            st.sampled_from([*sorted(names()), "Nonsense"]), max_size=3, unique=True
                        )
                    }
                ),
                "healing": st.sampled_from(
                    [{}, {"drain": {"timeoutSeconds": 0}}, {"budget": {"minHealthyPercent": 0}}]
                ),
            },
        ),
    }
)
FACTS = st.sampled_from([Facts(), Facts({"m": ("ReadWriteOnce",)}, all_claims=True), Facts({"m": ()})])


def sound(raw: Any, facts: Facts = NOTHING_KNOWN) -> None:
    """What must hold of the findings of any object."""
    found = check(raw, facts)
    assert found == check(raw, facts)
    assert list(found) == sorted(found, key=sort_key)
    assert len(set(found)) == len(found)
    for finding in found:
        assert finding.rule in names()
        assert finding.message
        assert finding.cure
        assert locate(raw, finding.path)[1], finding


@SETTINGS
@given(ANYTHING)
def test_any_value_gets_an_answer(raw: Any) -> None:
    sound(raw)


@SETTINGS
@given(st.dictionaries(KEYS, ANYTHING, max_size=5), st.dictionaries(KEYS, ANYTHING, max_size=5))
def test_any_spec_gets_an_answer(raw: dict[str, Any], spec: dict[str, Any]) -> None:
    sound({**raw, "kind": "DeepSeekV4Deployment", "spec": spec})


@SETTINGS
@given(MANIFESTS, FACTS)
def test_any_manifest_that_may_be_meant_gets_an_answer(raw: dict[str, Any], facts: Facts) -> None:
    sound(raw, facts)


@SETTINGS
@given(MANIFESTS, st.data())
def test_a_manifest_with_one_value_replaced_gets_an_answer(raw: dict[str, Any], data: st.DataObject) -> None:
    raw = deepcopy(raw)
    places = list(_places(raw))
    owner, key = data.draw(st.sampled_from(places))
    owner[key] = data.draw(ANYTHING)
    sound(raw)


def _places(node: Any) -> Any:
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    for key, child in list(items):
        yield node, key
        yield from _places(child)


def test_the_names_of_the_rules_are_their_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
