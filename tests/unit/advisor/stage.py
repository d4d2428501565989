"""Pools under simulated traffic: real pages of the simulated engine, in virtual time."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kintsugi.core.advisor.look import traffic_reader
from kintsugi.core.advisor.settings import PoolSettings, Setting
from kintsugi.core.advisor.traffic import Glance, PoolTraffic, glance, pool_traffic
from kintsugi.core.catalog.entities import Model
from kintsugi.core.snapshot import Page
from kintsugi.testing.engine import EngineShape, SimulatedEngine

Lengths = Callable[[random.Random], tuple[int, int]]


def fixed(prompt: int, answer: int) -> Lengths:
    """Every request the same."""
    return lambda _: (prompt, answer)


@dataclass
class Load:
    """Requests a second for each engine, evenly spaced, and how long they are."""

    rate: float
    lengths: Lengths
    seconds: float = 120.0
    every: float = 5.0
    seed: int = 1
    warm: float = 30.0
    """Seconds before the first look."""


@dataclass
class Stage:
    """Engines of one pool, looked at while a load runs."""

    load: Load
    shape: EngineShape = field(default_factory=EngineShape)
    engines: int = 1
    ranks: int = 1
    pool: str = "main"

    def glances(self) -> list[Glance]:
        reader = traffic_reader()
        return [
            glance(reader, f"{self.pool}-{n}", page) for n in range(self.engines) for page in self.pages(n)
        ]

    def traffic(self) -> PoolTraffic:
        return pool_traffic(self.pool, self.glances())

    def pages(self, number: int) -> Sequence[Page]:
        """What one engine's page was at each look."""
        load = self.load
        engine = SimulatedEngine(shape=self.shape, seed=load.seed + number, ranks=self.ranks)
        chance = random.Random(load.seed + number)
        pages: list[Page] = []
        arrival, look = 0.0, load.warm
        end = load.warm + load.seconds
        while look <= end:
            if arrival <= look:
                prompt, answer = load.lengths(chance)
                engine.submit(arrival, prompt, answer)
                arrival += 1 / load.rate
            else:
                pages.append(Page(engine.page(look), look))
                look += load.every
        return pages


def settings(
    name: str = "main",
    *,
    sequences: float | None = 64,
    batched: float | None = 8192,
    utilization: float | None = None,
    replicas: int = 1,
    max_tokens: int | None = None,
    model: Model | None = None,
    origin: str = "spec.engine.args",
) -> PoolSettings:
    """What is in force for a pool of a named-pools manifest."""

    def said(value: float | None) -> Setting | None:
        return None if value is None else Setting(value, origin)

    return PoolSettings(
        name=name,
        path="spec.pools[0]",
        replicas=replicas,
        replicas_path="spec.pools[0].replicas",
        max_tokens=max_tokens,
        sequences=said(sequences),
        batched_tokens=said(batched),
        memory_utilization=said(utilization),
        model=model,
    )
