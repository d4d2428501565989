"""Engines without a memory limit: what their node leaves to them, looked up seldom and waited for never."""

import asyncio
from typing import Any

import pytest

from kintsugi.adapters.kube.memory_room import NodeMemory, node_memory
from kintsugi.core.snapshot import Instance
from kintsugi.ports.errors import Forbidden
from kintsugi.runtime.memory_room import EVERY_SECONDS, MemoryRoom
from kintsugi.testing.clock import SimulatedClock
from kintsugi.testing.cluster import FakeCluster
from tests.unit.core.staging import instance

GIB = 2.0**30


def node(name: str, memory: object) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": {"memory": memory, "cpu": "8"}}}


def pod(uid: str, on: str, *containers: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"uid": uid},
        "spec": {"nodeName": on, "containers": [{"resources": c} for c in containers]},
    }


def test_a_node_leaves_what_its_other_pods_do_not_ask_for() -> None:
    found = node_memory(
        [node("n1", "100Gi"), node("n2", "1048576Ki"), node("n3", "?"), node("n4", None)],
        [
            pod("a", "n1", {"requests": {"memory": "20Gi"}}, {"limits": {"memory": "5Gi"}}),
            pod("b", "n1", {"requests": {"memory": "10Gi"}}),
            pod("c", "n1", {}),
            pod("d", "n1", {"requests": {"memory": "nonsense"}}),
        ],
    )
    assert set(found) == {"n1", "n2"}
    assert found["n1"].without("a") == 90 * GIB
    assert found["n1"].without("b") == 75 * GIB
    assert found["n1"].without("another") == 65 * GIB
    assert found["n2"].without("a") == GIB


def test_a_node_that_is_given_away_leaves_nothing_known() -> None:
    assert NodeMemory(10.0, {"other": 10.0}).without("mine") is None


class Cluster(FakeCluster):
    """Counts how often nodes are listed, and may refuse it."""

    listed = 0
    refuses = False

    async def list_nodes(self) -> list[dict[str, Any]]:
        self.listed += 1
        if self.refuses:
            raise Forbidden("nodes: list is not allowed")
        return [node("n1", "100Gi")]

    async def list_gpu_pods(self) -> list[dict[str, Any]]:
        return [pod("pod-b", "n1", {"requests": {"memory": "40Gi"}})]


async def look(room: MemoryRoom, *instances: Instance) -> list[float | None]:
    room.limited(instances)
    for _ in range(5):
        await asyncio.sleep(0)
    return [i.memory_limit for i in room.limited(instances)]


async def test_only_engines_without_a_limit_get_one_and_their_own_stays() -> None:
    room = MemoryRoom(Cluster(), SimulatedClock())
    assert await look(room, instance("pod-a"), instance("pod-b", memory_limit=GIB)) == [60 * GIB, GIB]


async def test_nobody_looks_where_every_engine_has_a_limit() -> None:
    cluster = Cluster()
    await look(MemoryRoom(cluster, SimulatedClock()), instance("pod-a", memory_limit=GIB))
    assert cluster.listed == 0


async def test_nodes_are_looked_at_every_half_hour() -> None:
    cluster, clock = Cluster(), SimulatedClock()
    room = MemoryRoom(cluster, clock)
    for _ in range(100):
        await look(room, instance("pod-a"))
        clock.move(EVERY_SECONDS / 40)
    assert cluster.listed == 3


async def test_without_the_right_to_look_no_limit_is_known_and_it_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.refuses = True
    assert await look(MemoryRoom(cluster, SimulatedClock()), instance("pod-a")) == [None]
    assert any("nodes' memory not read" in record.message for record in caplog.records)
