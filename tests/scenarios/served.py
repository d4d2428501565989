"""A fleet whose engines are served over HTTP: the operator reads them by its own adapter, in simulated time.

What each engine does is still a `FakeEngines` behaviour, and `rewrite` may change its page; but every page, canary and
question goes through a socket on loopback, one port a pod. The clock is simulated, so that an hour costs seconds.
"""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from kintsugi.adapters.engines import HttpEngines
from kintsugi.core.finding import InstanceVerdict
from kintsugi.core.judged import Judged
from kintsugi.core.known_answers import QUESTIONS
from kintsugi.core.plan import Plan
from kintsugi.core.snapshot import Canary, CanaryResult, Failed, Failure, Scrape, Snapshot
from kintsugi.ports.cluster import ClusterPort
from kintsugi.ports.engines import Address
from kintsugi.runtime.reconcile import Reconciler
from kintsugi.testing.cluster import FakeCluster
from kintsugi.testing.cluster.store import Json
from kintsugi.testing.rehearsal import WARM_SECONDS, SilentRecorder
from tests.scenarios.stage import PACE, Pages, Scene

PATIENCE = 0.1
"""Real seconds that stand for the 4 s of a scrape: an engine that answers here does so within milliseconds."""
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
        return await self.http.scrape([await self._served(a) for a in addresses], min(timeout, PATIENCE))

    def send_canary(self, address: Address, canary: Canary, abandon_after: float) -> None:
        (self.canaries if canary.question is None else self.questions).append(canary)
        if address.ip in self._ports:
            self.http.send_canary(self._at(address), canary, abandon_after)

    def canary_results(self) -> list[CanaryResult]:
        return self.http.canary_results()

    async def ask(self, address: Address, timeout: float) -> bool:
        return await self.http.ask(await self._served(address), timeout)

    async def close(self) -> None:
        await self.http.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def settle(self) -> None:
        """Wait until every request of ours is answered, or held by an engine that answers nobody."""
        for _ in range(2_000):
            if len(self.http._canaries) <= self._held:
                return
            await asyncio.sleep(0.001)
        raise AssertionError("a canary is neither answered nor held")

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


class Keeping(SilentRecorder):
    """Remembers what was last judged, and every verdict that each instance ever had."""

    def __init__(self) -> None:
        self.judged: Judged | None = None
        self.seen: dict[str, set[tuple[str, str]]] = {}
        self.findings: dict[str, set[str]] = {}

    def note(self, snapshot: Snapshot, judged: Judged, plan: Plan) -> None:
        self.judged = judged
        for verdict in judged.verdicts.values():
            self.seen.setdefault(verdict.name, set()).add((verdict.verdict.value, verdict.reason))
            self.findings.setdefault(verdict.name, set()).update(f.reason for f in verdict.findings)


class ServedScene(Scene):
    """A scene whose engines are read over HTTP."""

    engines: ServedEngines

    def __init__(self, nodes: int = 4, gpus: int = 1, pace: float = PACE) -> None:
        self.kept = Keeping()
        super().__init__(nodes, gpus, pace)
        self.engines = ServedEngines(self.cluster)
        self.operator = self._operator(self.cluster)

    def _operator(self, port: ClusterPort) -> Reconciler:
        return Reconciler(port, self.engines, self.cluster.clock, self.kept)

    async def step(self) -> None:
        await self.engines.settle()
        await super().step()
        await self.engines.settle()

    def verdict(self, pod: str) -> InstanceVerdict:
        """The newest verdict on `pod`."""
        assert self.kept.judged is not None
        return next(v for v in self.kept.judged.verdicts.values() if v.name == pod)

    def reasons(self, pod: str) -> set[str]:
        """Reasons of the newest findings on `pod`."""
        return {finding.reason for finding in self.verdict(pod).findings}

    def forget(self) -> None:
        """What was seen so far is over: only what follows counts."""
        self.kept.seen.clear()
        self.kept.findings.clear()

    def status_json(self) -> str:
        """The deployment's status as strict JSON, which knows no NaN."""
        raw = self.cluster.get("DeepSeekV4Deployment", self.key.namespace, self.key.name)
        return json.dumps(raw["status"], allow_nan=False)


@asynccontextmanager
async def served(
    pools: Mapping[str, int],
    nodes: int = 4,
    seconds: float = WARM_SECONDS,
    then: float | None = None,
    **spec: Any,
) -> AsyncIterator[ServedScene]:
    """A fleet that is up and warm, as `stage.warm` makes it, read over HTTP from its first page on."""
    scene = ServedScene(nodes)
    try:
        scene.deploy(dict(pools), **spec)
        await scene.run(seconds)
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


def nothing_happened(scene: ServedScene) -> None:
    """No attempt, nobody withdrawn, nobody removed."""
    assert scene.remediations() == []
    assert scene.removals() == []
    assert {scene.rotation(name) for name in scene.names_of("short")} == {"in"}
