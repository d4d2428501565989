import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintsugi.core.catalog.entities import Gpu
from kintsugi.core.catalog.load import builtin
from kintsugi.core.catalog.version import EngineVersion

GPUS = builtin().gpus


def found(name: str) -> Gpu:
    gpu = builtin().gpu(name)
    assert gpu is not None, name
    return gpu


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_a_kind_agrees_with_itself(gpu: Gpu) -> None:
    assert gpu.sources
    assert all(gpu.sources)
    assert 14 * 2**30 < gpu.memory_bytes < 300 * 2**30
    assert (gpu.compute_capability is None) == (gpu.vendor == "AMD")
    assert gpu.per_node in (1, 4, 8)
    families = {f"{model.family}/{model.size}" for model in builtin().models}
    assert set(gpu.verified_with) <= families
    for name in (gpu.name, *gpu.aliases):
        assert builtin().gpu(name) is gpu, "two kinds answer to one name"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("H100", "H100-80GB"),
        ("h200", "H200"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA-H200", "H200"),
        ("nvidia_h200", "H200"),
        ("NVIDIA-H200-SHARED", "H200"),
        ("NVIDIA-H100-80GB-HBM3", "H100-80GB"),
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-80GB"),
        ("A100 80GB", "A100-80GB"),
        ("a100-40gb", "A100-40GB"),
        ("NVIDIA-B300-SXM6-AC", "B300"),
        ("NVIDIA-GB200", "GB200"),
        ("NVIDIA-H20", "H20-96GB"),
        ("NVIDIA-H20-3e", "H20-141GB"),
        ("RTX PRO 6000", "RTX-PRO-6000"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX-PRO-6000"),
        ("DGX Spark", "GB10"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("MI355X", "MI355X"),
        ("Tesla-T4", "T4"),
    ],
)
def test_a_kind_is_known_by_labels_and_other_spellings(name: str, kind: str) -> None:
    assert found(name).name == kind


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "-",
        "nvidia",
        "NVIDIA-",
        "amd",
        "H",
        "H2000",
        "TPU-v6e",
        "Gaudi3",
        "H200-MIG-1g.18gb",
        "shared",
    ],
)
def test_a_name_that_nobody_wrote_down_is_unknown(name: str) -> None:
    assert builtin().gpu(name) is None


@pytest.mark.parametrize(
    ("name", "mebibytes"),
    [
        ("H100", 81559),
        ("H200", 143771),
        ("B200", 183359),
        ("GB200", 189471),
        ("B300", 275040),
        ("GB300", 284208),
    ],
)
def test_memory_is_what_the_driver_shows_not_what_the_name_says(name: str, mebibytes: int) -> None:
    assert found(name).memory_bytes == mebibytes * 2**20


@pytest.mark.parametrize(
    ("name", "version", "sequences", "tokens"),
    [
        ("A100-80GB", EngineVersion(0, 33), 256, 2048),
        ("H200", EngineVersion(0, 33), 1024, 8192),
        ("H200", EngineVersion(0, 20), 1024, 8192),
        ("B200", EngineVersion(0, 27, 1), 1024, 8192),
        ("B200", EngineVersion(0, 28), 1024, 16384),
        ("L4", EngineVersion(0, 28), 256, 2048),
        ("GB10", EngineVersion(0, 32), 1024, 8192),
        ("GB10", EngineVersion(0, 33), 256, 2048),
        ("H200", None, 1024, 8192),
    ],
)
def test_the_engines_own_defaults_go_by_memory_and_release(
    name: str, version: EngineVersion | None, sequences: int, tokens: int
) -> None:
    defaults = builtin().engine_defaults(found(name), version)

    assert defaults is not None
    assert (defaults.max_num_seqs, defaults.max_num_batched_tokens) == (sequences, tokens)
    assert defaults.gpu_memory_utilization == 0.92


def test_nothing_is_said_of_defaults_on_an_unknown_gpu_or_an_engine_older_than_the_table() -> None:
    assert builtin().engine_defaults(None, EngineVersion(0, 33)) is None
    assert builtin().engine_defaults(found("H200"), EngineVersion(0, 12)) is None


@given(st.text(max_size=200))
def test_any_text_is_looked_up_without_an_error(text: str) -> None:
    gpu = builtin().gpu(text)

    assert gpu is None or gpu in GPUS
