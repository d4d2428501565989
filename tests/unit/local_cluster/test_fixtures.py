"""Tests never write to a cluster that nobody named for it."""

from pathlib import Path

import pytest
import yaml

from tests.cluster.fixtures import Chosen, Refused, chosen, left_out
from tests.cluster.names import ClusterNames


def kubeconfig(folder: Path, context: str | None) -> Path:
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump({"kind": "Config", "current-context": context}))
    return file


def test_without_a_kubeconfig_we_use_a_cluster_of_our_own() -> None:
    assert chosen({}) is None
    assert chosen({"KUBECONFIG": ""}) is None


def test_a_context_that_the_local_cluster_made_is_taken(tmp_path: Path) -> None:
    context = ClusterNames("dev", "f00").context
    file = kubeconfig(tmp_path, context)
    assert chosen({"KUBECONFIG": str(file)}) == Chosen(file, context)


def test_any_other_context_is_refused_and_the_way_to_allow_it_is_named(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "production")
    with pytest.raises(Refused, match="KINTSUGI_ALLOW_CONTEXT=production"):
        chosen({"KUBECONFIG": str(file)})
    with pytest.raises(Refused, match="production"):
        chosen({"KUBECONFIG": str(file), "KINTSUGI_ALLOW_CONTEXT": "staging"})


def test_a_context_that_was_allowed_by_name_is_taken(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "lab")
    assert chosen({"KUBECONFIG": str(file), "KINTSUGI_ALLOW_CONTEXT": "lab"}) == Chosen(file, "lab")


def test_the_variable_of_the_tests_own_comes_before_the_general_one(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "kintsugi-dev")
    found = chosen({"KUBECONFIG": "/elsewhere", "KINTSUGI_TEST_KUBECONFIG": str(file)})
    assert found == Chosen(file, "kintsugi-dev")


@pytest.mark.parametrize("content", [None, "- a list", "current-context: ''", ": ["])
def test_a_kubeconfig_that_names_no_context_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    with pytest.raises(Refused, match="KUBECONFIG="):
        chosen({"KUBECONFIG": str(file)})


def skipped(reason: str) -> pytest.TestReport:
    where = ("tests/x.py", 1, f"Skipped: {reason}")
    return pytest.TestReport("x", ("x", 1, "x"), {}, "skipped", where, "setup")


def test_one_line_says_how_many_tests_had_no_cluster_and_why() -> None:
    reports = [skipped("no local cluster: no root"), skipped("no local cluster: no root"), skipped("other")]
    assert left_out(reports) == "2 tests on a real cluster were left out (no local cluster: no root)"
    assert left_out([skipped("other")]) is None
