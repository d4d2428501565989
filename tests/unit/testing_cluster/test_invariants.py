"""Whatever happens to the fake cluster, what Kubernetes keeps true stays true, and it comes to rest as wanted."""

from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kintsugi.adapters.kube.parse import node_rooms, pod_gpus
from kintsugi.core import names
from kintsugi.ports.errors import NotFound
from kintsugi.testing.cluster import FakeCluster, Start, pods

NS = "llm"
NODES = ("n1", "n2", "n3")
GPUS = 8
LABELS = {names.MEMBER_LABEL: names.MEMBER}

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "scale",
                "evict",
                "force",
                "exit",
                "fail",
                "release",
                "unready",
                "off",
                "cut",
                "join",
                "cordon",
                "wait",
                "wait long",
            ]
        ),
        st.integers(0, 7),
    ),
    max_size=25,
)


def replica_set() -> dict[str, Any]:
    engine = {"name": "engine", "image": "e:1", "resources": {"limits": {names.GPU_RESOURCE: "4"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"namespace": NS, "name": "r"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [engine]}},
        },
    }


class Play:
    def __init__(self) -> None:
        self.cluster = FakeCluster(seed=3)
        self.lost: set[str] = set()
        for node in NODES:
            self.cluster.add_node(node, GPUS)
        self.cluster.on_start(lambda pod: Start(boot_seconds=5, stop_seconds=2))
        self.cluster.put(replica_set())

    async def step(self, what: str, number: int) -> None:
        held = self.cluster.all("Pod", NS)
        pod = held[number % len(held)] if held else None
        node = NODES[number % len(NODES)]
        if what == "scale":
            self.cluster.edit("ReplicaSet", NS, "r", {"spec": {"replicas": number}})
        elif what in ("off", "cut") and node not in self.lost:
            self.lost.add(node)
            (self.cluster.power_off if what == "off" else self.cluster.cut)(node)
        elif what == "join" and node in self.lost:
            self.lost.remove(node)
            self.cluster.join(node)
        elif what == "cordon":
            self.cluster.cordon(node, on=number % 2 == 0)
        elif what.startswith("wait"):
            await self.cluster.advance(number if what == "wait" else 100 * number)
        elif pod is not None:
            await self.touch(what, pod)

    async def touch(self, what: str, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        if what in ("evict", "force"):
            await self.cluster.evict(NS, meta["name"], meta["uid"], 0 if what == "force" else None)
        elif what == "release":
            patch = {"metadata": {"labels": {names.MEMBER_LABEL: None}}}
            await self.cluster.patch_pod(NS, meta["name"], meta["uid"], patch)
        elif "containerStatuses" in pod["status"] and pod["spec"]["nodeName"] not in self.lost:
            if what == "exit" and pods.phase(pod) == "Running":
                self.cluster.exit_container(NS, meta["name"], 1)
            elif what == "fail" and not pods.ended(pod):
                self.cluster.fail_pod(NS, meta["name"])
            elif what == "unready" and pods.is_ready(pod):
                self.cluster.set_ready(NS, meta["name"], False)

    def check(self) -> None:
        held = self.cluster.all("Pod", NS)
        used: dict[str, int] = {}
        for pod in held:
            if pod["spec"].get("nodeName") and not pods.ended(pod):
                used[pod["spec"]["nodeName"]] = used.get(pod["spec"]["nodeName"], 0) + pod_gpus(pod)
            assert not (pods.is_ready(pod) and pods.ended(pod))
        assert all(gpus <= GPUS for gpus in used.values())
        rooms = node_rooms(self.cluster.all("Node"), held)
        assert {room.name: GPUS - room.gpus_free for room in rooms} == {
            node: used.get(node, 0) for node in NODES
        }
        uids = [pod["metadata"]["uid"] for pod in held]
        assert len(set(uids)) == len(uids)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
async def test_no_node_is_overcommitted_and_the_count_comes_right_in_the_end(
    steps: list[tuple[str, int]],
) -> None:
    play = Play()
    for what, number in steps:
        with suppress(NotFound):  # forced deletions in the same breath
            await play.step(what, number)
        play.check()
    for node in sorted(play.lost):
        play.cluster.join(node)
    for node in NODES:
        play.cluster.cordon(node, on=False)
    await play.cluster.advance(4000)
    play.check()
    owned = [
        pod
        for pod in play.cluster.all("Pod", NS)
        if pods.active(pod) and (pods.controller(pod) or {}).get("name") == "r"
    ]
    wanted = play.cluster.get("ReplicaSet", NS, "r")["spec"]["replicas"]
    assert len(owned) == wanted
    assert play.cluster.get("ReplicaSet", NS, "r")["status"]["replicas"] == wanted
    released = [pod for pod in play.cluster.all("Pod", NS) if pods.active(pod) and pod not in owned]
    room = len(NODES) * GPUS // 4 - len(released)
    assert sum(bool(pod["spec"].get("nodeName")) for pod in owned) == min(wanted, max(0, room))


async def test_a_fleet_left_alone_makes_no_change() -> None:
    play = Play()
    await play.cluster.advance(60)
    version = play.cluster.world.store.version
    await play.cluster.advance(14 * 86_400)
    assert play.cluster.world.store.version == version
