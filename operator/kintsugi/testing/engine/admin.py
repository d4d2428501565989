"""The admin port: switch faults, read the state. Apart from the API port, so nobody mistakes one for the other."""

import json
from typing import TYPE_CHECKING

from aiohttp import web

from kintsugi.testing.engine.faults import FAULTS, FaultError, parse_fault

if TYPE_CHECKING:
    from kintsugi.testing.engine.server import EngineServer


def state(server: "EngineServer") -> dict[str, object]:
    """What `GET /simulator/state` answers: the truth, whatever `/metrics` shows."""
    engine = server.engine
    return {
        "url": server.url,
        "inFlight": server.live.request_ids(),
        "draining": server.live.draining,
        "faults": engine.faults.documents(server.live.now),
        "ranks": [
            {
                "hung": rank.hung,
                "running": rank.counters.running,
                "waiting": rank.counters.waiting,
                "kvUsage": rank.counters.kv_usage,
                "steps": rank.counters.steps,
                "promptTokens": rank.counters.prompt_tokens,
                "generationTokens": rank.counters.generation_tokens,
                "finished": rank.counters.finished,
            }
            for rank in engine.ranks
        ],
    }


def admin_application(server: "EngineServer") -> web.Application:
    """`POST /simulator/faults`, `DELETE /simulator/faults[/NAME]`, `GET /simulator/state`, `POST /simulator/compact`."""

    async def inject(request: web.Request) -> web.Response:
        try:
            fault = parse_fault(json.loads(await request.read()))
        except FaultError as error:
            return web.json_response({"error": str(error)}, status=400)
        except ValueError as error:
            return web.json_response({"error": f"the body is not JSON: {error}"}, status=400)
        server.inject(fault)
        return web.json_response(state(server))

    async def clear(request: web.Request) -> web.Response:
        name = request.match_info.get("name")
        if name is not None and name not in FAULTS:
            known = ", ".join(sorted(FAULTS))
            return web.json_response({"error": f"no fault '{name}'; there are {known}"}, status=404)
        return web.json_response({"cleared": server.clear(name)})

    async def show(request: web.Request) -> web.Response:
        return web.json_response(state(server))

    async def compact(request: web.Request) -> web.Response:
        server.live.compact()
        return web.json_response(state(server))

    application = web.Application()
    application.router.add_post("/simulator/faults", inject)
    application.router.add_delete("/simulator/faults", clear)
    application.router.add_delete("/simulator/faults/{name}", clear)
    application.router.add_get("/simulator/state", show)
    application.router.add_post("/simulator/compact", compact)
    return application
