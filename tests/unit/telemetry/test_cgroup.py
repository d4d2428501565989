"""A container's memory from its cgroup, in both versions, as a container and as its host show it."""

from pathlib import Path

import pytest

from kintsugi_engine.telemetry.cgroup import ContainerMemory, container_memory


def lay(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    return tmp_path / "membership"


def test_version_two_in_a_container(tmp_path: Path, membership: Path) -> None:
    membership.write_text("0::/\n")
    lay(tmp_path / "root", memory__stat="anon 4096\nfile 1\nshmem 512\n", memory__max="1048576\n")
    assert container_memory(tmp_path / "root", membership) == ContainerMemory(4096, 512, 1048576)


def test_version_two_without_a_limit_has_none(tmp_path: Path, membership: Path) -> None:
    membership.write_text("0::/\n")
    lay(tmp_path / "root", memory__stat="anon 4096\nshmem 512\n", memory__max="max\n")
    assert container_memory(tmp_path / "root", membership).limit is None


def test_the_path_of_the_process_is_followed_where_it_is_there(tmp_path: Path, membership: Path) -> None:
    membership.write_text("0::/kubepods/pod1/c1\n")
    root = tmp_path / "root"
    lay(root, memory__stat="anon 9\n")
    assert container_memory(root, membership).anonymous == 9, "told from outside: only the own root is seen"
    lay(root / "kubepods/pod1/c1", memory__stat="anon 7\n")
    assert container_memory(root, membership).anonymous == 7


@pytest.mark.parametrize(
    ("limit", "expected"), [("2097152\n", 2097152), ("9223372036854771712\n", None)], ids=["limit", "none"]
)
def test_version_one(tmp_path: Path, membership: Path, limit: str, expected: int | None) -> None:
    membership.write_text("3:cpu,cpuacct:/x\n9:memory:/pod/c\n0::/\n")
    lay(
        tmp_path / "root" / "memory" / "pod" / "c",
        memory__stat="cache 5\nrss 4096\nshmem 3\n",
        memory__limit_in_bytes=limit,
    )
    assert container_memory(tmp_path / "root", membership) == ContainerMemory(4096, 3, expected)


def test_where_nothing_is_told_nothing_is_known(tmp_path: Path, membership: Path) -> None:
    assert container_memory(tmp_path / "none", membership) == ContainerMemory()
