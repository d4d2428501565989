import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kintsugi.core.catalog.load import CatalogInvalid, builtin, extended
from kintsugi.core.catalog.version import EngineVersion

PAGE = Path(__file__).parents[3] / "docs" / "catalog.md"


def test_the_pages_example_is_a_catalog_file_that_works() -> None:
    (example,) = re.findall(r"```yaml\n(models:.*?)```", PAGE.read_text("utf-8"), re.DOTALL)

    catalog = extended(builtin(), yaml.safe_load(example))

    tuned, gpu = catalog.model("acme/DeepSeek-V4-Flash-Tuned"), catalog.gpu("NVIDIA-H200-Custom")
    assert tuned is not None
    assert gpu is not None
    assert tuned.draft is None
    assert tuned.kv == builtin().models[0].kv
    assert tuned.loaded_bytes == 171_000_000_000
    assert gpu.memory_bytes == 141 * 2**30
    recipe = catalog.recipe(tuned, gpu, version=EngineVersion(0, 33))
    assert recipe is not None
    assert recipe.gpus == 2
    assert dict(recipe.args)["--max-num-seqs"] == "24"
    assert dict(recipe.env)["NCCL_DEBUG"] == "WARN"
    changed = catalog.model("deepseek-ai/DeepSeek-V4-Pro")
    assert changed is not None
    assert changed.start_budget_seconds == 9000
    assert changed.disk_bytes == 865_000_000_000


def test_the_page_tells_every_field() -> None:
    text = PAGE.read_text("utf-8")
    known: set[str] = set()
    for name in ("models", "gpus", "recipes", "additions", "flags", "metrics", "defaults"):
        with pytest.raises(CatalogInvalid) as refused:
            extended(builtin(), {name: [{**_least(name), "noSuchField": 1}]})
        known |= set(refused.value.cure.removeprefix("known fields are ").split(", "))

    assert {field for field in known if f"`{field}`" not in text} == set()


def _least(name: str) -> dict[str, Any]:
    """The fewest fields that an entry of that list needs."""
    least: dict[str, dict[str, Any]] = {
        "models": {"id": "a/b", "like": "deepseek-ai/DeepSeek-V4-Flash"},
        "gpus": {"name": "X1", "memoryBytes": "80GiB", "generation": "Hopper"},
        "recipes": {
            "family": "f",
            "size": "s",
            "generations": ["Hopper"],
            "strategy": "tp",
            "gpus": 1,
            "minEngine": "0.20.0",
        },
        "additions": {},
        "flags": {"flag": "--x"},
        "metrics": {"metric": "vllm:x", "removed": "0.20.0"},
        "defaults": {
            "since": "0.20.0",
            "maxNumSeqs": 1,
            "maxNumBatchedTokens": 1,
            "gpuMemoryUtilization": 0.9,
        },
    }
    return least[name]


@pytest.mark.parametrize("name", ["models", "gpus", "recipes", "additions", "flags", "metrics", "defaults"])
def test_the_least_entry_of_each_list_is_taken(name: str) -> None:
    before, after = builtin(), extended(builtin(), {name: [_least(name)]})

    assert len(getattr(after, name)) == len(getattr(before, name)) + 1


def test_nothing_in_the_file_changes_nothing() -> None:
    assert extended(builtin(), {}) == builtin()
    assert extended(builtin(), {"models": None, "gpus": []}) == builtin()


def test_a_known_gpu_is_changed_field_by_field_whatever_the_case_of_its_name() -> None:
    catalog = extended(builtin(), {"gpus": [{"name": "h200", "perNode": 4}]})

    before, after = builtin().gpu("H200"), catalog.gpu("NVIDIA-H200")
    assert before is not None
    assert after is not None
    assert (after.per_node, after.memory_bytes, after.aliases) == (4, before.memory_bytes, before.aliases)
    assert len(catalog.gpus) == len(builtin().gpus)


def test_null_takes_back_what_the_entry_starts_from() -> None:
    entry = {"id": "acme/Base", "like": "deepseek-ai/DeepSeek-V4-Flash", "reasoningParser": None, "kv": None}

    model = extended(builtin(), {"models": [entry]}).model("acme/Base")

    assert model is not None
    assert model.reasoning_parser is None
    assert model.kv is None
    assert model.tool_call_parser == "deepseek_v4"


def test_a_users_recipe_comes_before_the_shipped_ones() -> None:
    entry = {
        **_least("recipes"),
        "family": "deepseek-v4",
        "size": "Pro",
        "gpus": 16,
        "args": {"--tensor-parallel-size": "8"},
    }

    catalog = extended(builtin(), {"recipes": [entry]})
    model, gpu = catalog.model("deepseek-ai/DeepSeek-V4-Pro"), catalog.gpu("H200")
    assert model is not None
    found = catalog.recipe(model, gpu)

    assert found is not None
    assert (found.strategy, found.gpus) == ("tp", 16)


