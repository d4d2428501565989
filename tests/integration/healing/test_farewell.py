"""What is left when a fleet, or the operator, goes: nothing stuck, nothing lost (S27)."""

import json
from collections.abc import Iterator

import pytest

from kintsugi.core import names
from tests.integration.fleet import NAME, PATIENCE, Fleet, is_ready
from tests.integration.installed import Release

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

OURS = "pods,replicasets,services,poddisruptionbudgets,configmaps,remediations,deepseekv4deployments"


@pytest.fixture
def operator(installed: Release) -> Iterator[Release]:
    """The operator, there again afterwards, whatever the test did to it."""
    yield installed
    if not installed.is_installed():
        installed.install()
    elif not installed.is_ready():
        installed.scale(1)


def left(fleet: Fleet) -> list[str]:
    """Objects of the fleet that are still there, ending ones too."""
    selector = f"{names.DEPLOYMENT_LABEL}={NAME}"
    found = fleet.kubectl("get", OURS, "-l", selector, "-o", "name", "--ignore-not-found").split()
    return found + fleet.kubectl("get", "dsv4", "-o", "name", "--ignore-not-found").split()


def delete_and_wait(fleet: Fleet) -> None:
    """Delete the deployment as a user would, and wait until nothing of it is left."""
    fleet.kubectl("delete", "dsv4", NAME, "--timeout=60s")
    fleet.sight.wait("nothing is left", lambda: not left(fleet), PATIENCE)


def test_a_deleted_fleet_is_gone_within_a_minute_though_one_instance_was_being_mended(
    operator: Release, fleet: Fleet
) -> None:
    fleet.apply({"short": 2})
    victim = fleet.wait_until_warm()[0]
    fleet.engines.inject(victim["metadata"]["name"], "hang")
    fleet.wait_until_withdrawn(victim)
    delete_and_wait(fleet)


def test_without_an_operator_a_fleet_and_its_namespace_can_be_deleted(
    operator: Release, fleet: Fleet
) -> None:
    fleet.apply({"short": 2, "long": 1})
    fleet.wait_until_ready()
    operator.scale(0)
    delete_and_wait(fleet)
    fleet.kubectl("delete", "namespace", fleet.namespace, "--timeout=60s")


def test_an_uninstalled_release_leaves_fleets_serving_and_a_new_one_takes_them_over_untouched(
    operator: Release, fleet: Fleet
) -> None:
    fleet.apply({"short": 2})
    pods = fleet.wait_until_ready()
    before = fleet.uids()
    with fleet.traffic(short=3) as sent:
        operator.uninstall()
        assert operator.cluster.get("crd", f"{names.DEPLOYMENT_PLURAL}.{names.GROUP}"), "the CRDs stay"
        kept = json.loads(fleet.kubectl("get", "replicasets,services", "-o", "json"))["items"]
        assert {one["kind"] for one in kept} == {"ReplicaSet", "Service"}
        assert not any(one["metadata"].get("deletionTimestamp") for one in kept)
        at_uninstall = len(sent)
        fleet.sight.wait("requests are answered", lambda: len(sent) > at_uninstall + 10, PATIENCE)
        assert fleet.uids() == before

        operator.install()
        seen_before = len(fleet.sight.seen("deepseekv4deployments"))
        fleet.kubectl("annotate", "dsv4", NAME, f"{names.PAUSE_ANNOTATION_PREFIX}maintenance=yes")
        fleet.sight.wait(
            "the new operator answers for the fleet",
            lambda: fleet.condition("HealingAllowed").get("reason") == "Paused",
            PATIENCE,
        )
        assert len(fleet.sight.seen("deepseekv4deployments")) > seen_before
    assert [one.error for one in sent if one.error] == []
    assert fleet.uids() == before
    assert all(is_ready(fleet.sight.now("pods")[pod["metadata"]["name"]]) for pod in pods)
    assert fleet.ended() == set()


def test_kubernetes_itself_replaces_a_lost_engine_while_no_operator_runs(
    operator: Release, fleet: Fleet
) -> None:
    fleet.apply({"short": 2})
    lost, kept = fleet.wait_until_ready()
    operator.scale(0)
    fleet.kubectl("delete", "pod", lost["metadata"]["name"], "--wait=false")
    fleet.sight.wait("it is gone", lambda: lost["metadata"]["uid"] not in fleet.uids(), PATIENCE)
    fleet.wait_until_ready()
    assert kept["metadata"]["uid"] in fleet.uids()
    operator.scale(1)
