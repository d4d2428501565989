"""A proxy before an API server, and the trouble that it makes on demand: refusals, silence, resets, slowness.

Run as `python -m tests.chaos.proxy --listen IP:PORT --upstream URL --certificate FILE --key FILE --authority FILE`. Each
line on standard input is a JSON object with the fields of `Trouble`, and is answered by a line with what was done to
requests so far. Watches are passed on piece by piece. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import sys
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import aiohttp
import click
from aiohttp import web

HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"}
)
"""RFC 9110, section 7.6.1, and those that aiohttp writes itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What happens to requests. Shares are of all requests, from 0 to 1; seconds are seconds."""

    refused_share: float = 0.0
    """Answered with 429 and `Retry-After: retry_after_seconds`."""
    retry_after_seconds: int = 7
    reset_share: float = 0.0
    """Their connection is reset; with 1, those that stand already are reset as well."""
    black_hole: bool = False
    """Nothing is answered, and watches fall silent. What was asked meanwhile reaches the API server when it is over,
    whether or not anybody still waits for the answer: packets in flight do that."""
    gone: bool = False
    """Watches are answered with 410, half of them as an event of a stream that began well."""
    slow_seconds: float = 0.0
    """Each request waits so long before it is passed on."""

    def __post_init__(self) -> None:
        for share in (self.refused_share, self.reset_share):
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"a share lies between 0 and 1: {share}")


@dataclass(slots=True)
class Counts:
    """Requests so far, by what became of them."""

    passed: int = 0
    refused: int = 0
    reset: int = 0
    swallowed: int = 0
    gone: int = 0
    slowed: int = 0
    abandoned: int = 0
    """Their clients had gone away before the answer was complete."""
    broken: int = 0
    """The API server broke them off, or was not there."""


class Proxy:
    """Serves by `handle`; `trouble` may change at any time."""

    def __init__(self, upstream: str, session: aiohttp.ClientSession, draw: random.Random) -> None:
        self.counts = Counts()
        self._upstream = upstream.rstrip("/")
        self._session = session
        self._draw = draw
        self._trouble = Trouble()
        self._clear = asyncio.Event()
        self._clear.set()
        self._open: set[asyncio.Transport] = set()

    @property
    def trouble(self) -> Trouble:
        return self._trouble

    def make(self, trouble: Trouble) -> None:
        """This trouble, from now on."""
        self._trouble = trouble
        if trouble.black_hole:
            self._clear.clear()
        else:
            self._clear.set()
        if trouble.reset_share >= 1.0:
            for transport in list(self._open):
                transport.abort()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        self._open.add(transport)
        try:
            return await self._answer(request, transport)
        except ConnectionResetError:
            return web.Response(status=502)  # nobody is there to read it
        finally:
            self._open.discard(transport)

    async def _answer(self, request: web.Request, transport: asyncio.Transport) -> web.StreamResponse:
        trouble, luck = self._trouble, self._draw.random()
        if trouble.black_hole:
            self.counts.swallowed += 1
            body = await request.read()
            await self._clear.wait()
            return await self._pass(request, body)
        if trouble.slow_seconds:
            self.counts.slowed += 1
            await asyncio.sleep(trouble.slow_seconds)
        if luck < trouble.refused_share:
            self.counts.refused += 1
            return _status(429, "TooManyRequests", {"Retry-After": str(trouble.retry_after_seconds)})
        if luck < trouble.refused_share + trouble.reset_share:
            self.counts.reset += 1
            transport.abort()
            raise ConnectionResetError("reset on purpose")
        if trouble.gone and _is_watch(request):
            self.counts.gone += 1
            return _status(410, "Expired", {}) if self.counts.gone % 2 else await self._expired(request)
        return await self._pass(request, await request.read())

    async def _pass(self, request: web.Request, body: bytes) -> web.StreamResponse:
        """Ask the API server, and hand its answer on as it comes."""
        self.counts.passed += 1
        try:
            async with self._session.request(
                request.method,
                self._upstream + request.raw_path,
                headers=_kept(request.headers.items()),
                data=body or None,
                allow_redirects=False,
            ) as answer:
                return await self._hand_on(request, answer)
        except aiohttp.ClientError as error:
            self.counts.broken += 1
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("broken off by the API server") from error

    async def _hand_on(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers.items()))
        try:
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await self._clear.wait()
                await response.write(piece)
            await response.write_eof()
        except ConnectionResetError:
            self.counts.abandoned += 1
        return response

    async def _expired(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        event = {"type": "ERROR", "object": _status_object(410, "Expired")}
        await response.write(json.dumps(event).encode() + b"\n")
        await response.write_eof()
        return response


def _is_watch(request: web.Request) -> bool:
    return request.query.get("watch") in ("1", "true")


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in HOP_BY_HOP}


def _status_object(code: int, reason: str) -> dict[str, Any]:
    """As the API server says it (Kubernetes API conventions, "Response Status Kind")."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the proxy of the chaos suite says so",
        "reason": reason,
        "code": code,
    }


def _status(code: int, reason: str, headers: dict[str, str]) -> web.Response:
    return web.json_response(_status_object(code, reason), status=code, headers=headers)


def parse_trouble(line: str) -> Trouble:
    """The trouble of one line of JSON. Raises ValueError for anything else, a field that is not known included."""
    said = json.loads(line)
    known = {field.name for field in fields(Trouble)}
    if not isinstance(said, dict) or set(said) - known:
        raise ValueError(f"expected an object with some of {sorted(known)}: {line.strip()}")
    return Trouble(**said)


async def runner_of(proxy: Proxy) -> web.AppRunner:
    """An aiohttp runner that hands every request to `proxy`, ready for a site."""
    app = web.Application(client_max_size=16 << 20)
    app.router.add_route("*", "/{anything:.*}", proxy.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    return runner


def new_session(trust: ssl.SSLContext | bool = True) -> aiohttp.ClientSession:
    """A client without limits of its own, which leaves bodies as they are."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trust, limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        auto_decompress=False,
    )


async def _serve(host: str, port: int, upstream: str, pair: tuple[str, str], authority: str) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*pair)
    async with new_session(ssl.create_default_context(cafile=authority)) as session:
        proxy = Proxy(upstream, session, random.Random(0))
        runner = await runner_of(proxy)
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        print(json.dumps(asdict(proxy.counts)), flush=True)
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
        )
        while line := await commands.readline():
            proxy.make(parse_trouble(line.decode()))
            print(json.dumps(asdict(proxy.counts)), flush=True)
        await runner.cleanup()


@click.command()
@click.option("--listen", required=True, help="IP:PORT")
@click.option("--upstream", required=True, help="URL of the API server.")
@click.option("--certificate", required=True, type=click.Path(exists=True))
@click.option("--key", required=True, type=click.Path(exists=True))
@click.option("--authority", required=True, type=click.Path(exists=True), help="Who signed the API server's.")
def main(listen: str, upstream: str, certificate: str, key: str, authority: str) -> None:
    """Stand before an API server and make trouble as told on standard input."""
    host, _, port = listen.rpartition(":")
    asyncio.run(_serve(host, int(port), upstream, (certificate, key), authority))


if __name__ == "__main__":
    main()
