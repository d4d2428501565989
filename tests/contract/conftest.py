"""Both benches of the contract suite. The real cluster is started once, and only if a test asks for it."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from kintsugi.adapters.clock import SystemClock
from kintsugi.adapters.kube.client import KubeClient, load_configuration
from kintsugi.api.crd import crd_documents
from tests.cluster.binaries import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import Chosen, chosen, skip_if_unsupported
from tests.cluster.machine import require, unsupported_because
from tests.contract.benches import Bench, FakeBench, install_crds, operator_configuration, real_bench


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what a cluster needs now, outside every test's time limit."""
    wanted = any(item.get_closest_marker("cluster") and "bench" in _fixtures(item) for item in session.items)
    if not wanted or session.config.option.collectonly or chosen(os.environ) or unsupported_because():
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        require(lambda text: print(text, flush=True))
        binaries(lambda text: print(text, flush=True))


def _fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="package")
def real_cluster() -> Iterator[Chosen]:
    """The cluster that the environment names, else one of this suite's own, with our CRDs."""
    found = chosen(os.environ)
    if found is not None:
        asyncio.run(_prepare(found))
        yield found
        return
    skip_if_unsupported()
    with Cluster.start(f"contract-{os.getpid()}", nodes=1, gpus_per_node=4) as ours:
        found = Chosen(ours.kubeconfig, ours.context)
        asyncio.run(_prepare(found))
        yield found


async def _prepare(found: Chosen) -> None:
    client = KubeClient(load_configuration(str(found.kubeconfig), found.context))
    await install_crds(client, crd_documents())
    await client.close()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
def backend(request: pytest.FixtureRequest) -> Chosen | None:
    """The real cluster, or None for the fake one."""
    return None if request.param == "fake" else request.getfixturevalue("real_cluster")


@pytest.fixture
async def bench(backend: Chosen | None) -> AsyncIterator[Bench]:
    made: Bench
    if backend is None:
        made = FakeBench()
    else:
        admin = load_configuration(str(backend.kubeconfig), backend.context)
        client = KubeClient(admin)
        operator = KubeClient(await operator_configuration(client, admin))
        made = await real_bench(client, operator, SystemClock().now, secrets.token_hex(3))
    yield made
    await made.close()
