"""One cluster for the whole suite, and all stories of it under way at once."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.chaos.cases import ALL
from tests.chaos.report import show, write
from tests.chaos.run import Run, all_of
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import left_out, one_place, prepare, skip_if_unsupported
from tests.integration.installed import ROOT, operator_image

NODES, GPUS = 4, 40
NODE_SILENCE_SECONDS = 50
"""Kubernetes' own: a busy machine starves a kubelet for longer than the fifteen seconds of our other clusters."""
REPORT: Path = ROOT / "build" / "chaos.json"


def pytest_collection_finish(session: pytest.Session) -> None:
    prepare(session)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return one_place((yield))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    line = left_out(terminalreporter.stats.get("skipped", []))
    if line:
        terminalreporter.write_line(line)


@pytest.fixture(scope="package")
def local_cluster() -> Iterator[Cluster]:
    """A cluster whose nodes lose their power and whose API server goes away: nobody else's."""
    skip_if_unsupported()
    with Cluster.start(
        f"chaos-{os.getpid()}",
        nodes=NODES,
        gpus_per_node=GPUS,
        audit_log=True,
        node_silence_seconds=NODE_SILENCE_SECONDS,
    ) as ours:
        yield ours


@pytest.fixture(scope="package")
def chaos(request: pytest.FixtureRequest, local_cluster: Cluster) -> Iterator[Run]:
    """The stories of the tests that were chosen, side by side; at the end the table and the file."""
    asked = {
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and "chaos" in item.fixturenames
    }
    run = Run(local_cluster, operator_image(), all_of(asked))
    try:
        run.start()
        yield run
    finally:
        run.close()
        done = [
            found.result()
            for case in ALL
            if (found := run.tallies.get(case.name)) and found.done() and not found.exception()
        ]
        write(done, REPORT)
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print()
            show(done)
