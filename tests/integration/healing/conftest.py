"""One cluster and one operator for all tests of this folder, and fleets of their own for each."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import attached, chosen, skip_if_unsupported
from tests.integration.fleet import Fleet
from tests.integration.installed import NAMESPACE, Release, make_namespace, operator_image

NewFleet = Callable[[], Fleet]


NODES, GPUS = 3, 8
"""Of each node: the fleets of a file warm up side by side, and each has room for one more engine."""


@pytest.fixture(scope="package")
def local_cluster() -> Iterator[Cluster]:
    """A cluster with more GPUs than the one that other tests share; its nodes may be switched off."""
    found = chosen(os.environ)
    if found is not None:
        given = attached(found)
        if not isinstance(given, Cluster) or given.spec.nodes * given.spec.gpus_per_node < NODES * GPUS:
            pytest.skip(
                f"the cluster of context {found.context!r} is not a local one with {NODES * GPUS} GPUs"
            )
        yield given
        return
    skip_if_unsupported()
    with Cluster.start(f"healing-{os.getpid()}", nodes=NODES, gpus_per_node=GPUS, audit_log=True) as ours:
        yield ours


@pytest.fixture(scope="package")
def installed(local_cluster: Cluster) -> Iterator[Release]:
    """The operator, installed by Helm into a namespace of the restricted level; gone when the folder's tests are over.

    Who stops it, or takes it away, starts it again: `release` sees to that.
    """
    release = Release(local_cluster, operator_image())
    make_namespace(local_cluster, NAMESPACE)
    release.install()
    yield release
    release.uninstall()
    local_cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def new_fleet(installed: Release) -> Iterator[NewFleet]:
    """Makes fleets, each in a namespace of its own, which are gone after the test."""
    made: list[Fleet] = []

    def make() -> Fleet:
        made.append(Fleet(installed.cluster, installed.image))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


@pytest.fixture
def fleet(new_fleet: NewFleet) -> Fleet:
    """A fleet that was not applied yet."""
    return new_fleet()
