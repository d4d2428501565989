"""Nodes that refuse every pod (S24)."""

from typing import Any

from tests.scenarios.stage import Scene, warm

MESSAGE = (
    "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu"
)

SLOWLY = 2.0
"""Seconds until a kubelet refuses a pod: S24 saw a new one every two seconds."""


def refuse_on(scene: Scene, *nodes: str) -> list[str]:
    """From now on these nodes refuse every new pod, as a kubelet with a dead GPU does; the names of the refused."""
    refused: list[str] = []
    kubelets = scene.cluster.world.kubelets
    create = kubelets._create

    def admit(pod: dict[str, Any]) -> None:
        if pod["spec"].get("nodeName") not in nodes:
            create(pod)
            return
        name = pod["metadata"]["name"]
        refused.append(name)

        def fail(held: dict[str, Any]) -> dict[str, Any]:
            held.setdefault("status", {})
            held["status"] |= {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": MESSAGE}
            return held

        store = scene.cluster.world.store
        scene.cluster.clock.call_later(SLOWLY, lambda: store.update_status("Pod", "llm", name, fail))

    kubelets._create = admit  # type: ignore[method-assign]
    return refused


async def test_s24_a_node_that_refuses_pods_is_avoided_after_two_and_no_failed_pod_is_left() -> None:
    scene = await warm({"short": 3}, nodes=4, then=5)
    victim = scene.names_of("short")[0]
    spare = next(
        f"node{n}" for n in range(1, 5) if f"node{n}" not in map(scene.node, scene.names_of("short"))
    )
    refused = refuse_on(scene, spare)
    scene.engines.change(victim, fragmentation=0.4)
    await scene.until_removed()
    done = await scene.until_done()
    assert (done.status.outcome, done.spec.remedy) == ("Cured", "Recreate")
    assert 2 <= len(refused) <= 6, "a few until the next look, and none after"
    (strike,) = scene.status.remediations.strikes
    assert (strike.node, strike.reason, strike.pools) == (spare, "NodeRefused", ("short",))
    assert strike.expires_at is not None
    assert [pod["status"]["phase"] for pod in scene.pods()] == ["Running"] * 3, "none piles up"
    assert scene.removals()[0] == victim
    assert set(scene.removals()[1:]) <= set(refused)
    assert scene.told("NodeSuspect") == 2
    said = [event.message for event in scene.cluster.events if event.reason == "NodeSuspect"]
    assert "cordon" in said[0]
    assert not any(w.kind == "Node" for w in scene.cluster.writes), "the operator cordons nothing by itself"
    assert scene.status.remediations.storms == ()
    assert scene.status.remediations.breakers == ()


async def test_s24_one_refusal_is_chance_and_avoids_nothing() -> None:
    scene = await warm({"short": 3}, nodes=4, then=5)
    spare = next(
        f"node{n}" for n in range(1, 5) if f"node{n}" not in map(scene.node, scene.names_of("short"))
    )
    refused = refuse_on(scene, spare)
    kubelets = scene.cluster.world.kubelets
    scene.edit(pools=[{"name": "short", "replicas": 4}])
    while not refused:
        await scene.step()
        scene.cluster.clock.move(0.2)
    kubelets._create = type(kubelets)._create.__get__(kubelets)  # type: ignore[method-assign]
    await scene.run(120)
    assert [(s.count, s.expires_at) for s in scene.status.remediations.strikes] == [(1, None)]
    assert len([p for p in scene.pods() if p["status"]["phase"] == "Running"]) == 4


async def test_s24_pods_that_served_and_are_refused_after_a_reboot_strike_no_node() -> None:
    scene = await warm({"short": 4}, nodes=2, gpus=4, then=5)
    for name in scene.names_of("short"):
        if scene.node(name) == "node1":
            scene.cluster.fail_pod("llm", name, "UnexpectedAdmissionError", MESSAGE)
    await scene.run(60)
    assert scene.status.remediations.strikes == (), "the device plugin was only late"
