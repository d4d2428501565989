"""Answers one generation request over HTTP: whole or as a stream, with the faults that hold."""

import json
import uuid

from aiohttp import web

from kintsugi.testing.engine.live import LiveEngine, LiveRequest, wall_clock
from kintsugi.testing.engine.openai import ApiError, Asked, Writer, bad_request, read_request
from kintsugi.testing.engine.prefix import PrefixCache
from kintsugi.testing.engine.settings import ServerSettings
from kintsugi.testing.engine.words import Words

_ENDED = {"abort": "aborted", "error": "failed"}
"""What the journal calls an ending; every other is `finished`."""


class Generation:
    """The handler of `/v1/completions` and `/v1/chat/completions`. A client that goes away aborts its request."""

    def __init__(self, settings: ServerSettings, live: LiveEngine) -> None:
        self.settings = settings
        self.live = live
        self.engine = live.engine
        self.journal = live.journal
        shape = live.engine.shape
        self._prefixes = PrefixCache(shape.block_size * settings.bytes_per_token, shape.num_gpu_blocks)

    async def answer(self, request: web.Request) -> web.StreamResponse:
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
            ended = _ENDED.get(reason, "finished")
            if reason == "error":
                raise _engine_error()
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
        if asked.model and asked.model not in (*self.settings.served_names, *self.settings.adapters):
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
            if reason == "error":
                if produced > sent:
                    await response.write(writer.piece(words.between(sent, produced), None))
                await response.write(writer.error(_engine_error()))
            else:
                await response.write(writer.piece(words.between(sent, produced), reason))
            sent = produced
        if reason != "error":
            await response.write(writer.last(sent, cached))
        return response, _ENDED.get(reason, "finished")


def _engine_error() -> ApiError:
    return ApiError(500, "InternalServerError", "the engine failed while it answered (simulated)")
