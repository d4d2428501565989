"""A fleet whose engines are served over HTTP: the operator reads them by its own adapter, in simulated time.

What each engine does is still a `FakeEngines` behaviour, and `rewrite` may change its page; but every page, canary and
question goes through a socket on loopback, one port a pod. The clock is simulated, so that an hour costs seconds.
"""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from kintsugi.adapters.engines import HttpEngines
from kintsugi.core.known_answers import QUESTIONS
from kintsugi.core.snapshot import Canary, CanaryResult, Failed, Failure, Scrape
from kintsugi.ports.engines import Address
from kintsugi.testing.cluster import FakeCluster
from kintsugi.testing.cluster.store import Json
from kintsugi.testing.rehearsal import WARM_SECONDS
from tests.frozen import copied
from tests.scenarios.stage import PACE, Pages
from tests.scenarios.watched import WatchedScene

PATIENCE = 0.1
"""Real seconds that stand for the 4 s of a scrape where no page may come."""
_NAMES = {question.prompt: question.name for question in QUESTIONS}


class ServedEngines(Pages):
    """`ports.engines.EnginePort`: `HttpEngines`, and behind it one server for all pods."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.mono = cluster.clock.mono
        self.http = HttpEngines(self.mono)
        self.status: dict[str, int] = {}
        """By pod name: `/metrics` is answered with this status."""
        self.on_canary: dict[str, Callable[[], None]] = {}
        """By pod name: what happens when one of our requests reaches it."""
        self.on_page: dict[str, Callable[[web.Request, str], Awaitable[web.StreamResponse]]] = {}
        """By pod name: how its page, which is given, is sent."""
        self.pages_served = 0
        self._runner: web.AppRunner | None = None
        self._ports: dict[str, int] = {}
        self._ips: dict[int, str] = {}
        self._held = 0
        self._changed = asyncio.Event()

    def change(self, pod: str, namespace: str | None = None, **changes: Any) -> None:
        super().change(pod, namespace, **changes)
        self._changed.set()
        self._changed = asyncio.Event()

    async def scrape(self, addresses: Sequence[Address], timeout: float) -> list[Scrape]:
        served = [(await self._served(address), self._patience(address, timeout)) for address in addresses]
        pages = await asyncio.gather(*(self.http.scrape([address], most) for address, most in served))
        return [page for (page,) in pages]

    def send_canary(self, address: Address, canary: Canary, abandon_after: float) -> None:
        (self.canaries if canary.question is None else self.questions).append(canary)
        if address.ip in self._ports:
            self.http.send_canary(self._at(address), canary, abandon_after)

    def canary_results(self) -> list[CanaryResult]:
        return self.http.canary_results()

    async def ask(self, address: Address, timeout: float) -> bool:
        return await self.http.ask(await self._served(address), timeout)

    async def close(self) -> None:
        """No connection and no server any more; the next page is read through others."""
        await self.http.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None
        self._ports.clear()
        self._ips.clear()

    async def settle(self) -> None:
        """Wait until every request of ours is answered, or held by an engine that answers nobody."""
        for _ in range(2_000):
            if len(self.http._canaries) <= self._held:
                return
            await asyncio.sleep(0.001)
        raise AssertionError("a canary is neither answered nor held")

    def _patience(self, address: Address, timeout: float) -> float:
        """Real seconds: an engine that will answer is waited for, however busy the machine is."""
        pod = self._by_ip().get(address.ip)
        engine = None if pod is None else self._engine(pod)
        if pod is None or engine is None or not self._cluster.reachable(pod):
            return min(timeout, PATIENCE)
        odd = pod["metadata"]["name"] in self.on_page
        quiet = engine.behaviour.silent or engine.behaviour.failure is not None
        return min(timeout, PATIENCE) if odd or quiet else timeout

    def _at(self, address: Address) -> Address:
        return Address("127.0.0.1", self._ports[address.ip], address.api_key, address.model)

    async def _served(self, address: Address) -> Address:
        if self._runner is None:
            app = web.Application(client_max_size=2**22)
            app.router.add_get("/metrics", self._metrics)
            app.router.add_post("/v1/completions", self._completion)
            self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await self._runner.setup()
        if address.ip not in self._ports:
            listener = socket.create_server(("127.0.0.1", 0))
            await web.SockSite(self._runner, listener).start()
            port = listener.getsockname()[1]
            self._ports[address.ip], self._ips[port] = port, address.ip
        return self._at(address)

    def _pod(self, request: web.Request) -> Json:
        assert request.transport is not None
        port = request.transport.get_extra_info("sockname")[1]
        return self._by_ip()[self._ips[port]]

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        pod = self._pod(request)
        self.pages_served += 1
        scrape = self._scrape(pod)
        if status := self.status.get(pod["metadata"]["name"]):
            return web.Response(status=status)
        if not isinstance(scrape, Failed):
            odd = self.on_page.get(pod["metadata"]["name"])
            return web.Response(text=scrape.text) if odd is None else await odd(request, scrape.text)
        if scrape.failure is Failure.HTTP_ERROR:
            return web.Response(status=500)
        if scrape.failure is not Failure.REFUSED:
            await asyncio.sleep(60)
        if request.transport is not None:
            request.transport.close()
        return web.Response(status=503)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        pod, body = self._pod(request), await request.json()
        name = pod["metadata"]["name"]
        if name in self.on_canary:
            self.on_canary[name]()
        while (engine := self._engine(pod)) is not None:
            b = engine.behaviour
            if b.canary_status != 200:
                return web.Response(status=b.canary_status)
            if not b.hung and not b.silent and b.admits:
                engine.advance(self.mono())
                engine.counters.canary(len(body["prompt"]))
                return web.json_response(self._answer_for(engine, body))
            await self._hold(request)
        raise web.HTTPServiceUnavailable

    async def _hold(self, request: web.Request) -> None:
        """Until something about the engines changes."""
        self._held += 1
        try:
            await self._changed.wait()
        finally:
            self._held -= 1

    def _answer_for(self, engine: Any, body: Mapping[str, Any]) -> Json:
        asked = _NAMES.get(tuple(body["prompt"]), "canary")
        engine.garbage_debt += engine.behaviour.garbage if asked != "canary" else 0.0
        wrong = engine.garbage_debt >= 1.0
        engine.garbage_debt -= wrong
        said = f"not {asked}" if wrong else asked
        choice: Json = {"index": 0, "text": said, "finish_reason": "length"}
        if body.get("logprobs"):
            choice["logprobs"] = {"tokens": [said], "top_logprobs": [{said: -0.01, "other": -9.0}]}
        return {"object": "text_completion", "choices": [choice]}


class ServedScene(WatchedScene):
    """A scene whose engines are read over HTTP."""

    engines: ServedEngines

    def __init__(self, nodes: int = 4, gpus: int = 1, pace: float = PACE) -> None:
        super().__init__(nodes, gpus, pace)
        self.engines = ServedEngines(self.cluster)
        self.operator = self._operator(self.cluster)

    async def step(self) -> None:
        await self.engines.settle()
        await super().step()
        await self.engines.settle()


@asynccontextmanager
async def served(
    pools: Mapping[str, int],
    nodes: int = 4,
    seconds: float = WARM_SECONDS,
    then: float | None = None,
    **spec: Any,
) -> AsyncIterator[ServedScene]:
    """A fleet that is up and warm, as `stage.warm` makes it, read over HTTP from its first page on."""

    async def once() -> ServedScene:
        scene = ServedScene(nodes)
        try:
            scene.deploy(dict(pools), **spec)
            await scene.run(seconds)
        finally:
            await scene.engines.close()
        return scene

    scene = await copied(("served", dict(pools), nodes, seconds, spec), once)
    try:
        if then is not None:
            scene.pace = then
            scene.edit(monitoring={"scrapeIntervalSeconds": int(then)})
            await scene.run(then)
        scene.forget()
        yield scene
    finally:
        await scene.engines.close()


def replaced(**values: float) -> Callable[[str], str]:
    """The engine's page with other values of some `vllm:` series."""

    def page(text: str) -> str:
        for name, value in values.items():
            text = re.sub(rf"^(vllm:{name}\{{[^}}]*\}}) \S+$", rf"\g<1> {value}", text, flags=re.MULTILINE)
        return text

    return page


def without(*parts: str) -> Callable[[str], str]:
    """The engine's page without the lines that hold one of `parts`."""
    return lambda text: "".join(
        line + "\n" for line in text.splitlines() if not any(part in line for part in parts)
    )
