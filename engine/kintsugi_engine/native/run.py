"""`kintsugi-engine native`: from the command line to a server that ends cleanly."""

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from kintsugi_engine.native.client import Client, Dead, Request, Watcher
from kintsugi_engine.native.messages import Piece, Step
from kintsugi_engine.native.metrics import Metrics
from kintsugi_engine.native.options import Options, parse
from kintsugi_engine.native.refused import Refused
from kintsugi_engine.native.server import Server
from kintsugi_engine.native.text import load_text

CLOSE_SECONDS: Final = 5.0
"""What aborted streams get to say so."""


class _Relay(Watcher):
    """Steps go to the metrics, which are made once the model is known."""

    metrics: Metrics | None = None

    def stepped(self, step: Step) -> None:
        if self.metrics is not None:
            self.metrics.stepped(step)

    def progressed(self, request: Request, piece: Piece, moment: float) -> None:
        if self.metrics is not None:
            self.metrics.progressed(request, piece, moment)

    def stopped(self, request: Request) -> None:
        if self.metrics is not None:
            self.metrics.stopped(request)

    def rejected(self) -> None:
        if self.metrics is not None:
            self.metrics.rejected()


def main(words: Sequence[str]) -> int:
    """Serve until SIGTERM. Exit code 0 after a wanted end, 1 where the model can't be served or the engine died."""
    options = parse(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    try:
        return asyncio.run(_serve(options))
    except Refused as error:
        print(f"kintsugi-engine native: {error}", file=sys.stderr)
        return 1
    except Dead as error:
        print(f"kintsugi-engine native: the engine ended while starting: {error}", file=sys.stderr)
        return 1


async def _serve(options: Options) -> int:
    listening = _listening(options)  # before the model: a port that is taken is said at once
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    relay = _Relay()
    client = Client(options, relay, lambda _: ended.set())
    reading = asyncio.create_task(asyncio.to_thread(load_text, options))
    try:
        waiting = asyncio.create_task(ended.wait())
        facts = asyncio.create_task(client.facts())
        await asyncio.wait({waiting, facts}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not facts.done():
            facts.cancel()
            return 0  # told to end before the start was over
        found = await facts  # what the engine says of the folder says more than what the tokenizer does
        text = await reading
        metrics = relay.metrics = Metrics(options.served_names[0], found)
        now = int(time.clock_gettime(time.CLOCK_REALTIME))
        server = Server(options, client, found, metrics, text, _defaults(options), now)
        # Cancelling a handler whose client is gone is what frees a slot.
        runner = web.AppRunner(server.app(), handler_cancellation=True, shutdown_timeout=CLOSE_SECONDS)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        print(
            f"kintsugi-engine native: {found.architecture} in {found.dtype} on {found.device} serves "
            f"{', '.join(options.served_names)} at port {options.port}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        await ended.wait()
        server.draining = True
        if not client.dead:
            await _drain(client, options.shutdown_timeout)
            client.abort_all()
        await runner.cleanup()
        if client.dead:
            print(f"kintsugi-engine native: {client.dead}", file=sys.stderr)
            return 1
        return 0
    finally:
        await asyncio.gather(reading, return_exceptions=True)
        listening.close()
        await client.close()


def _listening(options: Options) -> socket.socket:
    """Bound, and not listening yet: until the model is there, connections are refused, as by vLLM."""
    found = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((options.host, options.port))
        return found
    except (OSError, OverflowError) as error:
        found.close()
        raise Refused(f"--port {options.port}: {error}") from error


async def _drain(client: Client, seconds: float) -> None:
    """Wait for running requests, at most so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await client.idle.wait()


def _defaults(options: Options) -> dict[str, Any]:
    """What the model's makers recommend for sampling, as vLLM takes it, too."""
    path = Path(options.model) / "generation_config.json"
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
