"""The server's side of the pipe: requests go out, their tokens come back, and a dead engine is noticed at once."""

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final

from kintsugi_engine.native import process
from kintsugi_engine.native.messages import (
    Abort,
    Compact,
    Compacted,
    Facts,
    Failed,
    Order,
    Piece,
    Report,
    Sampling,
    Step,
    Stop,
    Submit,
)  # fmt: skip
from kintsugi_engine.native.options import Options
from kintsugi_engine.native.refused import Refused

KILL_SECONDS: Final = 3.0
"""How long the engine may take to end when told to, before it is killed."""


class Full(Exception):
    """As many requests run and wait as may."""


class Dead(Exception):
    """The engine ended."""


@dataclass(slots=True)
class Request:
    """One request as the server sees it. Moments are monotonic seconds, 0 before they come."""

    id: int
    tokens: tuple[int, ...]
    sampling: Sampling
    arrived: float
    admitted: float = 0.0
    first: float = 0.0
    last: float = 0.0
    made: int = 0
    pieces: asyncio.Queue[Piece | None] = field(default_factory=asyncio.Queue)


class Watcher:
    """What wants to know of every step; the metrics are one. The default knows nothing."""

    def stepped(self, step: Step) -> None: ...
    def progressed(self, request: Request, piece: Piece, moment: float) -> None: ...
    def rejected(self) -> None: ...
    def stopped(self, request: Request) -> None: ...


class Client:
    """One engine process. To be used within one event loop."""

    def __init__(self, options: Options, watcher: Watcher, on_death: Callable[[str], None]) -> None:
        self._options, self._watcher, self._on_death = options, watcher, on_death
        self._ids = itertools.count(1)
        self._open: dict[int, Request] = {}
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._compacting: list[asyncio.Future[Compacted]] = []
        self._facts: asyncio.Future[Facts] = asyncio.get_running_loop().create_future()
        self.dead = ""
        """Why the engine is no more, '' while it is."""
        self.stepped_at = time.monotonic()
        """Moment of the engine's last word."""
        self.idle = asyncio.Event()
        """Set while nothing runs or waits."""
        self.idle.set()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=process.main, args=(theirs, options), name="engine", daemon=True
        )
        self._process.start()
        theirs.close()
        os.set_blocking(self._pipe.fileno(), True)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe.fileno(), self._read)
        self._sender = threading.Thread(target=self._send, name="orders", daemon=True)
        self._sender.start()

    @property
    def open(self) -> int:
        """Requests that run or wait."""
        return len(self._open)

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._process.pid or 0

    async def facts(self) -> Facts:
        """What is known once the model is loaded. Raises Refused or Dead where it never is."""
        return await asyncio.shield(self._facts)

    async def run(
        self, tokens: tuple[int, ...], sampling: Sampling, priority: int = 0
    ) -> AsyncGenerator[tuple[Request, Piece]]:
        """The pieces of one request, to its end. Leaving early aborts it and frees its slot.

        Raises Full at the limit of the queue, Dead where the engine ends.
        """
        if self.dead:
            raise Dead(self.dead)
        if self.open >= self._options.max_num_queued_reqs:
            self._watcher.rejected()
            raise Full(f"{self.open} requests run and wait, and no more may (--max-num-queued-reqs)")
        request = Request(next(self._ids), tokens, sampling, time.monotonic())
        self._open[request.id] = request
        self.idle.clear()
        self._orders.put(Submit(request.id, tokens, sampling, priority))
        try:
            while True:
                piece = await request.pieces.get()
                if piece is None:
                    raise Dead(self.dead)
                yield request, piece
                if piece.finish:
                    return
        finally:
            if self._open.pop(request.id, None) is not None:
                self._orders.put(Abort(request.id))
            if not self._open:
                self.idle.set()

    def stopped(self, request: Request) -> None:
        """A stop text came: the answer is whole, whatever the engine would go on to say."""
        self._watcher.stopped(request)

    async def compact(self, timeout: float) -> Compacted:
        """Bytes reserved by the GPU's allocator before and after giving cached memory back."""
        if self.dead:
            raise Dead(self.dead)
        asked: asyncio.Future[Compacted] = asyncio.get_running_loop().create_future()
        self._compacting.append(asked)
        self._orders.put(Compact())
        async with asyncio.timeout(timeout):
            return await asked

    def abort_all(self) -> None:
        """End every open request as aborted."""
        for request in list(self._open.values()):
            del self._open[request.id]
            self._orders.put(Abort(request.id))
            request.pieces.put_nowait(Piece(request.id, (), "abort"))

    async def close(self) -> None:
        """End the engine: told first, killed after `KILL_SECONDS`."""
        self._orders.put(Stop())
        self._orders.put(None)
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        await asyncio.to_thread(self._process.join, KILL_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            await asyncio.to_thread(self._process.join)

    def _send(self) -> None:
        """In a thread of its own: a full pipe must not stop the server, which reads the other end."""
        while (order := self._orders.get()) is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the reader sees the end, too
                self._pipe.send(order)

    def _read(self) -> None:
        try:
            while self._pipe.poll():
                self._take(self._pipe.recv())
        except (EOFError, ConnectionResetError):
            self._died()

    def _take(self, report: Report) -> None:
        self.stepped_at = time.monotonic()
        match report:
            case Facts():
                self._facts.set_result(report)
            case Failed() if not self._facts.done():
                self._facts.set_exception(Refused(report.why) if report.refused else Dead(report.why))
            case Failed():
                self.dead = report.why
            case Compacted():
                waiting, self._compacting = self._compacting, []
                for asked in waiting:
                    if not asked.done():
                        asked.set_result(report)
            case Step():
                self._step(report)

    def _step(self, step: Step) -> None:
        self._watcher.stepped(step)
        for id_, moment in step.admitted:
            if request := self._open.get(id_):
                request.admitted = moment
        for piece in step.pieces:
            if request := self._open.get(piece.id):
                self._watcher.progressed(request, piece, step.ended)
                if piece.finish:
                    del self._open[piece.id]
                request.pieces.put_nowait(piece)

    def _died(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self.dead = self.dead or "the engine process ended"
        if not self._facts.done():
            self._facts.set_exception(Dead(self.dead))
        for request in self._open.values():
            request.pieces.put_nowait(None)
        self._open.clear()
        for asked in self._compacting:
            if not asked.done():
                asked.set_exception(Dead(self.dead))
        self._on_death(self.dead)
