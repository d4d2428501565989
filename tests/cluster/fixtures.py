"""pytest fixtures around a real cluster; a conftest imports them by name.

`KINTSUGI_TEST_KUBECONFIG`, or else `KUBECONFIG`, names a cluster of the user's choice. The tests write to it, so they
refuse every context that the local cluster did not make, unless `KINTSUGI_ALLOW_CONTEXT` names it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.cluster.binaries import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.kube import KubeAccess
from tests.cluster.machine import require, unsupported_because

OWN_PREFIX = "kintsugi-"
_WANT = "no local cluster: "


@dataclass(frozen=True, slots=True)
class Chosen:
    """The cluster that the environment names: a context of a kubeconfig."""

    kubeconfig: Path
    context: str


class Refused(RuntimeError):
    """The environment names a cluster that the tests must not write to; the message says how to allow it."""


def chosen(environment: Mapping[str, str]) -> Chosen | None:
    """The cluster to use instead of one of our own; None if the environment names none.

    Raises Refused for a context that is not ours and not allowed by name, or a kubeconfig that says no context.
    """
    variable = next((v for v in ("KINTSUGI_TEST_KUBECONFIG", "KUBECONFIG") if environment.get(v)), None)
    if variable is None:
        return None
    kubeconfig = Path(environment[variable])
    try:
        context = yaml.safe_load(kubeconfig.read_text()).get("current-context")
    except (OSError, yaml.YAMLError, AttributeError) as trouble:
        raise Refused(
            f"{variable}={kubeconfig} can't be read as one kubeconfig: {trouble}; without {variable} the tests start a cluster"
        ) from trouble
    if not context:
        raise Refused(f"{variable}={kubeconfig} has no current context")
    if not context.startswith(OWN_PREFIX) and environment.get("KINTSUGI_ALLOW_CONTEXT") != context:
        raise Refused(
            f"{variable} leads to the context {context!r}, which is not a local cluster of this project's. Set "
            f"KINTSUGI_ALLOW_CONTEXT={context} to let the tests write to it, or unset {variable}"
        )
    return Chosen(kubeconfig, context)


def attached(found: Chosen) -> KubeAccess:
    """The chosen cluster; as a whole `Cluster`, with faults, where it is one of ours that is up on this machine."""
    if found.context.startswith(OWN_PREFIX):
        try:
            ours = Cluster.attach(found.context.removeprefix(OWN_PREFIX))
        except LookupError:
            pass
        else:
            if ours.kubeconfig.samefile(found.kubeconfig):
                return ours
    return KubeAccess(found.kubeconfig, found.context)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[KubeAccess]:
    """A real cluster for all tests of this run: three nodes with two fake GPUs each, every write recorded.

    Tests share it: each keeps to its `namespace`, names what has none after it, and leaves nodes as they were.
    """
    found, refusal = None, ""
    try:
        found = chosen(os.environ)
    except Refused as reason:
        refusal = str(reason)
    if refusal:
        pytest.fail(
            refusal, pytrace=False
        )  # out of the handler, whose chain of errors would bury the message
    if found is not None:
        yield attached(found)
        return
    skip_if_unsupported()
    with Cluster.start(f"pytest-{os.getpid()}", nodes=3, gpus_per_node=2, audit_log=True) as ours:
        yield ours


@pytest.fixture(scope="session")
def local_cluster(cluster: KubeAccess) -> Cluster:
    """The same, where it runs on this machine and can be given faults and images; skips for a cluster elsewhere."""
    if not isinstance(cluster, Cluster):
        pytest.skip(f"the cluster of context {cluster.context!r} is not one that this machine runs")
    return cluster


@pytest.fixture
def namespace(cluster: KubeAccess) -> Iterator[str]:
    """A namespace of the test's own, deleted after it with all it holds; pods can be made in it at once."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("-n", name, "wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def skip_if_unsupported() -> None:
    """Skip, with the reason, where this machine can't run a cluster."""
    reason = unsupported_because()
    if reason is not None:
        pytest.skip(f"{_WANT}{reason}")


def wants_cluster(item: pytest.Item) -> bool:
    return {"cluster", "local_cluster"} & set(getattr(item, "fixturenames", ())) != set()


def prepare(session: pytest.Session) -> None:
    """For `pytest_collection_finish`: build what the tests will need now, outside every test's time limit."""
    if session.config.option.collectonly or not any(map(wants_cluster, session.items)):
        return
    if os.environ.get("KINTSUGI_TEST_KUBECONFIG") or os.environ.get("KUBECONFIG") or unsupported_because():
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        require(lambda text: print(text, flush=True))
        binaries(lambda text: print(text, flush=True))


def one_place(report: pytest.TestReport) -> pytest.TestReport:
    """For `pytest_runtest_makereport`: give all skips for want of a cluster one place, so that pytest lists them once."""
    if isinstance(report.longrepr, tuple) and _WANT in report.longrepr[2]:
        report.longrepr = (str(Path(__file__)), 1, report.longrepr[2])
    return report


def left_out(skipped: list[pytest.TestReport]) -> str | None:
    """The line for the end of a run that says which tests needed a cluster and had none; None if none did."""
    reasons = [report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)]
    ours = [reason.removeprefix("Skipped: ") for reason in reasons if _WANT in reason]
    return f"{len(ours)} tests on a real cluster were left out ({ours[0]})" if ours else None
