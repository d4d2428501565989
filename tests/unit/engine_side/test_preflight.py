"""What a machine can't serve is said before the engine starts, in words and in the termination message."""

import json
import struct
from pathlib import Path

import pytest

from kintsugi_engine import gpus, preflight
from kintsugi_engine.gpus import Found, visible
from kintsugi_engine.preflight import Check
from kintsugi_engine.weights import complaint


def tensors(path: Path, size: int = 64) -> None:
    """A whole safetensors file."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of two files and an index."""
    (tmp_path / "config.json").write_text("{}")
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name in names:
        tensors(tmp_path / name)
    index = {"weight_map": dict(zip(("a", "b"), names, strict=True))}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def test_a_whole_model_has_nothing_to_complain_about(folder: Path) -> None:
    assert complaint(folder) == ""


def test_a_file_that_the_index_names_and_that_is_missing_is_named(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert complaint(folder).startswith("1 of 2 files that model.safetensors.index.json names are missing")


def test_a_file_that_was_not_copied_to_its_end_is_named_with_both_sizes(folder: Path) -> None:
    path = folder / "model-00001-of-00002.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    said = complaint(folder)
    assert (
        said
        == f"{path.name} has {len(whole) - 10} bytes, and {len(whole)} by its own header: it was not copied to its end"
    )


@pytest.mark.parametrize("text", ["", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"])
def test_a_pointer_or_an_empty_file_is_no_weights(folder: Path, text: str) -> None:
    (folder / "model-00001-of-00002.safetensors").write_text(text)
    assert "is no safetensors file" in complaint(folder)


def test_a_mount_that_is_empty_or_not_there_is_told_apart(tmp_path: Path) -> None:
    assert "has no config.json" in complaint(tmp_path)
    assert "is no folder" in complaint(tmp_path / "models")


def test_gpus_must_be_there_and_of_the_kind_that_was_asked_for() -> None:
    two = Found(("NVIDIA H200", "NVIDIA H200"))
    assert preflight.gpus(2, "H200", lambda: two) == Check("gpu", True, "2 visible: NVIDIA H200")
    assert preflight.gpus(4, "H200", lambda: two).said == "2 of 4 GPUs are visible"
    assert preflight.gpus(2, "B200", lambda: two).said == "wanted B200, found NVIDIA H200"
    assert preflight.gpus(1, "", lambda: Found((), "no driver")).said == "0 of 1 GPUs are visible: no driver"


def test_without_the_library_the_drivers_files_count_gpus_with_a_device_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_nvidia", lambda: gpus.Found((), "no library"))
    for minor in (0, 1):
        path = tmp_path / f"proc/driver/nvidia/gpus/0000:0{minor}:00.0/information"
        path.parent.mkdir(parents=True)
        path.write_text(f"Model: \t NVIDIA H200\nDevice Minor: \t {minor}\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia1").touch()
    found = visible(tmp_path)
    assert found.names == ("NVIDIA H200",)


def test_a_verdict_says_all_on_one_page_with_what_failed_first(tmp_path: Path, folder: Path) -> None:
    message = tmp_path / "termination-log"
    code = preflight.main(
        [
            "--model",
            str(folder),
            "--disk",
            "/:1000000Ti",
            "--writable",
            str(tmp_path / "cache"),
            "--message",
            str(message),
        ]
    )
    told = json.loads(message.read_text())
    assert (code, told["ok"]) == (1, False)
    assert [(check["name"], check["ok"]) for check in told["checks"]] == [
        ("disk", False), ("model", True), ("writable", True),
    ]  # fmt: skip
    assert "1024000000.0 GiB are needed" in told["checks"][0]["said"]


def test_a_verdict_always_fits_a_termination_message() -> None:
    many = [Check(f"check {number}", True, "x" * 200) for number in range(50)]
    text = preflight.verdict([*many, Check("gpu", False, "y" * 9000)])
    assert len(text.encode()) <= preflight.MESSAGE_BYTES
    assert json.loads(text)["checks"][0]["name"] == "gpu"


def test_a_machine_that_lacks_nothing_passes(tmp_path: Path, folder: Path) -> None:
    words = [
        "--model",
        str(folder),
        "--shm",
        "1",
        "--writable",
        str(tmp_path),
        "--message",
        str(tmp_path / "log"),
    ]
    assert preflight.main(words) == 0
    assert json.loads((tmp_path / "log").read_text())["ok"] is True


def test_what_lies_in_shared_memory_from_before_is_said(tmp_path: Path) -> None:
    (tmp_path / "vllm_offload_x.mmap").touch()
    assert (
        "1 files of an engine before lie there, such as vllm_offload_x.mmap"
        in preflight.shared_memory(1, tmp_path).said
    )
