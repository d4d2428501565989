"""The engine's HTTP server: the OpenAI-compatible API, `/health`, `/metrics`, and the admin port beside it."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web

from kintsugi.testing.engine.admin import admin_application
from kintsugi.testing.engine.faults import (
    EngineDead,
    Fault,
    ForgottenAdapters,
    MetricsError,
    MetricsTimeout,
    SilentServer,
    SlowStart,
)
from kintsugi.testing.engine.generation import Generation
from kintsugi.testing.engine.journal import Journal
from kintsugi.testing.engine.live import LiveEngine
from kintsugi.testing.engine.openai import CHAT, COMPLETIONS, ApiError
from kintsugi.testing.engine.settings import ServerSettings
from kintsugi.testing.engine.simulated import SimulatedEngine
from kintsugi_engine.contract import RECORD_PATH

VERSION = "0.32.0"
"""The vLLM version that the page and the protocol follow."""
_BODY_LIMIT = 64 * 2**20
_UNCOUNTED = frozenset({RECORD_PATH, "/metrics", "/health", "/ping", "/version", "/load"})
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


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
        self._generation = Generation(settings, self.live)
        self._runners: list[web.AppRunner] = []
        self._sockets: dict[str, socket.socket] = {}
        self._urls: dict[str, str] = {}
        self._late: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._crashed = asyncio.Event()

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self, faults: tuple[Fault, ...] = ()) -> None:
        """Take the ports and listen; with a `slowStart` among `faults` the API port refuses until it is over.

        Raises OSError when a port is taken.
        """
        self._bind("api", self.settings.host, self.settings.port)
        if self.settings.admin_port is not None:
            self._bind("admin", self.settings.admin_host, self.settings.admin_port)
            await self._listen(admin_application(self), "admin")
        self.journal.note(
            "starting",
            url=self.url,
            admin_url=self._urls.get("admin"),
            faults=[one.document() for one in faults],
        )
        for fault in faults:
            self.live.inject(fault)
        slow = self.engine.faults.get(SlowStart, self.live.now)
        if slow and not slow.port_open:
            self._late = asyncio.ensure_future(self._open_late(slow.seconds))
        else:
            await self._open()

    def _bind(self, which: str, host: str, port: int) -> None:
        self._sockets[which] = bound = _bound(host, port)
        self._urls[which] = f"http://{host}:{bound.getsockname()[1]}"

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
        self._ending = asyncio.ensure_future(self.stop())
        self._crashed.set()

    async def ended(self) -> None:
        """Wait until a crash fault has ended the engine and its ports are closed."""
        await self._crashed.wait()
        if self._ending:
            await self._ending

    @property
    def url(self) -> str:
        """Where the API answers, without a trailing slash."""
        return self._urls["api"]

    @property
    def admin_url(self) -> str:
        """Where faults are switched. Raises KeyError without an admin port."""
        return self._urls["admin"]

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
        application.router.add_post(COMPLETIONS, self._generation.answer)
        application.router.add_post(CHAT, self._generation.answer)
        application.router.add_get("/v1/models", self._models)
        application.router.add_get("/health", self._health)
        application.router.add_get("/ping", self._health)
        application.router.add_get("/version", self._version)
        application.router.add_get("/load", self._load)
        application.router.add_get("/metrics", self._metrics)
        if self.engine.telemetry:
            application.router.add_get(RECORD_PATH, self._record)
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
        if (
            key
            and request.path.startswith(("/v1", "/kintsugi"))
            and request.headers.get("Authorization") != f"Bearer {key}"
        ):
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
        if not self.live.holds(ForgottenAdapters):
            parent = self.settings.served_names[0]
            models += [
                {"id": name, "object": "model", "owned_by": "vllm", "root": name, "parent": parent}
                for name in self.settings.adapters
            ]
        return web.json_response({"object": "list", "data": models})

    async def _record(self, request: web.Request) -> web.Response:
        return web.json_response({"ranks": self.live.record()})

    async def _metrics(self, request: web.Request) -> web.Response:
        await self.live.unless(MetricsTimeout)
        if fault := self.engine.faults.get(MetricsError, self.live.now):
            return web.Response(status=fault.status, text="metrics are not available\n")
        return web.Response(
            body=self.live.page().encode(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )


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
