"""Live fleets: which pods are read, what is left out and why, and that nothing is written."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kintsugi.core.snapshot import Key
from kintsugi.ports.cluster import ClusterPort
from kintsugi.ports.errors import Forbidden, Unavailable
from kintsugi.runtime.traffic import Watched, watch_traffic
from kintsugi.testing.engine import SimulatedEngine

DEPLOYMENT = {"metadata": {"namespace": "llm", "name": "chat"}, "spec": {"model": {"id": "m"}}}


def pod(
    name: str, pool: str = "main", *, revision: str = "r1", ready: bool = True, rotation: str = "in"
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {
                "kintsugi.dev/pool": pool,
                "kintsugi.dev/revision": revision,
                "kintsugi.dev/rotation": rotation,
            },
        },
        "spec": {"containers": [{"name": "engine"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


@dataclass
class Cluster:
    """Answers two lists, and has no other method: whatever else is called fails."""

    pods: Sequence[dict[str, Any]]
    deployments: Sequence[dict[str, Any]] = (DEPLOYMENT,)

    async def list_deployments(self) -> list[dict[str, Any]]:
        return list(self.deployments)

    async def list_pods(self, key: Key) -> list[dict[str, Any]]:
        return list(self.pods)


@dataclass
class Clock:
    """Time that passes only while somebody sleeps."""

    seconds: float = 0.0

    def now(self) -> float:
        return 1_790_000_000.0 + self.seconds

    def mono(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Pages:
    """The page of a simulated engine for each pod, or what goes wrong with it."""

    clock: Clock
    wrong: dict[str, Exception] = field(default_factory=dict)
    engines: dict[str, SimulatedEngine] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def read(self, namespace: str, name: str) -> str:
        self.asked.append(f"{namespace}/{name}")
        if name in self.wrong:
            raise self.wrong[name]
        engine = self.engines.setdefault(name, SimulatedEngine())
        return engine.page(self.clock.mono())


async def watch(
    pods: Sequence[dict[str, Any]], window: float = 60.0, every: float = 5.0, **wrong: Exception
) -> tuple[list[Watched], Pages]:
    clock = Clock()
    pages = Pages(clock, {name.replace("_", "-"): error for name, error in wrong.items()})
    cluster = cast(ClusterPort, Cluster(pods))
    return await watch_traffic(cluster, pages, clock, lambda _: True, window, every), pages


async def test_every_serving_engine_is_read_until_the_window_is_full() -> None:
    (seen,), pages = await watch([pod("a"), pod("b")])
    traffic = seen.traffic()["main"]
    assert [i.name for i in traffic.instances] == ["a", "b"]
    assert traffic.seconds == 60.0
    assert traffic.looks_each == 13
    assert set(pages.asked) == {"llm/a", "llm/b"}


async def test_engines_that_serve_nobody_are_left_out_and_named() -> None:
    (seen,), _ = await watch([pod("a"), pod("b", ready=False), pod("c", rotation="out")])
    traffic = seen.traffic()["main"]
    assert [i.name for i in traffic.instances] == ["a"]
    assert traffic.left_out == ("b: not Ready", "c: withdrawn from traffic")


async def test_in_the_middle_of_a_rollout_only_the_larger_part_counts() -> None:
    (seen,), _ = await watch([pod("a", revision="r1"), pod("b", revision="r2"), pod("c", revision="r2")])
    traffic = seen.traffic()["main"]
    assert [i.name for i in traffic.instances] == ["b", "c"]
    assert "rollout" in traffic.left_out[0]


async def test_an_engine_that_cannot_be_read_is_left_out_with_the_reason() -> None:
    (seen,), _ = await watch([pod("a"), pod("b")], b=Unavailable("no route to host"))
    traffic = seen.traffic()["main"]
    assert [i.name for i in traffic.instances] == ["a"]
    assert traffic.left_out == ("b: no route to host",)


async def test_a_missing_permission_ends_the_watch_at_once() -> None:
    with pytest.raises(Forbidden):
        await watch([pod("a")], a=Forbidden("pods/proxy"))


async def test_a_fleet_without_serving_engines_is_not_waited_for() -> None:
    (seen,), pages = await watch([pod("a", ready=False)])
    assert pages.clock.mono() == 0.0
    assert seen.traffic()["main"].left_out == ("a: not Ready",)


async def test_pages_are_handed_on_to_be_kept() -> None:
    clock = Clock()
    kept: list[tuple[str, str, float]] = []
    await watch_traffic(
        cast(ClusterPort, Cluster([pod("a")])),
        Pages(clock),
        clock,
        lambda _: True,
        10.0,
        5.0,
        lambda pool, name, time, text: kept.append((pool, name, time)),
    )
    assert kept == [("main", "a", 1_790_000_000.0 + t) for t in (0.0, 5.0, 10.0)]
