"""Manifests as people write them, and as nobody should: for Hypothesis."""

import copy
from collections.abc import Iterator
from typing import Any, Final

import yaml
from hypothesis import strategies as st

from kintsugi.api.objects import DeepSeekV4Deployment
from kintsugi.api.structural import structural
from kintsugi.core.catalog.load import builtin
from tests.unit.api.generated import objects
from tests.unit.api.manifests import EXAMPLES, invalid_manifests

Step = str | int
Path = tuple[Step, ...]

_SPEC: Final = structural(DeepSeekV4Deployment)["properties"]["spec"]["properties"]
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_ODD = st.sampled_from(
    [
        "",
        " ",
        "-",
        "--",
        "=",
        "--=",
        "null",
        "~",
        "1e999",
        "NaN",
        "0x10",
        "٣",
        "é" * 300,
        "a\x00b",
        "\n",
        "{",
        '{"a":',
        "[]",
        "💥",
    ]
)
_NUMBERS = st.sampled_from(
    [0, -1, 1, 2, 3, 7, 8, 256, 257, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf")]
)
scalars = st.none() | st.booleans() | _NUMBERS | _ODD | _TEXT
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT | _ODD, inner, max_size=3),
    max_leaves=6,
)
"""Anything that JSON or YAML can say."""

MODELS: Final = (
    *(model.id for model in builtin().models),
    "org/DeepSeek-V4-Flash",
    "/models/v4",
    "gpt2",
    "deepseek-ai/DeepSeek-V9",
)
GPUS: Final = (*(gpu.name for gpu in builtin().gpus), "NVIDIA-H200", "h200", "TPU", "A100")
IMAGES: Final = (
    "vllm/vllm-openai:v0.33.0",
    "vllm/vllm-openai:v0.24.0",
    "vllm/vllm-openai:v0.3.2",
    "vllm/vllm-openai:nightly",
    "reg.example:5000/e@sha256:" + "0" * 64,
    "x",
)
_FLAGS: Final = tuple(sorted({change.flag for change in builtin().flags}))
words = st.one_of(
    st.sampled_from(
        (
            *_FLAGS,
            "-tp",
            "-q",
            "-O3",
            "--tensor-parallel-size=8",
            "--tensor_parallel_size",
            "--no-enable-prefix-caching",
            "--max-model-len",
            "1M",
            "200k",
            "8",
            "--block-size=16",
            "--swap-space",
            "16G",
            "--disable-log-stats",
            "--attention_config.use_fp4_indexer_cache=True",
            "--kv-transfer-config",
            '{"kv_connector":"OffloadingConnector"}',
            "--speculative-config",
            '{"method":"mtp","num_speculative_tokens":2}',
            "--compilation-config",
            '{"mode":0}',
            "--quantization",
            "awq",
            "--dtype",
            "float16",
            "--port",
            "--model",
            "--max-num-seqs",
            "--max-num-batched-tokens",
        )
    ),
    _ODD,
    _TEXT,
    st.builds("{}={}".format, st.sampled_from(_FLAGS), _TEXT),
)
_ARGS = st.fixed_dictionaries(
    {},
    optional={
        "tensorParallelSize": st.sampled_from([1, 2, 3, 4, 8, 16]),
        "pipelineParallelSize": st.sampled_from([1, 2]),
        "dataParallelSize": st.sampled_from([1, 2, 4, 8]),
        "enableExpertParallel": st.booleans(),
        "blockSize": st.sampled_from([16, 64, 256]),
        "maxModelLen": st.sampled_from([1, 8192, 65_536, 1_048_576, 16_777_216]),
        "maxNumSeqs": st.sampled_from([1, 16, 64, 4096]),
        "maxNumBatchedTokens": st.sampled_from([8, 2048, 8192, 131_072]),
        "gpuMemoryUtilization": st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0, 1]),
        "kvCacheDtype": st.sampled_from(["fp8", "auto", "bf16", "fp8_ds_mla"]),
        "enforceEager": st.booleans(),
        "enablePrefixCaching": st.booleans(),
        "enableChunkedPrefill": st.booleans(),
        "tokenizerMode": st.sampled_from(["deepseek_v4", "auto", ""]),
        "speculative": st.fixed_dictionaries(
            {"method": st.sampled_from(["DSpark", "MTP", "NGram", "Disabled"])},
            optional={"numTokens": st.integers(1, 32)},
        ),
    },
)
_TEMPLATE = st.one_of(
    st.dictionaries(st.sampled_from(["metadata", "spec", "kind"]), junk, max_size=2),
    st.fixed_dictionaries(
        {
            "spec": st.fixed_dictionaries(
                {},
                optional={
                    "containers": st.lists(
                        st.fixed_dictionaries(
                            {"name": st.sampled_from(["engine", "sidecar", ""])},
                            optional={"env": junk, "args": junk, "resources": junk},
                        ),
                        max_size=2,
                    ),
                    "volumes": junk,
                    "tolerations": junk,
                    "nodeSelector": st.dictionaries(_TEXT, _TEXT, max_size=2),
                    "restartPolicy": st.sampled_from(["Always", "Never"]),
                    "terminationGracePeriodSeconds": _NUMBERS,
                },
            )
        }
    ),
)


def _name(item: Any) -> str:
    return str(item["name"])


