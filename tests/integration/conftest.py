"""Tests here run on a real Kubernetes, started for them or named by KUBECONFIG."""

from collections.abc import Generator

import pytest

from tests.cluster.fixtures import cluster, left_out, local_cluster, namespace, one_place, prepare

__all__ = ["cluster", "local_cluster", "namespace"]


def pytest_collection_finish(session: pytest.Session) -> None:
    prepare(session)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return one_place((yield))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    line = left_out(terminalreporter.stats.get("skipped", []))
    if line:
        terminalreporter.write_line(line)
