"""The fragmentation of the CUDA allocator, by a torch made of the numbers that it would tell."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kintsugi_engine import contract
from kintsugi_engine.telemetry.allocator import FLOOR, AllocatorWatch, Reading, fragmentation, read_device

GIB = 1 << 30


def torch_with(*devices: dict[str, int], initialised: bool = True, available: bool = True) -> Any:
    cuda = SimpleNamespace(
        is_available=lambda: available,
        is_initialized=lambda: initialised,
        device_count=lambda: len(devices),
        memory_stats=lambda device: devices[device],
    )
    return SimpleNamespace(cuda=cuda)


def stats(allocated: int, reserved: int, split: int) -> dict[str, int]:
    return {
        "allocated_bytes.all.current": allocated,
        "reserved_bytes.all.current": reserved,
        "inactive_split_bytes.all.current": split,
    }


def test_fragmentation_is_the_split_share_of_what_can_be_reused() -> None:
    reading = Reading(allocated=72 * GIB, reserved=78 * GIB, inactive_split=2 * GIB)
    assert fragmentation(reading, baseline=70 * GIB) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("reserved", "baseline"),
    [(78 * GIB, None), (70 * GIB + FLOOR - 1, 70 * GIB), (60 * GIB, 70 * GIB)],
    ids=["no baseline", "little to reuse", "less reserved than at warm-up"],
)
def test_it_is_absent_where_it_would_mean_nothing(reserved: int, baseline: int | None) -> None:
    assert fragmentation(Reading(60 * GIB, reserved, GIB // 4), baseline) is None


def test_the_device_on_which_this_process_reserved_memory_is_read() -> None:
    seen = read_device(torch_with({}, stats(GIB, 2 * GIB, 7), stats(0, 0, 0)))
    assert seen == Reading(GIB, 2 * GIB, 7)


@pytest.mark.parametrize(
    "torch",
    [
        torch_with(stats(1, 2, 1), initialised=False),
        torch_with(stats(1, 2, 1), available=False),
        torch_with(stats(0, 0, 0)),
        torch_with(),
    ],
    ids=["not used yet", "no CUDA", "nothing reserved", "no device"],
)
def test_a_process_that_does_not_use_cuda_tells_nothing(torch: Any) -> None:
    assert read_device(torch) is None
    assert AllocatorWatch().look(torch) is None


@pytest.fixture
def with_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Any], None]:
    monkeypatch.setenv(contract.TELEMETRY_DIR_VARIABLE, str(tmp_path))
    return lambda torch: monkeypatch.setitem(__import__("sys").modules, "torch", torch)


def test_what_is_allocated_at_the_first_step_is_the_baseline(with_torch: Callable[[Any], None]) -> None:
    watch = AllocatorWatch()
    watch.belongs_to("i", "0", "3", trusted=True)
    with_torch(torch_with(stats(70 * GIB, 71 * GIB, 0)))
    watch.warmed_up()
    sample = watch.look(torch_with(stats(72 * GIB, 78 * GIB, 2 * GIB)))
    assert sample is not None
    assert sample["fragmentation"] == pytest.approx(0.25)
    assert sample["bytes"]["baseline"] == 70 * GIB


def test_in_sleep_mode_nothing_is_told(with_torch: Callable[[Any], None]) -> None:
    torch = torch_with(stats(70 * GIB, 71 * GIB, 0))
    with_torch(torch)
    watch = AllocatorWatch()
    watch.belongs_to("i", "0", "3", trusted=False)
    watch.warmed_up()
    assert watch.look(torch) is None


def test_the_thread_writes_the_file_of_its_rank(
    with_torch: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kintsugi_engine.telemetry.allocator.PERIOD", 0.01)
    with_torch(torch_with(stats(70 * GIB, 71 * GIB, 5)))
    watch = AllocatorWatch()
    watch.belongs_to("i", "1", "3", trusted=True)
    watch.start()
    watch.start()
    path = tmp_path / "allocator-1-3-i.json"
    for _ in range(500):
        if path.exists():
            break
        __import__("time").sleep(0.01)
    found = json.loads(path.read_text())
    assert (found["engine"], found["worker"], found["bytes"]["inactive_split"]) == ("1", "3", 5)
    assert found["fragmentation"] is None
    newest = watch.newest()
    assert newest is not None
    assert newest["bytes"] == found["bytes"]
    watch.stop()
