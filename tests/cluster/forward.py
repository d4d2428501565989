"""A listener on 127.0.0.1 that dials an address inside a cluster's network namespace.

Run as `python -m tests.cluster.forward FD HOST PORT` within the namespace; FD is a listening socket that was made
outside it. A socket stays in the namespace in which it was made, so this one process stands in both.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from pathlib import Path

from tests.cluster.paths import REPOSITORY
from tests.cluster.processes import Process, inside, spawn

_PIECE = 1 << 16


def listen() -> socket.socket:
    """A socket on a free port of 127.0.0.1, to be handed to `start`."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("127.0.0.1", 0))
        made.listen(128)
    except OSError:
        made.close()
        raise
    return made


def start(listener: socket.socket, netns: str, host: str, port: int, log: Path) -> Process:
    """Forward from `listener` to `host`:`port` in `netns` until the returned process is ended; closes `listener`."""
    descriptor = listener.fileno()
    argv = [sys.executable, "-m", "tests.cluster.forward", str(descriptor), host, str(port)]
    with listener:
        return spawn(inside(netns, argv), log, cwd=REPOSITORY, pass_fds=(descriptor,))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    with contextlib.suppress(ConnectionError, OSError):
        if writer.can_write_eof():
            writer.write_eof()


async def _serve(listener: socket.socket, host: str, port: int) -> None:
    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError as refusal:
            print(f"{host}:{port}: {refusal}", flush=True)
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            far_writer.close()
            writer.close()

    server = await asyncio.start_server(connection, sock=listener)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3])))
