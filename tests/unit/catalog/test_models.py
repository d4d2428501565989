import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.core.catalog.entities import Model
from kintsugi.core.catalog.load import builtin
from kintsugi.core.catalog.version import EngineVersion

MODELS = builtin().models
V4 = [model for model in MODELS if model.family == "deepseek-v4"]


def found(model_id: str) -> Model:
    model = builtin().model(model_id)
    assert model is not None, model_id
    return model


def test_every_checkpoint_of_the_v4_family_is_known() -> None:
    names = {model.id.rpartition("/")[2] for model in MODELS if model.family.startswith("deepseek-v4")}

    assert names == {
        *(
            "DeepSeek-V4-Flash",
            "DeepSeek-V4-Flash-0731",
            "DeepSeek-V4-Flash-DSpark",
            "DeepSeek-V4-Flash-NVFP4",
        ),
        *("DeepSeek-V4-Flash-Base", "DeepSeek-V4-Pro", "DeepSeek-V4-Pro-0813", "DeepSeek-V4-Pro-DSpark"),
        *("DeepSeek-V4-Pro-NVFP4", "DeepSeek-V4.1-Flash"),
    }


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
def test_a_checkpoint_agrees_with_itself(model: Model) -> None:
    assert model.sources
    assert all(model.sources)
    assert 0 < model.active_parameters < model.parameters
    assert model.loaded_bytes <= 1.02 * model.disk_bytes
    assert model.memory_floor_bytes == 0 or model.memory_floor_bytes >= model.loaded_bytes
    bits = 8 * model.loaded_bytes / (model.parameters * 1e9)
    assert (3.9 < bits < 6.2) if model.quantization in ("fp8", "nvfp4", "mxfp4") else (7.9 < bits < 8.4)
    assert (model.draft is None) == (model.draft_tokens is None)
    assert model.kv is not None
    assert not model.block_sizes or model.kv.block_tokens in model.block_sizes
    assert model.kv.fixed_blocks[0] <= model.kv.fixed_blocks[1]
    assert model.start_budget_seconds >= model.disk_bytes / 250e6, "slower than 250 MB/s is no fast volume"
    assert builtin().model(model.id) is model


def test_the_ids_differ_in_their_last_part_so_that_mirrors_are_not_confused() -> None:
    lasts = [model.id.rpartition("/")[2].lower() for model in MODELS]

    assert len(lasts) == len(set(lasts))


@pytest.mark.parametrize(
    ("model_id", "draft", "tokens", "since"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", "MTP", 2, EngineVersion(0, 20)),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", "MTP", 2, EngineVersion(0, 20)),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", "DSpark", 7, EngineVersion(0, 25)),
        ("deepseek-ai/DeepSeek-V4-Flash-DSpark", "DSpark", 7, EngineVersion(0, 25)),
        ("deepseek-ai/DeepSeek-V4-Pro", "MTP", 2, EngineVersion(0, 20)),
        ("deepseek-ai/DeepSeek-V4-Pro-0813", "DSpark", 7, EngineVersion(0, 25)),
        ("deepseek-ai/DeepSeek-V4.1-Flash", "DSpark", 5, EngineVersion(0, 30)),
    ],
)
def test_a_checkpoint_has_its_own_way_to_draft_and_its_first_engine(
    model_id: str, draft: str, tokens: int, since: EngineVersion
) -> None:
    model = found(model_id)

    assert (model.draft, model.draft_tokens, model.min_engine) == (draft, tokens, since)


