"""The compiled programs are found again exactly as long as nothing that makes them has changed."""

import re
from pathlib import Path

import pytest

from tests.cluster.binaries import (
    GO_PACKAGE,
    KUBERNETES,
    PROGRAMS,
    RENAMED,
    cache_key,
    parse_version,
    wanted_go,
)
from tests.cluster.paths import HERE

GO_MOD = (HERE / "go.mod").read_text()


def test_the_key_changes_with_each_thing_that_changes_the_programs() -> None:
    keys = {
        cache_key(b"mod", b"sum", "go1.26.1", ("-x",)),
        cache_key(b"mod2", b"sum", "go1.26.1", ("-x",)),
        cache_key(b"mod", b"sum2", "go1.26.1", ("-x",)),
        cache_key(b"mod", b"sum", "go1.26.2", ("-x",)),
        cache_key(b"mod", b"sum", "go1.26.1", ("-y",)),
        cache_key(b"mods", b"um", "go1.26.1", ("-x",)),
    }
    assert len(keys) == 6


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.8", (1, 26, 8)), ("1.26", (1, 26)), ("go1.27rc1", (1, 27)), ("go1.26.1 X:boring", (1, 26, 1))],
)
def test_versions_are_read_as_go_writes_them(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


def test_a_text_without_a_version_is_refused() -> None:
    with pytest.raises(ValueError, match="devel"):
        parse_version("devel")


def test_the_compiler_from_pypi_is_new_enough_for_the_module() -> None:
    assert parse_version(GO_PACKAGE.partition("==")[2]) >= wanted_go(GO_MOD)


def test_every_program_is_a_tool_of_the_module() -> None:
    block = re.search(r"^tool \((.*?)^\)", GO_MOD, re.MULTILINE | re.DOTALL)
    assert block is not None
    built = {
        re.sub(r"/v\d+$", "", line.strip()).rpartition("/")[2]
        for line in block.group(1).splitlines()
        if line.strip()
    }
    assert {RENAMED.get(name, name) for name in built} == set(PROGRAMS)


def test_the_version_that_the_programs_tell_is_the_one_that_is_required() -> None:
    version = ".".join(map(str, KUBERNETES))
    assert f"k8s.io/kubernetes v{version} " in GO_MOD


def test_no_go_code_of_our_own_is_needed() -> None:
    assert not list(Path(HERE).rglob("*.go"))
