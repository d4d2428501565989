"""The HTTP server: OpenAI's paths, health, metrics, and one of our own."""

import asyncio
import contextlib
import hmac
import json
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from kintsugi_engine import contract
from kintsugi_engine.native.answers import DONE, Choice, Shape, event, problem, shape
from kintsugi_engine.native.asked import Asked, understood
from kintsugi_engine.native.client import Client, Dead, Full
from kintsugi_engine.native.messages import Facts, Piece
from kintsugi_engine.native.metrics import Metrics
from kintsugi_engine.native.options import Options
from kintsugi_engine.native.refused import Refused
from kintsugi_engine.native.text import Text

BODY_BYTES: Final = 64 * 1024 * 1024
"""A prompt of a million tokens is about 8 MB as token ids."""
COMPACT_SECONDS: Final = 20.0
_OPEN_PATHS: Final = frozenset({"/health", "/ping", "/metrics", "/version"})
"""Asked by the kubelet and by the operator, without a key, as with vLLM."""

log = logging.getLogger("kintsugi.engine.native")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers requests by way of one engine."""

    def __init__(
        self,
        options: Options,
        client: Client,
        facts: Facts,
        metrics: Metrics,
        text: Text,
        defaults: Mapping[str, Any],
        created: int,
    ) -> None:
        self._options, self._client, self._facts = options, client, facts
        self._metrics, self._text, self._defaults = metrics, text, defaults
        self._created = created
        self.draining = False
        """No new requests are taken."""

    def app(self) -> web.Application:
        """The paths."""
        app = web.Application(client_max_size=BODY_BYTES, middlewares=[self._around])
        app.router.add_get("/health", self._health)
        app.router.add_get("/ping", self._health)
        app.router.add_get("/metrics", self._page)
        app.router.add_get("/version", self._version)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post(contract.COMPACT_PATH, self._compact)
        return app

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Keys, errors in OpenAI's shape, and the count of answers."""
        try:
            answer = await self._allowed(request, handler)
        except Refused as error:
            answer = _problem(400, str(error))
        except Full as error:
            answer = _problem(503, str(error))
        except Dead as error:
            answer = _problem(500, f"the engine is dead: {error}")
        except web.HTTPException as error:
            answer = _problem(error.status, error.reason or error.text or "")
        route = request.match_info.route.resource
        handler_name = route.canonical if route is not None else "none"
        if handler_name not in _OPEN_PATHS:
            self._metrics.answered(handler_name, request.method, answer.status)
        return answer

    async def _allowed(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        key = self._options.api_key
        if key and request.path not in _OPEN_PATHS:
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {key}".encode()):
                return _problem(401, "the Authorization header carries no valid key")
        return await handler(request)

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=503 if self._client.dead else 200)

    async def _page(self, _: web.Request) -> web.StreamResponse:
        page = self._metrics.page()
        return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _version(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"version": "native", "architecture": self._facts.architecture})

    async def _models(self, _: web.Request) -> web.StreamResponse:
        names = self._options.served_names
        entry = {
            "object": "model",
            "created": self._created,
            "owned_by": "kintsugi",
            "root": self._options.model,
        }
        listed = [entry | {"id": name, "max_model_len": self._facts.max_tokens} for name in names]
        return web.json_response({"object": "list", "data": listed})

    async def _compact(self, _: web.Request) -> web.StreamResponse:
        try:
            done = await self._client.compact(COMPACT_SECONDS)
        except TimeoutError:
            return _problem(504, f"the engine gave no answer within {COMPACT_SECONDS:g} s")
        except Dead as error:
            return _problem(503, f"the engine is dead: {error}")
        ranks = []
        if done.reserved is not None:
            before, after = done.reserved
            ranks.append({"rank": "0", "reservedBefore": before, "reservedAfter": after})
        return web.json_response({"ranks": ranks})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=True)

    async def _complete(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        if self.draining:
            raise Full("the server is going away and takes no new requests")
        try:
            body = await request.json()
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise Refused(f"the body is no JSON: {error}") from error
        if not isinstance(body, dict):
            raise Refused("the body must be an object")
        model = body.get("model") or self._options.served_names[0]
        if model not in self._options.served_names:
            return _problem(
                404, f"model: {model!r} is not served here, but {', '.join(self._options.served_names)}"
            )
        # Tokenizing a long text takes a while: other requests go on meanwhile.
        asked = await asyncio.to_thread(understood, body, self._text, self._facts, self._defaults, chat=chat)
        told = request.headers.get("X-Request-Id") or uuid.uuid4().hex
        form = shape(("chatcmpl-" if chat else "cmpl-") + told, str(model), chat=chat)
        choices = [
            Choice(index, self._text.reader(asked.stops)) for index in range(len(asked.prompts) * asked.n)
        ]
        if asked.stream:
            return await self._stream(request, asked, form, choices)
        async with contextlib.aclosing(self._pieces(asked, choices)) as pieces:
            async for _ in pieces:
                pass
        if any(choice.finish == "error" for choice in choices):
            return _problem(500, "the model gave values that are no numbers")
        return web.json_response(form.whole(choices, _prompt_tokens(asked), self._text))

    async def _stream(
        self, request: web.Request, asked: Asked, form: Shape, choices: list[Choice]
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        async with contextlib.aclosing(self._pieces(asked, choices)) as pieces:
            try:
                first = await anext(pieces)  # a full queue is a 503, not a stream with an error in it
                await response.prepare(request)
                if form.chat:
                    for choice in choices:
                        await response.write(event(form.opening(choice)))
                await response.write(self._event(form, *first))
                async for choice, new, piece in pieces:
                    await response.write(self._event(form, choice, new, piece))
            except Dead as error:
                if not response.prepared:
                    raise
                await response.write(event(problem(500, f"the engine is dead: {error}")))
            else:
                if asked.usage:
                    await response.write(event(form.closing(choices, _prompt_tokens(asked))))
        await response.write(DONE)
        await response.write_eof()
        return response

    def _event(self, form: Shape, choice: Choice, new: str, piece: Piece) -> bytes:
        if choice.finish == "error":
            return event(problem(500, "the model gave values that are no numbers"))
        told = [each for each in piece.chosen if each.logprob is not None]
        return event(form.chunk(choice, new, told, self._text))

    async def _pieces(self, asked: Asked, choices: list[Choice]) -> AsyncGenerator[tuple[Choice, str, Piece]]:
        """(choice, its new text, the piece) of all choices, as they come. Leaving early aborts what is left."""
        found: asyncio.Queue[tuple[Choice, str, Piece] | asyncio.Task[None]] = asyncio.Queue()

        async def one(choice: Choice) -> None:
            prompt = asked.prompts[choice.index // asked.n]
            async with contextlib.aclosing(
                self._client.run(prompt, asked.sampling, asked.priority)
            ) as answer:
                async for request, piece in answer:
                    found.put_nowait((choice, choice.take(piece), piece))
                    if choice.finish and not piece.finish:
                        self._client.stopped(request)
                    if choice.finish:
                        return  # also where a stop came first: leaving aborts

        tasks = [asyncio.create_task(one(choice)) for choice in choices]
        for task in tasks:
            task.add_done_callback(found.put_nowait)
        try:
            left = len(tasks)
            while left:
                entry = await found.get()
                if isinstance(entry, asyncio.Task):
                    entry.result()
                    left -= 1
                else:
                    yield entry
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _prompt_tokens(asked: Asked) -> int:
    return sum(len(prompt) for prompt in asked.prompts)


def _problem(status: int, why: str) -> web.Response:
    return web.json_response(problem(status, why), status=status)
