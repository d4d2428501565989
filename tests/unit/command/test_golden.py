"""The commands of many fleets on many engine versions are those of the golden files."""

import pytest

from kintsugi.core.catalog.load import builtin
from kintsugi.core.catalog.version import parse_version
from kintsugi.core.command.flags import root_of
from tests.unit.command.cases import CASES, GOLDEN, UNKNOWN, commands_of, golden_text, path_of, versions_of


@pytest.mark.parametrize("name", CASES)
def test_the_command_is_that_of_the_golden_file(name: str) -> None:
    """After a wanted change, run `make generate` and read the diff."""
    assert golden_text(name) == path_of(name).read_text()


def test_there_is_no_golden_file_without_its_case() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)


PAIRS = [(name, version) for name in CASES for version in versions_of(name) if version != UNKNOWN]


@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_the_engine_knows_every_flag_that_it_is_given(name: str, version: str) -> None:
    """Against the flags of `vllm serve` in that release, as read from its wheel."""
    parsed = parse_version(version)
    assert parsed is not None
    known = builtin().known_flags(parsed)
    assert known, f"the flags of {version} are not in the catalog"
    for title, command in commands_of(name, version):
        unknown = {root_of(a.flag) for a in command.arguments} - known - {"--model"}
        assert not unknown, f"{title}: {unknown}"


@pytest.mark.parametrize("name", CASES)
def test_an_engine_of_unknown_version_gets_what_every_one_understands(name: str) -> None:
    catalog = builtin()
    model = catalog.model(CASES[name]["model"]["id"])
    for title, command in commands_of(name, UNKNOWN):
        for argument in command.arguments:
            if not argument.origin.startswith("spec."):
                changes = catalog.flag_changes(root_of(argument.flag))
                late = [c for c in changes if c.added and (model is None or c.added > model.min_engine)]
                assert not late, f"{title}: {argument.flag}"
                assert not [c for c in changes if c.removed], f"{title}: {argument.flag}"
