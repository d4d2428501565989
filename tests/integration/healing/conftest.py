"""One cluster and one operator for all tests of this folder, and fleets of their own for each.

Where the scenarios of healing and of the operator's own life are tried on a real cluster; `chaos` is `tests/chaos`, whose
cases have operators of their own. All of them are tried in simulated time as well, in `tests/scenarios`.

| scenario | where |
|---|---|
| S21 an engine ends with exit 0 | `test_starts_again.py`; never served: `test_starts.py` ("exit"); the template: `test_webhook.py` |
| S22 a deterministic crash | `test_starts.py` ("length", "flag": one pod, the first error line), `test_starts_again.py` |
| S23 a fresh pod cures what a restart can not | `test_starts_again.py` |
| S24 failed pods pile up on a node with a lost GPU | `test_elsewhere.py` |
| S25 a pod stuck on a dead node | chaos: "a node lost" |
| S26 everything sick at once | chaos: "metrics gone", "all slow together", "all hang together" |
| S27 deletion while the operator is gone | `test_farewell.py` |
| S28 a watch dies in silence | chaos: "API server silent for 90 s", "watches gone, resets, slow answers" |
| S29 429 | chaos: "API server refuses half for 3 min" |
| S30 a CRD that drops fields | `test_outdated_crd.py` |
| S31 two operators | chaos: "two operators, the leader freezes and wakes"; two replicas answer: `test_webhook.py` |
| S32 a spec that changes again and again | `test_rollout.py` |
| S33 the operator killed | chaos: "operator killed: …", six steps; before and after every write: `tests/scenarios/test_killed_operator.py` |
| S55 a sick GPU under a running engine | `test_elsewhere.py` |
| rights lost, restored from a backup, a clock that jumps, a loop that stands still, a foreign finalizer | chaos |
"""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import attached, chosen, skip_if_unsupported
from tests.integration.fleet import Fleet
from tests.integration.installed import NAMESPACE, Release, make_namespace, operator_image

NewFleet = Callable[[], Fleet]


NODES, GPUS = 3, 10
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


@pytest.fixture
def audited(installed: Release) -> Release:
    """The release on a cluster that records every write; only one that somebody lent may lack that."""
    if not installed.cluster.spec.audit:
        pytest.skip("the cluster that KUBECONFIG lends was started without an audit log")
    return installed