@pytest.mark.parametrize(
    ("model_id", "cache", "bytes_per_token"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", "fp8", 3915),
        ("deepseek-ai/DeepSeek-V4-Flash", "mxfp4", 3584),
        ("deepseek-ai/DeepSeek-V4-Pro", "fp8", 5609),
        ("deepseek-ai/DeepSeek-V4-Pro", "mxfp4", 5137),
        ("deepseek-ai/DeepSeek-V4.1-Flash", "fp8", 890),
        ("deepseek-ai/DeepSeek-V3", "bfloat16", 61 * 576 * 2),
        ("deepseek-ai/DeepSeek-V3", "fp8", 61 * 576),
        ("deepseek-ai/DeepSeek-V3.2", "bfloat16", 61 * (576 * 2 + 132)),
        ("deepseek-ai/DeepSeek-V3.2", "fp8", 61 * (656 + 132)),
    ],
)
def test_a_token_takes_the_bytes_that_the_kernels_give_it(
    model_id: str, cache: str, bytes_per_token: int
) -> None:
    layout = found(model_id).kv
    assert layout is not None

    assert dict(layout.block_bytes)[cache] / layout.block_tokens == pytest.approx(bytes_per_token, rel=0.01)


@pytest.mark.parametrize("model", V4, ids=lambda model: model.id)
def test_a_v4_request_holds_blocks_whatever_its_length(model: Model) -> None:
    layout = model.kv
    assert layout is not None

    assert layout.fixed_blocks == (22, 26)
    assert layout.prefill_blocks_per_8192_tokens == pytest.approx(262 + 2051 + 1041, rel=0.01)
    assert layout.replicated_over_tensor_parallel
    fixed = dict(layout.block_bytes)["fp8"] * layout.fixed_blocks[1]
    assert fixed == pytest.approx(37e6 if model.size == "Pro" else 26e6, rel=0.02)
    assert model.block_sizes == (256,)
    assert model.max_context == 1_048_576


def test_v4_needs_hopper_and_pro_needs_a_tensor_parallel_size_of_at_most_eight() -> None:
    flash, pro = found("deepseek-ai/DeepSeek-V4-Flash"), found("deepseek-ai/DeepSeek-V4-Pro")

    assert 8 not in flash.compute_capabilities
    assert 8 not in pro.compute_capabilities
    assert 12 not in pro.compute_capabilities
    assert pro.tensor_parallel_limit == 8
    assert pro.start_budget_seconds >= 90 * 60
    assert pro.memory_floor_bytes == 960e9
    assert 8 in found("deepseek-ai/DeepSeek-V3").compute_capabilities
    assert 8 in found("deepseek-ai/DeepSeek-R1").compute_capabilities


@pytest.mark.parametrize(
    "spelling",
    [
        "deepseek-ai/deepseek-v4-flash-0731",
        " deepseek-ai/DeepSeek-V4-Flash-0731 ",
        "DeepSeek-V4-Flash-0731",
        "mirror.corp/DeepSeek-V4-Flash-0731",
        "/models/DeepSeek-V4-Flash-0731",
        "/models/DeepSeek-V4-Flash-0731/",
        "s3://bucket/weights/DeepSeek-V4-Flash-0731/",
        "/cache/hub/models--deepseek-ai--DeepSeek-V4-Flash-0731/snapshots/0a1b2c3d",
        "C:\\models\\DeepSeek-V4-Flash-0731",
    ],
)
def test_a_checkpoint_is_known_by_mirrors_paths_and_folders_of_the_hubs_cache(spelling: str) -> None:
    assert found(spelling).id == "deepseek-ai/DeepSeek-V4-Flash-0731"


@pytest.mark.parametrize(
    "other",
    [
        "",
        "/",
        "deepseek-ai/",
        "DeepSeek-V4",
        "org/DeepSeek-V4-Flash-AWQ",
        "Qwen/Qwen3-8B",
        "models--",
        "-0731",
    ],
)
def test_a_name_that_only_resembles_one_is_unknown(other: str) -> None:
    assert builtin().model(other) is None


@given(st.text(max_size=200) | st.text(alphabet=string.ascii_letters + "/-._\\", max_size=80))
def test_any_text_is_looked_up_without_an_error(text: str) -> None:
    model = builtin().model(text)

    assert model is None or model in MODELS
