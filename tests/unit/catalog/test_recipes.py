import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.core.catalog.entities import Gpu, Model, Recipe
from kintsugi.core.catalog.load import builtin
from kintsugi.core.catalog.version import EngineVersion

CATALOG = builtin()
NEWEST = CATALOG.releases[-1][0]
PAIRS = list(itertools.product(CATALOG.models, CATALOG.gpus))
WHOLE_NUMBERS = ("--tensor-parallel-size", "--data-parallel-size", "--max-model-len", "--max-num-seqs")


def recipe(
    model_id: str, gpu: str | None, version: EngineVersion | None = NEWEST, strategy: str | None = None
) -> Recipe:
    model, kind = CATALOG.model(model_id), CATALOG.gpu(gpu) if gpu else None
    assert model is not None
    assert (kind is None) == (gpu is None)
    found = CATALOG.recipe(model, kind, version=version, strategy=strategy)
    assert found is not None
    return found


def check(found: Recipe, model: Model, version: EngineVersion) -> None:
    known = CATALOG.known_flags(version)
    assert known is not None
    for flag, value in found.args:
        root = flag.partition(".")[0]
        assert root in known or "--" + root.removeprefix("--no-") in known, f"{flag} is no flag of {version}"
        assert "{" not in (value or "") or json.loads(value or "")
        assert flag not in WHOLE_NUMBERS or str(value).isdigit()
    assert found.sources
    sizes = dict(found.args)
    tensor, data = int(sizes.get("--tensor-parallel-size") or 1), int(sizes.get("--data-parallel-size") or 1)
    assert tensor * data == found.gpus
    assert tensor <= (model.tensor_parallel_limit or tensor)
    assert found.min_engine >= model.min_engine


@pytest.mark.parametrize("version", [version for version, _ in CATALOG.releases], ids=str)
def test_every_recipe_has_only_flags_that_its_engine_knows(version: EngineVersion) -> None:
    made = 0
    for (model, gpu), strategy in itertools.product(PAIRS, (None, "tep", "dep", "tp")):
        found = CATALOG.recipe(model, gpu, version=version, strategy=strategy)
        if found is not None and version >= found.min_engine:
            check(found, model, version)
            assert found.gpus * gpu.memory_bytes >= model.memory_floor_bytes
            made += 1
    assert made > 100


@pytest.mark.parametrize("model", CATALOG.models, ids=lambda model: model.id)
def test_every_model_has_a_default_that_runs_and_names_its_gpu(model: Model) -> None:
    found = CATALOG.recipe(model, None, version=NEWEST)

    assert found is not None
    kind = CATALOG.gpu(found.gpu)
    assert kind is not None
    assert CATALOG.runs(model, kind)
    check(found, model, NEWEST)


@pytest.mark.parametrize(
    ("model_id", "gpu", "gpus"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", "H200", 4),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", "H200", 4),
        ("deepseek-ai/DeepSeek-V4-Pro", "H200", 8),
        ("nvidia/DeepSeek-V4-Pro-NVFP4", "B200", 8),
        ("deepseek-ai/DeepSeek-V4.1-Flash", "H200", 8),
        ("deepseek-ai/DeepSeek-R1", "H200", 8),
    ],
)
def test_where_no_gpu_is_named_the_smallest_known_fit_is_taken(model_id: str, gpu: str, gpus: int) -> None:
    found = recipe(model_id, None)

    assert (found.gpu, found.gpus) == (gpu, gpus)


@pytest.mark.parametrize(
    ("gpu", "gpus"), [("H100", 16), ("H200", 8), ("B200", 8), ("GB200", 8), ("GB300", 4), ("H20-141GB", 8)]
)
def test_pro_takes_as_many_gpus_as_hold_it(gpu: str, gpus: int) -> None:
    assert recipe("deepseek-ai/DeepSeek-V4-Pro", gpu).gpus == gpus


def test_sixteen_gpus_become_two_groups_of_eight_since_the_matrices_do_not_divide_further() -> None:
    args = dict(recipe("deepseek-ai/DeepSeek-V4-Pro", "H100").args)

    assert (args["--tensor-parallel-size"], args["--data-parallel-size"]) == ("8", "2")


