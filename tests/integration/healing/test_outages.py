"""Trouble around the fleet, not in it: a node, the API server or all metrics gone. Nobody that is well is touched."""

import time
from collections.abc import Iterator

import pytest

from tests.cluster.kube import wait_for
from tests.integration.fleet import CALM_SPEED_UP, PATIENCE, Fleet, is_ready
from tests.integration.installed import Release

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NODE_LOST_SECONDS = 18.0
"""A lost node is NotReady after 15 s, and its pods are replaced 3 s later."""
API_OUTAGE_SECONDS = 30.0


@pytest.fixture
def lost_node(installed: Release) -> Iterator[list[str]]:
    """A list of nodes, all of which are switched on again afterwards."""
    nodes: list[str] = []
    yield nodes
    for node in nodes:
        installed.cluster.power_on(node)
    wait_for("all nodes are back", lambda: set(nodes) <= set(installed.cluster.ready_nodes()), 90)


def test_a_node_that_loses_power_costs_its_own_engine_alone(
    installed: Release, fleet: Fleet, lost_node: list[str]
) -> None:
    fleet.apply({"short": 3})
    pods = fleet.wait_until_warm()
    spared = installed.pod()["spec"]["nodeName"]
    lost = next(pod for pod in pods if pod["spec"]["nodeName"] != spared)
    node = lost["spec"]["nodeName"]
    on_it = {pod["metadata"]["uid"] for pod in pods if pod["spec"]["nodeName"] == node}
    elsewhere = fleet.uids() - on_it
    installed.cluster.power_off(node)
    lost_node.append(node)
    fleet.sight.wait(
        "the pool is whole again on the other nodes",
        lambda: len(_serving(fleet, node)) == 3,
        NODE_LOST_SECONDS + 2 * PATIENCE,
    )
    # Long enough for a second thought about the ones that are well.
    time.sleep(2 * fleet.times.hold + fleet.times.warm_up)
    assert fleet.ended() <= on_it
    assert elsewhere <= fleet.uids()
    assert len(fleet.pods()) == 3


def _serving(fleet: Fleet, without: str) -> list[str]:
    found = (pod for pod in fleet.pods() if is_ready(pod) and pod["spec"].get("nodeName") != without)
    return [pod["metadata"]["name"] for pod in found]


def test_an_api_server_that_is_gone_for_half_a_minute_harms_nobody_and_healing_goes_on_after_it(
    installed: Release, fleet: Fleet
) -> None:
    fleet.apply({"short": 2})
    fleet.wait_until_warm()
    before, restarts = fleet.uids(), installed.restarts()
    with fleet.traffic(short=3) as sent:
        installed.cluster.stop_api_server()
        try:
            time.sleep(API_OUTAGE_SECONDS)
        finally:
            installed.cluster.start_api_server()
        fleet.wait_until_ready()
        time.sleep(2 * fleet.times.hold)
    assert [one.error for one in sent if one.error] == []
    assert fleet.ended() == set()
    assert fleet.uids() == before
    assert fleet.mends() == []
    assert installed.restarts() == restarts

    victim = fleet.pods()[0]
    fleet.engines.inject(victim["metadata"]["name"], "hang")
    assert fleet.wait_until_done(2 * PATIENCE)["status"]["outcome"] == "Cured"
    assert fleet.ended() == {victim["metadata"]["uid"]}


def test_without_any_metrics_nothing_is_removed_and_the_status_says_why(fleet: Fleet) -> None:
    fleet.apply({"short": 2, "long": 2}, {"rehearsal": {"speedUp": CALM_SPEED_UP}})
    pods = fleet.wait_until_warm(calm=True)
    for pod in pods:
        fleet.engines.inject(pod["metadata"]["name"], "metricsError", status=500)
        fleet.engines.inject(pod["metadata"]["name"], "fragmentation", percent=60)
    fleet.sight.wait(
        "the data is not fresh", lambda: fleet.condition("DataFresh").get("status") == "False", PATIENCE
    )
    time.sleep(2 * fleet.times.fragmentation_window)
    assert fleet.condition("HealingAllowed")["reason"] == "NoData"
    assert {fleet.withheld(pod["metadata"]["name"]) for pod in pods} == {"noData"}
    for pod in pods:
        fleet.engines.clear(pod["metadata"]["name"])
    fleet.sight.wait(
        "the data is fresh again", lambda: fleet.condition("DataFresh").get("status") == "True", PATIENCE
    )
    time.sleep(fleet.times.hold)
    assert fleet.ended() == set()
    assert fleet.mends() == []
