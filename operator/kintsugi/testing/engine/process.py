"""A simulated engine as a process of its own, as it runs in a pod."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from kintsugi.testing.engine.faults import Fault
from kintsugi.testing.engine.journal import Journal, to_stdout
from kintsugi.testing.engine.live import wall_clock
from kintsugi.testing.engine.server import EngineServer
from kintsugi.testing.engine.settings import ServerSettings
from kintsugi.testing.engine.shape import EngineShape, StepCost
from kintsugi.testing.engine.simulated import SimulatedEngine


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """All that a process needs; `faults` hold from the start, `ignored` are flags that change nothing."""

    server: ServerSettings
    shape: EngineShape = field(default_factory=EngineShape)
    cost: StepCost = field(default_factory=StepCost)
    ranks: int = 1
    workers: int = 1
    fragmentation: float = 0.08
    seed: int = 0
    log_stats: bool = True
    kv_cache_metrics: bool = False
    telemetry: bool = True
    shutdown_timeout: float = 0.0
    faults: Sequence[Fault] = ()
    ignored: Sequence[str] = ()


async def run_engine(settings: ProcessSettings) -> int:
    """Serve until SIGTERM or SIGINT, then end as vLLM does; the exit code.

    On the signal new requests get 500 while `/health` stays 200; those inside may finish for `shutdown_timeout`
    seconds, the rest end with `finish_reason` abort. A hung engine waits for its clients, or for SIGKILL.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    engine = SimulatedEngine(
        model_name=settings.server.served_names[0],
        shape=settings.shape,
        cost=settings.cost,
        seed=settings.seed,
        now=loop.time(),
        epoch=wall_clock(),
        ranks=settings.ranks,
        workers=settings.workers,
        fragmentation=settings.fragmentation,
        log_stats=settings.log_stats,
        kv_cache_metrics=settings.kv_cache_metrics,
        telemetry=settings.telemetry,
    )
    journal = Journal(os.environ.get("HOSTNAME", "engine"), wall_clock, to_stdout)
    if settings.ignored:
        journal.note("ignored", flags=list(settings.ignored))
    server = EngineServer(settings.server, engine, journal)
    server.live.on_crash = _die
    await server.start(tuple(settings.faults))
    await ended.wait()
    journal.note("terminating", in_flight=server.live.request_ids(), timeout=settings.shutdown_timeout)
    whole = await server.live.drain(settings.shutdown_timeout)
    await server.stop()
    journal.note("stopped", all_finished=whole)
    return 0


def _die(code: int) -> None:
    # No clean-up at all: a crashed engine cuts its streams.
    sys.stdout.flush()
    os._exit(code)
