"""Tests here run on a real Kubernetes, started for them or named by KUBECONFIG."""

import pytest

from tests.cluster.fixtures import cluster, left_out, local_cluster, namespace, prepare

__all__ = ["cluster", "local_cluster", "namespace"]


def pytest_collection_finish(session: pytest.Session) -> None:
    prepare(session)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    line = left_out(terminalreporter.stats.get("skipped", []))
    if line:
        terminalreporter.write_line(line)
