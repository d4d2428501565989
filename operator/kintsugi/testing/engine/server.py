"""The engine's HTTP server: the OpenAI-compatible API, `/health`, `/metrics`, and the admin port beside it."""

import asyncio
import json
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from kintsugi.testing.engine.admin import admin_application
from kintsugi.testing.engine.faults import (
    EngineDead,
    Fault,
    MetricsError,
    MetricsTimeout,
    SilentServer,
    SlowStart,
)
from kintsugi.testing.engine.journal import Journal
from kintsugi.testing.engine.live import LiveEngine, LiveRequest, wall_clock
from kintsugi.testing.engine.openai import (
    CHAT,
    COMPLETIONS,
    ApiError,
    Asked,
    Writer,
    bad_request,
    read_request,
)
from kintsugi.testing.engine.prefix import PrefixCache
from kintsugi.testing.engine.simulated import SimulatedEngine
from kintsugi.testing.engine.words import Words

VERSION = "0.32.0"
"""The vLLM version that the page and the protocol follow."""
_BODY_LIMIT = 64 * 2**20
_UNCOUNTED = frozenset({"/metrics", "/health", "/ping", "/version", "/load"})
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server listens and how it treats requests. Port 0 = any free one; admin_port None = no admin."""

    host: str = "127.0.0.1"
    port: int = 0
    admin_host: str = "127.0.0.1"
    admin_port: int | None = 0
    api_key: str | None = None
    served_names: tuple[str, ...] = ("deepseek-v4",)
    max_model_len: int = 131_072
    bytes_per_token: int = 4
    """A prompt of n bytes counts as n / this many tokens, rounded up."""
    natural_tokens: int = 60
    """Tokens after which the model stops by itself where the request sets no limit."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Known answers: a prompt that ends with a key is answered with its words."""
    seed: int = 0


