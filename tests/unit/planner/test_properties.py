"""What holds for every spec that could be parsed."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kintsugi.api.objects import SpecInvalid, parse_deployment
from kintsugi.core.catalog.load import builtin
from kintsugi.core.planner.document import pool_document
from kintsugi.core.planner.options import Options
from kintsugi.core.planner.plan import plan
from tests.unit.planner.subjects import FLASH, PRO, planned

CONTRACT = ("fits", "weightsBytes", "kvTokens", "concurrency", "maxContext", "costPerHour", "findings")
MODELS = st.sampled_from([*(model.id for model in builtin().models), "/models/DeepSeek-V4-Flash", "org/none"])
GPUS = st.sampled_from([*(gpu.name for gpu in builtin().gpus), "none-such"])
SIZES = st.sampled_from([1, 2, 3, 4, 8, 16, 64, 1024])


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def told(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


ARGS = told(
    {
        "tensorParallelSize": SIZES,
        "pipelineParallelSize": SIZES,
        "dataParallelSize": SIZES,
        "enableExpertParallel": st.booleans(),
        "blockSize": st.sampled_from([16, 64, 256]),
        "maxModelLen": st.integers(1, 16_777_216),
        "maxNumSeqs": st.integers(1, 65_536),
        "maxNumBatchedTokens": st.integers(1, 16_777_216),
        "gpuMemoryUtilization": st.floats(0.001, 1),
        "kvCacheDtype": st.sampled_from(["fp8", "auto", "bfloat16", "x"]),
        "enforceEager": st.booleans(),
    }
)
EXTRA = st.lists(
    st.sampled_from(
        [
            *(
                "--kv-cache-memory-bytes",
                "--num-gpu-blocks-override",
                "-tp",
                "-dp",
                "--max-model-len",
                "auto",
                "0",
            ),
            *(
                "-1",
                "8k",
                "999999999999999999999",
                "--kv-offloading-size",
                "nan",
                "--no-async-scheduling",
                "{}",
            ),
            *(
                "--attention_config.use_fp4_indexer_cache=True",
                "--kv-transfer-config",
                "--block-size",
                "=",
                "",
            ),
        ]
    ),
    max_size=8,
)
ENGINE = told(
    {
        "args": ARGS,
        "extraArgs": EXTRA,
        "version": st.sampled_from(["0.20.0", "0.33.0", "9.9"]),
        "kvOffload": st.just({"hostMemoryPerEngine": "200Gi"}),
        "runtime": st.just("VLLM"),
    }
)
HARDWARE = told(
    {"gpu": GPUS, "gpusPerInstance": st.integers(0, 1024), "nodesPerInstance": st.integers(1, 64)}
)
POOLS = st.lists(
    told(
        {
            "replicas": st.integers(0, 1000),
            "profile": st.sampled_from(["HighThroughput", "LongContext", "Balanced"]),
            "context": st.builds(lambda n: {"maxTokens": n}, st.integers(1, 16_777_216)),
            "engine": ENGINE,
            "hardware": HARDWARE,
        }
    ),
    max_size=3,
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    pools = [{"name": f"p{index}", **pool} for index, pool in enumerate(draw(POOLS))]
    spec = {"model": {"id": draw(MODELS)}, "engine": draw(ENGINE), "hardware": draw(HARDWARE), "pools": pools}
    return {"metadata": {"name": "x"}, "spec": spec}


@settings(max_examples=150, deadline=None)
@given(raw=specs(), demand=st.dictionaries(st.integers(1, 16_777_216), st.integers(1, 10**9), max_size=3))
def test_every_parsed_spec_has_a_plan_that_is_always_the_same(
    raw: dict[str, Any], demand: dict[int, int]
) -> None:
    try:
        spec = parse_deployment(
            {"apiVersion": "kintsugi.dev/v1alpha1", "kind": "DeepSeekV4Deployment", **raw}
        ).spec
    except SpecInvalid:
        return
    options = Options(demand=demand)
    first = {made.name: pool_document(made) for made in plan(spec, options=options)}
    assert first == {made.name: pool_document(made) for made in plan(spec, options=options)}
    json.dumps(first, allow_nan=False)
    for document in first.values():
        assert set(CONTRACT) <= set(document)
        counts = list(document["concurrency"].values())
        assert counts == sorted(counts, reverse=True)
        assert all(isinstance(count, int) and count >= 0 for count in counts)
        errors = [f for f in document["findings"] if f["severity"] == "Error"]
        assert (document["fits"] is False) == bool(errors)
        for figure in document["figures"].values():
            assert figure["low"] <= figure["value"] <= figure["high"]
            assert figure["basis"] in ("measured", "assumed")
            assert figure["source"]


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from([FLASH, PRO]),
    gpu=st.sampled_from(["H100", "H200", "B200", "GB200", "H20", "MI355X"]),
    ranks=st.integers(1, 31),
    utilization=st.floats(0.3, 1.0),
)
def test_more_gpus_under_data_parallelism_never_hold_less(
    model: str, gpu: str, ranks: int, utilization: float
) -> None:
    def tokens(many: int) -> float:
        made = planned(model, gpu, many, dataParallelSize=many, gpuMemoryUtilization=utilization)
        assert made.kv is not None
        return made.kv.tokens.value

    assert tokens(ranks) <= tokens(ranks + 1)


@settings(max_examples=60, deadline=None)
@given(
    gpus=st.sampled_from([1, 2, 4, 8]),
    lengths=st.lists(st.integers(1, 1_048_576), min_size=2, max_size=6, unique=True),
)
def test_longer_requests_never_run_in_greater_number(gpus: int, lengths: list[int]) -> None:
    made = planned(FLASH, "B200", gpus, options=Options(lengths=tuple(lengths)))
    assert made.kv is not None
    for bound in ("low", "value", "high"):
        counts = [getattr(figure, bound) for _, figure in made.kv.concurrency]
        assert counts == sorted(counts, reverse=True)
