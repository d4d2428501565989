"""A simulated engine over HTTP inside a test's own event loop."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from kintsugi.testing.engine.faults import Fault
from kintsugi.testing.engine.journal import Journal
from kintsugi.testing.engine.live import wall_clock
from kintsugi.testing.engine.server import EngineServer
from kintsugi.testing.engine.settings import ServerSettings
from kintsugi.testing.engine.shape import EngineShape, StepCost
from kintsugi.testing.engine.simulated import SimulatedEngine


@asynccontextmanager
async def serve_engine(
    *,
    name: str = "engine",
    model_name: str = "deepseek-v4",
    shape: EngineShape | None = None,
    cost: StepCost | None = None,
    ranks: int = 1,
    seed: int = 0,
    faults: Sequence[Fault] = (),
    settings: ServerSettings | None = None,
    log_stats: bool = True,
    telemetry: bool = True,
) -> AsyncIterator[EngineServer]:
    """Serve an engine on a free loopback port for the length of the block; `engine.url` says where."""
    shape = shape or EngineShape()
    engine = SimulatedEngine(
        model_name=model_name,
        shape=shape,
        cost=cost,
        seed=seed,
        now=asyncio.get_running_loop().time(),
        epoch=wall_clock(),
        ranks=ranks,
        log_stats=log_stats,
        telemetry=telemetry,
    )
    settings = settings or ServerSettings()
    settings = replace(
        settings,
        max_model_len=shape.max_model_len,
        served_names=(model_name, *settings.served_names),
        seed=seed,
    )
    server = EngineServer(settings, engine, Journal(name, wall_clock))
    await server.start(tuple(faults))
    try:
        yield server
    finally:
        await server.stop()
