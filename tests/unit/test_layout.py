"""Guards the repository's shape: `operator/` must never shadow the standard library's module of that name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (Path("operator/kintsugi"), Path("engine/kintsugi_engine"))
LONGEST = 400


def tracked(*patterns: str) -> list[Path]:
    """Paths, relative to the root, of files that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in listed.split("\0") if name and (ROOT / (path := Path(name))).is_file()]


def imported_from(folder: Path, *arguments: str) -> Path:
    """Where a fresh interpreter, started in `folder`, finds the module `operator` after `collections`."""
    code = "import collections, operator; print(operator.__file__)"
    answer = subprocess.run(
        [sys.executable, *arguments, "-c", code], cwd=folder, check=True, capture_output=True, text=True
    )
    return Path(answer.stdout.strip())


@pytest.mark.parametrize("root", ["operator", "engine"])
def test_every_module_of_a_source_root_lies_inside_its_package(root: str) -> None:
    outside = [
        path
        for path in tracked(f"{root}/*.py")
        if not any(path.is_relative_to(package) for package in PACKAGES)
    ]
    assert outside == []


def test_neither_source_root_is_itself_a_package() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "engine" / "__init__.py").exists()


@pytest.mark.parametrize("root", ["operator", "engine"])
def test_no_test_stands_in_a_source_root(root: str) -> None:
    named = [
        path
        for path in tracked(f"{root}/*.py")
        if path.name.startswith("test_") or path.name == "conftest.py"
    ]
    assert named == []


def test_the_tests_folders_are_no_packages_and_none_is_called_operator() -> None:
    assert [path for path in tracked("tests/*.py") if path.name == "__init__.py"] == []
    assert [path for path in tracked("tests/*") if "operator" in path.parent.parts] == []


@pytest.mark.parametrize("arguments", [(), ("-P",)], ids=["plain", "safe-path"])
def test_the_standard_operator_module_wins_at_the_repository_root(arguments: tuple[str, ...]) -> None:
    assert imported_from(ROOT, *arguments) == imported_from(Path("/"))


def test_the_standard_operator_module_wins_inside_the_operator_folder() -> None:
    assert imported_from(ROOT / "operator") == imported_from(Path("/"))


def test_no_module_of_ours_has_a_name_of_the_standard_library() -> None:
    names = {
        path.parent.name if path.name == "__init__.py" else path.stem
        for package in PACKAGES
        for path in tracked(f"{package}/*.py")
    }
    assert "core" in names
    assert names & (sys.stdlib_module_names - {"__main__"}) == set()


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [
        path for path in tracked("*.py") if path.stem in drawers or drawers & set(path.parent.parts)
    ] == []


def test_no_module_is_longer_than_400_lines() -> None:
    def lines(path: Path) -> int:
        return len((ROOT / path).read_text(encoding="utf-8").splitlines())

    assert {str(path): count for path in tracked("*.py") if (count := lines(path)) > LONGEST} == {}


HOSTS = (
    ("pypi", "org"),
    ("python" + "hosted", "org"),
    ("proxy", "golang", "org"),
    ("sum", "golang", "org"),
    ("npmjs", "org"),
    ("crates", "io"),
    ("repo1", "maven", "org"),
    ("maven", "org"),
    ("deb", "debian", "org"),
    ("security", "debian", "org"),
)
REGISTRIES = re.compile("|".join(rf"(?<![\w-]){re.escape('.'.join(labels))}" for labels in HOSTS))
MACHINE_PATHS = re.compile(r"(?<![\w.-])(?:/(?:work|home|Users|opt/wheels)/[\w.-]+|/root/(?!\.cache)[\w.-]+)")


def test_no_file_names_a_package_registry_or_a_path_of_one_machine() -> None:
    found = []
    for path in tracked():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for pattern in (REGISTRIES, MACHINE_PATHS):
            found += [f"{path}: {match.group()}" for match in pattern.finditer(text)]
    assert found == []