def test_the_shipped_catalog_is_left_as_it_was() -> None:
    before = builtin()
    extended(before, {"gpus": [{"name": "H200", "memoryBytes": "1GiB"}]})

    gpu = builtin().gpu("H200")
    assert gpu is not None
    assert gpu.memory_bytes > 2**33


@pytest.mark.parametrize(
    ("raw", "path", "cure"),
    [
        ([], "the catalog file", "models"),
        ({"model": []}, "model", "models, gpus"),
        ({1: []}, "1", "models"),
        ({"models": {}}, "models", "- "),
        ({"models": "x"}, "models", "- "),
        ({"models": ["x"]}, "models[0]", "field: value"),
        ({"models": [{}]}, "models[0].diskBytes", "like"),
        ({"models": [{"like": "nobody/knows"}]}, "models[0].like", "DeepSeek-V4-Flash"),
        ({"models": [{"like": ["x"]}]}, "models[0].like", "DeepSeek-V4-Flash"),
        ({"models": [{"like": "deepseek-ai/DeepSeek-V4-Pro"}]}, "models[0].id", "own id"),
        ({"models": [{"id": 7, "like": "deepseek-ai/DeepSeek-V4-Pro"}]}, "models[0].id", "text"),
        ({"models": [{**_least("models"), "diskBytes": "heavy"}]}, "models[0].diskBytes", "160GB"),
        ({"models": [{**_least("models"), "diskBytes": -1}]}, "models[0].diskBytes", "160GB"),
        ({"models": [{**_least("models"), "kv": 3}]}, "models[0].kv", "field: value"),
        (
            {"models": [{**_least("models"), "kv": {"blockToken": 3}}]},
            "models[0].kv.blockToken",
            "blockTokens",
        ),
        (
            {"models": [{**_least("models"), "kv": {"fixedBlocks": [26, 22]}}]},
            "models[0].kv.fixedBlocks",
            "22, 26",
        ),
        ({"models": [{**_least("models"), "draft": "Medusa"}]}, "models[0].draft", "MTP"),
        ({"models": [{**_least("models"), "minEngine": 0.2}]}, "models[0].minEngine", "quotes"),
        ({"models": [{**_least("models"), "sources": "me"}]}, "models[0].sources", "list"),
        ({"gpus": [{"name": "X1"}]}, "gpus[0].memoryBytes", "like"),
        ({"gpus": [{**_least("gpus"), "computeCapability": 9.0}]}, "gpus[0].computeCapability", '"9.0"'),
        ({"gpus": [{**_least("gpus"), "vendor": "Intel"}]}, "gpus[0].vendor", "NVIDIA, AMD"),
        ({"recipes": [{**_least("recipes"), "args": ["--x"]}]}, "recipes[0].args", "mapping"),
        ({"recipes": [{**_least("recipes"), "args": {"-tp": "8"}}]}, "recipes[0].args", "mapping"),
        ({"recipes": [{**_least("recipes"), "args": {"--tp": 8}}]}, "recipes[0].args", "mapping"),
        ({"recipes": [{**_least("recipes"), "gpus": True}]}, "recipes[0].gpus", "whole number"),
        ({"recipes": [{**_least("recipes"), "gpus": 0}]}, "recipes[0].gpus", "1 or more"),
        ({"flags": [{"flag": "--x", "removed": "soon"}]}, "flags[0].removed", "0.25.0"),
    ],
)
def test_what_is_wrong_is_said_with_its_path_and_its_cure(raw: Any, path: str, cure: str) -> None:
    with pytest.raises(CatalogInvalid) as refused:
        extended(builtin(), raw)

    assert refused.value.path == path
    assert cure in refused.value.cure
    assert str(refused.value) == f"{path} {refused.value.problem}: {refused.value.cure}"


KEYS = st.sampled_from(
    ["id", "name", "like", "kv", "gpus", "args", "diskBytes", "flag", "removed", "sources", "family"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(["models", "gpus", "recipes", "additions", "flags", "metrics", "defaults"])
        | st.text(max_size=5),
        VALUES | st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=3),
        max_size=3,
    )
)
def test_any_file_is_taken_or_refused_in_words(raw: dict[str, Any]) -> None:
    said = _refusal(raw)

    assert said is None or (said.path and said.cure)


def _refusal(raw: dict[str, Any]) -> CatalogInvalid | None:
    try:
        extended(builtin(), raw)
    except CatalogInvalid as refused:
        return refused
    return None
