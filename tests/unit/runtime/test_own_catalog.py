"""A catalog of the user's, as the operator reads it when it starts."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kintsugi.api.objects import parse_deployment
from kintsugi.cli.run import catalog_of
from kintsugi.core.accept import problems_of_spec
from kintsugi.core.catalog import load
from kintsugi.core.catalog.load import adopt, builtin, in_force
from kintsugi.runtime.settings import Settings

OWN = """
models:
  - id: acme/House-V4
    like: deepseek-ai/DeepSeek-V4-Flash
    computeCapabilities: [8, 9]
"""


@pytest.fixture
def as_shipped() -> Iterator[None]:
    """The catalog as shipped is in force again afterwards."""
    yield
    load._ADOPTED.clear()


def test_what_the_file_says_holds_for_every_check(tmp_path: Path, as_shipped: None) -> None:
    path = tmp_path / "catalog.yaml"
    path.write_text(OWN, encoding="utf-8")
    spec = parse_deployment(
        {
            "metadata": {"name": "chat"},
            "spec": {
                "model": {"id": "acme/House-V4"},
                "engine": {"args": {"blockSize": 16}},
                "hardware": {"gpu": "A100-80GB", "gpusPerInstance": 8},
            },
        }
    ).spec
    adopt(catalog_of(path))
    assert in_force() is not builtin()
    told = [str(problem) for problem in problems_of_spec(spec)]
    assert any("blockSize" in problem for problem in told)
    assert not any("hardware.gpu" in problem for problem in told), "the file says that it runs there"


@pytest.mark.parametrize("text", ["models: [", "models: 3", "wheels: []", "models: [{id: 3}]"])
def test_a_file_that_can_not_be_read_keeps_the_operator_from_starting_and_says_where(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "catalog.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(click.ClickException, match=r"KINTSUGI_CATALOG: .*catalog\.yaml"):
        catalog_of(path)


def test_a_missing_file_is_said_by_name(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"nowhere\.yaml"):
        catalog_of(tmp_path / "nowhere.yaml")


def test_the_setting_is_a_path() -> None:
    assert Settings.from_environment({"KINTSUGI_CATALOG": "/etc/kintsugi/catalog.yaml"}).catalog
    assert Settings.from_environment({}).catalog == ""