def test_pro_on_hopper_keeps_to_the_context_that_is_known_to_start() -> None:
    found = recipe("deepseek-ai/DeepSeek-V4-Pro", "H200", strategy="dep")
    args = dict(found.args)

    assert found.safe_context == 200_000
    assert args["--max-model-len"] == "200000"
    assert args["--gpu-memory-utilization"] == "0.95"
    assert args["--max-num-seqs"] == "16"
    assert json.loads(args["--compilation-config"] or "") == {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
    assert recipe("deepseek-ai/DeepSeek-V4-Pro", "B200").safe_context is None


@pytest.mark.parametrize(
    ("version", "flag", "value"),
    [
        (EngineVersion(0, 25), "--attention-config.use_fp4_indexer_cache", "True"),
        (EngineVersion(0, 27, 1), "--attention-config.use_fp4_indexer_cache", "True"),
        (EngineVersion(0, 28), "--attention-config.indexer_kv_dtype", "mxfp4"),
        (EngineVersion(0, 33), "--attention-config.indexer_kv_dtype", "mxfp4"),
        (None, "--attention-config.indexer_kv_dtype", "mxfp4"),
    ],
)
def test_blackwell_gets_the_four_bit_indexer_by_the_key_that_its_engine_reads(
    version: EngineVersion | None, flag: str, value: str
) -> None:
    args = dict(recipe("deepseek-ai/DeepSeek-V4-Flash-0731", "B200", version).args)

    assert [(name, args[name]) for name in args if name.startswith("--attention")] == [(flag, value)]


def test_the_fused_expert_kernels_are_for_the_native_checkpoint_on_datacenter_blackwell_with_expert_parallel() -> (
    None
):
    def backend(model_id: str, gpu: str, strategy: str | None = None) -> str | None:
        return dict(recipe(model_id, gpu, strategy=strategy).args).get("--moe-backend")

    assert backend("deepseek-ai/DeepSeek-V4-Flash-0731", "GB200") == "deep_gemm_mega_moe"
    assert backend("deepseek-ai/DeepSeek-V4-Flash-0731", "B200", "tp") is None
    assert backend("deepseek-ai/DeepSeek-V4-Flash-0731", "H200") is None
    assert backend("deepseek-ai/DeepSeek-V4-Flash-0731", "RTX PRO 6000") is None
    assert backend("nvidia/DeepSeek-V4-Flash-NVFP4", "B200") is None
    assert backend("nvidia/DeepSeek-V4-Pro-NVFP4", "B200") == "flashinfer_cutedsl"
    assert backend("deepseek-ai/DeepSeek-V4-Flash-Base", "B200") is None


@pytest.mark.parametrize(
    ("model_id", "gpu", "expected"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", "H200", {"method": "mtp", "num_speculative_tokens": 1}),
        ("deepseek-ai/DeepSeek-V4-Flash", "B200", {"method": "mtp", "num_speculative_tokens": 2}),
        ("deepseek-ai/DeepSeek-V4-Pro", "H200", {"method": "mtp", "num_speculative_tokens": 2}),
        (
            "deepseek-ai/DeepSeek-V4-Flash-0731",
            "H200",
            {"method": "dspark", "num_speculative_tokens": 7, "draft_sample_method": "probabilistic"},
        ),
    ],
)
def test_a_recipe_says_how_its_checkpoint_drafts_on_its_hardware(
    model_id: str, gpu: str, expected: dict[str, object]
) -> None:
    assert json.loads(recipe(model_id, gpu).speculative_config or "") == expected


def test_v4_1_verifies_adaptively_but_not_on_amd() -> None:
    def adaptive(gpu: str) -> object:
        text = recipe("deepseek-ai/DeepSeek-V4.1-Flash", gpu).speculative_config
        return json.loads(text or "")["enable_adaptive_verification"]

    assert adaptive("GB200") is True
    assert adaptive("MI350X") is False


def test_amd_gets_its_own_arguments_environment_and_image() -> None:
    found = recipe("deepseek-ai/DeepSeek-V4-Pro", "MI355X")
    gpu = CATALOG.gpu("MI355X")

    assert dict(found.args)["--distributed-executor-backend"] == "mp"
    assert dict(found.env)["VLLM_ROCM_USE_AITER"] == "1"
    assert "rocm" in CATALOG.default_image(None, gpu)
    assert "rocm" not in CATALOG.default_image()


@pytest.mark.parametrize(
    ("model_id", "gpu"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", "A100-80GB"),
        ("deepseek-ai/DeepSeek-V4-Pro", "RTX PRO 6000"),
        ("deepseek-ai/DeepSeek-V4-Flash", "MI300X"),
        ("deepseek-ai/DeepSeek-V4-Pro", "MI325X"),
        ("nvidia/DeepSeek-V4-Pro-NVFP4", "H200"),
        ("deepseek-ai/DeepSeek-V3.2", "A100-80GB"),
    ],
)
def test_there_is_no_recipe_where_the_model_does_not_run(model_id: str, gpu: str) -> None:
    model, kind = CATALOG.model(model_id), CATALOG.gpu(gpu)
    assert model is not None
    assert kind is not None

    assert not CATALOG.runs(model, kind)
    assert CATALOG.recipe(model, kind) is None


def test_the_ready_timeout_is_the_time_that_a_start_may_take() -> None:
    assert dict(recipe("deepseek-ai/DeepSeek-V4-Pro", "H200").env)["VLLM_ENGINE_READY_TIMEOUT_S"] == "5400"


def test_a_strategy_has_the_name_that_vllms_recipes_give_it_too() -> None:
    short = recipe("deepseek-ai/DeepSeek-V4-Pro", "B200", strategy="dep")

    assert recipe("deepseek-ai/DeepSeek-V4-Pro", "B200", strategy="single_node_dep") == short
    assert dict(short.args)["--data-parallel-size"] == "8"


@given(
    pair=st.sampled_from(PAIRS),
    strategy=st.none() | st.sampled_from(["tep", "dep", "tp"]) | st.text(max_size=10),
    gpus=st.none() | st.integers(1, 4096),
    version=st.none() | st.builds(EngineVersion, st.integers(0, 2), st.integers(0, 40), st.integers(0, 3)),
)
def test_any_question_has_the_same_answer_twice(
    pair: tuple[Model, Gpu], strategy: str | None, gpus: int | None, version: EngineVersion | None
) -> None:
    model, gpu = pair
    first = CATALOG.recipe(model, gpu, version=version, strategy=strategy, gpus=gpus)

    assert first == CATALOG.recipe(model, gpu, version=version, strategy=strategy, gpus=gpus)
    assert first is None or gpus is None or first.gpus == gpus