class EngineServer:
    """A simulated engine behind HTTP. `start`, then `url`; `inject` and `clear` faults; `stop`.

    It can run in a test's own event loop: nothing in it is global, and a crash fault only closes it there.
    """

    def __init__(self, settings: ServerSettings, engine: SimulatedEngine, journal: Journal) -> None:
        self.settings = settings
        self.engine = engine
        self.journal = journal
        self.live = LiveEngine(engine, journal, settings.seed)
        self.live.on_crash = self._crash
        self.exit_code: int | None = None
        """What a crash fault ended the engine with; None while it runs."""
        self.crashed = asyncio.Event()
        self._prefixes = PrefixCache(
            engine.shape.block_size * settings.bytes_per_token, engine.shape.num_gpu_blocks
        )
        self._runners: list[web.AppRunner] = []
        self._sockets: dict[str, socket.socket] = {}
        self._late: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self, faults: tuple[Fault, ...] = ()) -> None:
        """Take the ports and listen; with a `slowStart` among `faults` the API port refuses until it is over.

        Raises OSError when a port is taken.
        """
        self._sockets["api"] = _bound(self.settings.host, self.settings.port)
        if self.settings.admin_port is not None:
            self._sockets["admin"] = _bound(self.settings.admin_host, self.settings.admin_port)
            await self._listen(admin_application(self), "admin")
        self.journal.note("starting", url=self.url, faults=[one.document() for one in faults])
        for fault in faults:
            self.live.inject(fault)
        slow = self.engine.faults.get(SlowStart, self.live.now)
        if slow and not slow.port_open:
            self._late = asyncio.ensure_future(self._open_late(slow.seconds))
        else:
            await self._open()

    async def _open_late(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.live.clear(SlowStart.name)
        await self._open()

    async def _open(self) -> None:
        await self._listen(self._application(), "api")
        self.journal.note("ready", url=self.url)

    async def _listen(self, application: web.Application, which: str) -> None:
        runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.1,
            keepalive_timeout=30,
        )
        await runner.setup()
        self._runners.append(runner)
        await web.SockSite(runner, self._sockets[which], backlog=1024).start()

    async def stop(self) -> None:
        """Close everything at once; streams are cut."""
        if self._late:
            self._late.cancel()
        self.live.stop()
        for runner in self._runners:
            await runner.cleanup()
        for one in self._sockets.values():
            one.close()

    def _crash(self, code: int) -> None:
        self.exit_code = code
        for runner in self._runners:
            if runner.server:
                for connection in list(runner.server.connections):
                    if transport := getattr(connection, "transport", None):
                        transport.abort()
        self.crashed.set()
        self._late = asyncio.ensure_future(self.stop())

    @property
    def url(self) -> str:
        """Where the API answers, without a trailing slash."""
        return self._url("api")

    @property
    def admin_url(self) -> str:
        """Where faults are switched. Raises KeyError without an admin port."""
        return self._url("admin")

    def _url(self, which: str) -> str:
        host, port = self._sockets[which].getsockname()[:2]
        return f"http://{host}:{port}"

    # -- what tests use --------------------------------------------------------------------------------------

    def inject(self, fault: Fault) -> None:
        """Switch a fault on."""
        self.live.inject(fault)

    def clear(self, name: str | None = None) -> list[str]:
        """Switch one fault, or all, off; the names of those that were on."""
        return self.live.clear(name)

    # -- HTTP ------------------------------------------------------------------------------------------------

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._around], client_max_size=_BODY_LIMIT)
        application.router.add_post(COMPLETIONS, self._generate)
        application.router.add_post(CHAT, self._generate)
        application.router.add_get("/v1/models", self._models)
        application.router.add_get("/health", self._health)
        application.router.add_get("/ping", self._health)
        application.router.add_get("/version", self._version)
        application.router.add_get("/load", self._load)
        application.router.add_get("/metrics", self._metrics)
        return application

    @web.middleware
    async def _around(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """What every path shares: faults of the whole server, the key, error bodies, the HTTP counters."""
        await self.live.unless(SilentServer)
        begun = self.live.now
        status = 200  # what an abandoned request is counted as
        try:
            response = await self._checked(request, handler)
            status = response.status
        except ApiError as error:
            status = error.status
            response = web.json_response(error.body(), status=status)
        except web.HTTPException as error:
            status = error.status
            response = web.json_response({"detail": error.reason}, status=status)
        finally:
            if request.path not in _UNCOUNTED:
                resource = request.match_info.route.resource
                handler_name = resource.canonical if resource else "none"
                size = request.content_length or 0
                self.engine.http.record(handler_name, request.method, status, self.live.now - begun, size)
        if not response.prepared and (request_id := request.headers.get("X-Request-Id")):
            response.headers["X-Request-Id"] = request_id
        return response

    async def _checked(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if self.live.holds(SlowStart):
            return web.Response(status=503)
        key = self.settings.api_key
        if key and request.path.startswith("/v1") and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=503 if self.live.holds(EngineDead) else 200)

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _load(self, request: web.Request) -> web.Response:
        return web.json_response({"server_load": len(self.live.requests)})

    async def _models(self, request: web.Request) -> web.Response:
        models = [
            {"id": name, "object": "model", "owned_by": "vllm", "max_model_len": self.settings.max_model_len}
            for name in self.settings.served_names
        ]
        return web.json_response({"object": "list", "data": models})

    async def _metrics(self, request: web.Request) -> web.Response:
        await self.live.unless(MetricsTimeout)
        if fault := self.engine.faults.get(MetricsError, self.live.now):
            return web.Response(status=fault.status, text="metrics are not available\n")
        return web.Response(
            body=self.live.page().encode(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    # -- generation ------------------------------------------------------------------------------------------

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        asked, request_id = await self._read(request)
        live, cached = self._submit(request, asked, request_id)
        words = Words(asked.prompt, self.settings.answers, corrupted=self.live.corrupts())
        writer = Writer(asked, request_id, int(wall_clock()), asked.model or self.settings.served_names[0])
        ended = "aborted"
        try:
            if asked.stream:
                response, ended = await self._stream(request, live, writer, words, cached)
                return response
            produced, reason = 0, None
            while reason is None:
                produced, reason = await self.live.further(live)
                if self._breaks(live, produced):
                    ended = "failed"
                    raise _engine_error()
            ended = "finished"
            return web.json_response(writer.whole(words.between(0, produced), reason, cached))
        finally:
            self.live.done_with(live)
            self.journal.note(ended, request_id=request_id, tokens=self.engine.produced(live.ticket))

    async def _read(self, request: web.Request) -> tuple[Asked, str]:
        request_id = request.headers.get("X-Request-Id") or uuid.uuid4().hex
        try:
            document = json.loads(await request.read())
        except ValueError as error:
            raise bad_request(f"the body is not JSON: {error}") from error
        asked = read_request(request.path, document, self.settings.bytes_per_token)
        if asked.model and asked.model not in self.settings.served_names:
            raise ApiError(404, "NotFoundError", f"The model `{asked.model}` does not exist.", "model")
        return asked, request_id

    def _submit(self, request: web.Request, asked: Asked, request_id: str) -> tuple[LiveRequest, int]:
        limit = self.settings.max_model_len
        wanted = asked.prompt_tokens + (asked.max_tokens or 1)
        if wanted > limit:
            raise bad_request(
                f"This model's maximum context length is {limit} tokens. However, you requested {wanted} tokens "
                f"({asked.prompt_tokens} in the prompt, {asked.max_tokens or 1} for the output)."
            )
        if self.live.draining:
            raise ApiError(500, "InternalServerError", "cannot schedule new futures after shutdown")
        if status := self.live.refuses():
            self.journal.note("refused", request_id=request_id, status=status)
            raise ApiError(status, "InternalServerError", "the engine failed (simulated)")
        queued = self.engine.shape.max_num_queued_reqs
        if queued is not None and self.engine.in_flight >= queued:
            self.engine.counters[0].rejected += 1
            self.journal.note("refused", request_id=request_id, status=503)
            raise ApiError(503, "ServiceUnavailableError", "too many requests are queued")
        output = min(asked.max_tokens or self.settings.natural_tokens, limit - asked.prompt_tokens)
        cached = self._prefixes.claim(asked.prompt) * self.engine.shape.block_size
        rank = request.headers.get("X-data-parallel-rank")
        try:
            live = self.live.submit(
                request_id,
                asked.prompt_tokens,
                output,
                asked.max_tokens or limit - asked.prompt_tokens,
                cached,
                int(rank) if rank else None,
            )
        except ValueError as error:
            raise bad_request(str(error)) from error
        return live, live.ticket.sequence.cached_tokens

    async def _stream(
        self, request: web.Request, live: LiveRequest, writer: Writer, words: Words, cached: int
    ) -> tuple[web.StreamResponse, str]:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.headers["X-Request-Id"] = live.request_id
        await response.prepare(request)
        if first := writer.first():
            await response.write(first)
        sent = 0
        reason = None
        while reason is None:
            produced, reason = await self.live.further(live)
            if self._breaks(live, produced):
                await response.write(writer.error(_engine_error()))
                return response, "failed"
            await response.write(writer.piece(words.between(sent, produced), reason))
            sent = produced
        await response.write(writer.last(sent, cached))
        return response, "aborted" if reason == "abort" else "finished"

    def _breaks(self, live: LiveRequest, produced: int) -> bool:
        """Whether this request fails now, by a fault; it is then counted as failed."""
        dead = self.live.holds(EngineDead)
        if dead or (live.error_after is not None and produced >= live.error_after):
            self.live.fail(live)
            return True
        return False


def _engine_error() -> ApiError:
    return ApiError(500, "InternalServerError", "the engine failed while it answered (simulated)")


def _bound(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet: connections are refused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        one.bind((host, port))
    except OSError:
        one.close()
        raise
    one.setblocking(False)
    return one
