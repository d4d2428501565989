"""Both benches of the contract suite. The real cluster is started once, and only if a test asks for it."""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kintsugi.adapters.kube.client import KubeClient, load_configuration
from kintsugi.api.crd import crd_documents
from tests.cluster.cluster import Cluster
from tests.cluster.machine import Unsupported
from tests.contract.benches import Bench, FakeBench, install_crds, operator_configuration, real_bench


@pytest.fixture(scope="session")
def contract_kubeconfig() -> Iterator[Path]:
    """The kubeconfig of a real cluster: of KINTSUGI_TEST_CLUSTER that is up, else of one started for this run."""
    name = os.environ.get("KINTSUGI_TEST_CLUSTER")
    if name:
        kubeconfig = Cluster.attach(name).kubeconfig
        asyncio.run(_prepare(kubeconfig))
        yield kubeconfig
        return
    try:
        cluster = Cluster.start("contract", nodes=1, gpus_per_node=4)
    except Unsupported as reason:
        pytest.skip(f"no real cluster on this machine: {reason}")
    with cluster:
        asyncio.run(_prepare(cluster.kubeconfig))
        yield cluster.kubeconfig


async def _prepare(kubeconfig: Path) -> None:
    client = KubeClient(load_configuration(str(kubeconfig)))
    await install_crds(client, crd_documents())
    await client.close()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
def backend(request: pytest.FixtureRequest) -> Path | None:
    """The kubeconfig of the real cluster, or None for the fake one."""
    return None if request.param == "fake" else request.getfixturevalue("contract_kubeconfig")


@pytest.fixture
async def bench(backend: Path | None) -> AsyncIterator[Bench]:
    made: Bench
    if backend is None:
        made = FakeBench()
    else:
        admin = load_configuration(str(backend))
        client = KubeClient(admin)
        operator = KubeClient(await operator_configuration(client, admin))
        made = await real_bench(client, operator, time.time, secrets.token_hex(3))
    yield made
    await made.close()
