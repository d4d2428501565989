"""A Prometheus server over HTTP whose every answer a scenario decides; it is asked by the operator's own adapter."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from kintsugi.adapters.prometheus_live import PrometheusLive
from kintsugi.ports.cluster import ClusterPort
from kintsugi.runtime.measuring import Measuring
from kintsugi.runtime.reconcile import Reconciler
from kintsugi.testing.rehearsal import WARM_SECONDS
from tests.scenarios.served import ServedScene

Series = tuple[str, Mapping[str, str], str]
"""Name, further labels, and the value as Prometheus writes it."""


class MeasuredScene(ServedScene):
    """A scene with a Prometheus server; `says` gives its series for a pod, or `status` an error for everything."""

    def __init__(self, nodes: int = 4, gpus: int = 1) -> None:
        self.measuring: Measuring | None = None
        self.says: Callable[[str], list[Series]] = lambda pod: []
        self.status_code = 200
        self.asked = 0
        super().__init__(nodes, gpus)

    def _operator(self, port: ClusterPort) -> Reconciler:
        clock = self.cluster.clock
        self.measuring = Measuring(PrometheusLive(clock.mono), clock)
        return Reconciler(port, self.engines, clock, self.kept, self.measuring)

    async def step(self) -> None:
        await super().step()
        assert self.measuring is not None
        for asked in list(self.measuring._asked.values()):
            if asked.task is not None:
                await asyncio.wait([asked.task], timeout=20)

    async def answer(self, request: web.Request) -> web.Response:
        """What `/api/v1/query` gives."""
        self.asked += 1
        if self.status_code != 200:
            return web.Response(status=self.status_code, text="service unavailable")
        result: list[dict[str, Any]] = [
            {
                "metric": {"__name__": name, "namespace": self.key.namespace, "pod": pod, **labels},
                "value": [self.cluster.clock.now(), value],
            }
            for pod in self.names_of("short")
            for name, labels, value in self.says(pod)
        ]
        body = {"status": "success", "data": {"resultType": "vector", "result": result}}
        return web.Response(text=json.dumps(body), content_type="application/json")


@asynccontextmanager
async def measured(
    pools: Mapping[str, int], nodes: int = 4, then: float | None = None, **spec: Any
) -> AsyncIterator[MeasuredScene]:
    """A fleet that is up and warm, read over HTTP, with a Prometheus server beside it."""
    scene = MeasuredScene(nodes)
    app = web.Application()
    app.router.add_route("*", "/api/v1/query", scene.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        pace = {"scrapeIntervalSeconds": int(scene.pace), "prometheus": {"url": url}}
        scene.deploy(dict(pools), monitoring=pace, **spec)
        await scene.run(WARM_SECONDS)
        if then is not None:
            scene.pace = then
            scene.edit(monitoring={**pace, "scrapeIntervalSeconds": int(then)})
            await scene.run(then)
        scene.forget()
        yield scene
    finally:
        await scene.engines.close()
        assert scene.measuring is not None
        await scene.measuring.close()
        await runner.cleanup()
