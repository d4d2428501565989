import json

import pytest

from tests.unit.chart import values
from tests.unit.chart.readme import render


def test_every_value_is_documented_by_a_comment_above_it() -> None:
    assert values.leaves() <= {value.path for value in values.documented()}


def test_the_schema_declares_every_value_and_no_other() -> None:
    assert values.declared() == values.leaves()


def test_every_value_is_used_by_a_template() -> None:
    assert values.leaves() <= values.used()


def test_templates_read_only_values_that_exist() -> None:
    assert values.used() <= {value.path for value in values.documented()}


def test_the_readme_is_what_the_values_say() -> None:
    assert (values.CHART / "README.md").read_text(encoding="utf-8") == render(), "run `make generate`"


@pytest.mark.parametrize("part", ["image", "crds", "metrics", "leaderElection", "serviceAccount"])
def test_a_misspelt_value_would_be_refused(part: str) -> None:
    schema = json.loads((values.CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["additionalProperties"] is False
    assert schema["properties"][part]["additionalProperties"] is False
