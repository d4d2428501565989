"""A cluster of this machine, the operator installed on it, and real vLLM engines that it looks after."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import skip_if_unsupported
from tests.engine.operated.real_fleet import RealFleet
from tests.integration.installed import NAMESPACE, Release, make_namespace, operator_image

NewFleet = Callable[[], RealFleet]


@pytest.fixture(scope="package")
def installed(engine_python: Path) -> Iterator[Release]:
    """The operator, installed by Helm on a cluster of its own; only where there is an engine for it."""
    skip_if_unsupported()
    with Cluster.start(f"engine-{os.getpid()}", nodes=1, gpus_per_node=4, audit_log=True) as cluster:
        release = Release(cluster, operator_image())
        make_namespace(cluster, NAMESPACE)
        release.install()
        yield release


@pytest.fixture(scope="package")
def leaking_package(package: Path) -> Path:
    """Our package, and beside it the connector that leaks."""
    shutil.copy(Path(__file__).parent.with_name("leaking_blocks.py"), package)
    return package


@pytest.fixture(scope="module")
def new_fleet(
    installed: Release, engine_python: Path, leaking_package: Path, tiny_llama: Path
) -> Iterator[NewFleet]:
    """Makes fleets of real engines, gone after the tests of a module."""
    made: list[RealFleet] = []

    def make() -> RealFleet:
        made.append(RealFleet(installed.cluster, installed.image, engine_python, leaking_package, tiny_llama))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()
