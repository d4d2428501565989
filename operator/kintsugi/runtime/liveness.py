"""Liveness by progress: alive means that passes complete, not that a port answers (S28)."""

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

Health = Callable[[], str]
"""'' when alive, else why not."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What liveness is judged by, read when it is asked. Monotonic seconds."""

    now: Callable[[], float]
    last_completed: Callable[[], float]
    busy: Callable[[], bool]
    """Whether there is any deployment to look at, and this replica leads."""
    stuck_seconds: float

    def __call__(self) -> str:
        age = self.now() - self.last_completed()
        if self.busy() and age > self.stuck_seconds:
            return f"no pass has completed for {age:.0f} s"
        return ""


async def serve(port: int, health: Health, ready: Health, metrics: Callable[[], bytes]) -> web.AppRunner:
    """`/healthz`, `/readyz` and `/metrics` on `port`, until the runner is cleaned up. The kubelet asks from outside."""

    async def healthz(_: web.Request) -> web.Response:
        return _said(health())

    async def readyz(_: web.Request) -> web.Response:
        return _said(ready())

    async def page(_: web.Request) -> web.Response:
        return web.Response(
            body=metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()
    return runner


def _said(why: str) -> web.Response:
    return web.Response(text=why or "ok", status=503 if why else 200)