_ENGINE = st.fixed_dictionaries(
    {},
    optional={
        "runtime": st.sampled_from(["VLLM", "Native"]),
        "image": st.sampled_from(IMAGES),
        "version": st.sampled_from(["0.33.0", "v0.24.0", "0.19", "1.0.0rc1"]),
        "args": _ARGS,
        "extraArgs": st.lists(words, max_size=6),
        "env": st.lists(
            st.fixed_dictionaries({"name": _TEXT.filter(bool), "value": _TEXT}),
            max_size=2,
            unique_by=_name,
        ),
        "kvOffload": st.fixed_dictionaries(
            {"hostMemoryPerEngine": st.sampled_from(["32Gi", "1400G", "0", 16, "1m"])}
        ),
        "shm": st.fixed_dictionaries({"size": st.sampled_from(["16Gi", "1Mi", 5])}),
        "resources": st.fixed_dictionaries(
            {},
            optional={
                k: st.dictionaries(
                    st.sampled_from(["memory", "cpu", "rdma/ib"]),
                    st.sampled_from(["64Gi", "0", 4]),
                    max_size=2,
                )
                for k in ("requests", "limits")
            },
        ),
    },
)
_HARDWARE = st.fixed_dictionaries(
    {},
    optional={
        "gpu": st.sampled_from(GPUS),
        "gpusPerInstance": st.sampled_from([0, 1, 2, 4, 8, 16, 1024]),
        "nodesPerInstance": st.sampled_from([1, 2, 4]),
    },
)
_POOL = {
    "replicas": st.sampled_from([0, 1, 2, 1000]),
    "profile": st.sampled_from(["HighThroughput", "LongContext", "Balanced"]),
    "context": st.fixed_dictionaries({"maxTokens": st.sampled_from([1, 8192, 1_048_576])}),
    "engine": _ENGINE,
    "hardware": _HARDWARE,
    "podTemplate": _TEMPLATE,
}


_OTHERS: Final = {
    name: objects(schema)
    for name, schema in sorted(_SPEC.items())
    if name not in ("model", "engine", "hardware", "pools", "podTemplate")
}
_EXAMPLES: Final = tuple(
    raw
    for path in sorted(EXAMPLES.rglob("*.yaml"))
    for raw in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    if isinstance(raw, dict) and raw.get("kind") == "DeepSeekV4Deployment"
)
_KNOWN: Final = (*_EXAMPLES, *(bad.manifest for bad in invalid_manifests()))


@st.composite
def written(draw: st.DrawFn) -> dict[str, Any]:
    """A manifest of the right shape: sense is another matter."""
    names = draw(st.lists(st.sampled_from(["short", "long", "a", "p-0"]), max_size=3, unique=True))
    pools: list[dict[str, Any]] = [
        {"name": name, **draw(st.fixed_dictionaries({}, optional=_POOL))} for name in names
    ]
    some = draw(st.lists(st.sampled_from(sorted(_OTHERS)), max_size=2, unique=True))
    model: dict[str, Any] = {"id": draw(st.sampled_from(MODELS))}
    model |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "source": st.sampled_from(
                    [{"pvc": {"claimName": "m"}}, {"hub": {}}, {"image": {"reference": "r"}}, {}]
                ),
                "servedNames": st.lists(_TEXT.filter(bool), max_size=2, unique=True),
            },
        )
    )
    spec: dict[str, Any] = {"model": model}
    spec |= draw(
        st.fixed_dictionaries(
            {}, optional={"engine": _ENGINE, "hardware": _HARDWARE, "podTemplate": _TEMPLATE}
        )
    )
    if pools:
        spec["pools"] = pools
    spec |= {name: draw(_OTHERS[name]) for name in some}
    return {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"name": draw(st.sampled_from(["chat", "a" * 44]))},
        "spec": spec,
    }


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    """A written manifest, an example or a known bad one, with up to three things broken in it."""
    raw: dict[str, Any] = draw(
        st.one_of(written(), written(), st.sampled_from(_KNOWN), st.sampled_from(_EXAMPLES))
    )
    raw = copy.deepcopy(raw)
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3]))):
        _break(draw, raw)
    return raw


def paths(node: Any, here: Path = ()) -> Iterator[Path]:
    """Every place in a document but its root."""
    steps: list[tuple[Step, Any]] = []
    if isinstance(node, dict):
        steps = list(node.items())
    elif isinstance(node, list):
        steps = list(enumerate(node))
    for step, child in steps:
        yield (*here, step)
        yield from paths(child, (*here, step))


def _break(draw: st.DrawFn, raw: dict[str, Any]) -> None:
    places = sorted(paths(raw), key=repr)
    if not places:
        return
    place = draw(st.sampled_from(places))
    owner: Any = raw
    for step in place[:-1]:
        owner = owner[step]
    last = place[-1]
    match draw(st.sampled_from(["replace", "remove", "add", "misspell", "double", "nest"])):
        case "replace":
            owner[last] = draw(junk)
        case "remove":
            del owner[last]
        case "add" if isinstance(owner, dict):
            owner[draw(_TEXT | _ODD)] = draw(junk)
        case "misspell" if isinstance(owner, dict):
            owner[f"{last}s"] = owner.pop(last)
        case "double" if isinstance(owner, list):
            owner.append(copy.deepcopy(owner[int(last)]))
        case _:
            owner[last] = [owner[last]]
