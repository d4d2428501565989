"""The examples are accepted and the bad manifests are refused, without a cluster."""

from typing import Any

import pytest
from kubernetes_validate import validate

from kintsugi.api.fields import unknown_fields
from kintsugi.api.objects import SpecInvalid, parse_deployment
from tests.unit.api.manifests import Invalid, example_deployments, example_documents, invalid_manifests

EXAMPLES = example_deployments()


@pytest.mark.parametrize("invalid", invalid_manifests(), ids=lambda invalid: invalid.case)
def test_a_bad_manifest_is_refused_by_field(invalid: Invalid) -> None:
    with pytest.raises(SpecInvalid) as refused:
        parse_deployment(invalid.manifest)
    named = {problem.path for problem in refused.value.problems}
    assert any(path.startswith(invalid.field) for path in named), named
    assert invalid.message in str(refused.value)


@pytest.mark.parametrize(("name", "raw"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_is_read_without_loss(name: str, raw: dict[str, Any]) -> None:
    read = parse_deployment(raw)
    assert unknown_fields(raw) == []
    assert parse_deployment(read.dump()) == read
    assert read.spec.model_dump(mode="json", by_alias=True, exclude_unset=True) == raw["spec"]


def test_what_is_no_kind_of_ours_in_the_examples_is_valid_for_kubernetes() -> None:
    others = [raw for _, raw in example_documents() if not raw["apiVersion"].startswith("kintsugi.dev/")]
    assert others
    for raw in others:
        validate(raw, "1.34", strict=True)
