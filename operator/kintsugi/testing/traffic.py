"""Open-loop traffic against an OpenAI-compatible endpoint, with a record of every request.

Requests leave at their own times (Poisson or evenly spaced) whether or not earlier ones have been answered, each on
a new connection, with a unique `X-Request-Id`, and nothing is retried: what a user would have seen is what is
counted. A request has failed when it could not connect, was not answered with 200, carried an error frame, ended
without a `finish_reason` and `[DONE]`, ended by `abort`, gave fewer tokens than promised, or took too long.

As a process: `python -m kintsugi.testing.traffic --target short=http://127.0.0.1:8000 --rate 4 --report FILE`.
"""

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

_GRAIN: Final = 0.001
"""Seconds below which a departure is not waited for."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: a base URL without a path, and how many a second."""

    name: str
    url: str
    rate: float = 1.0

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"target '{self.name}': '{self.url}' is not an http URL")
        if not self.rate > 0:
            raise ValueError(f"target '{self.name}': rate must be greater than 0, not {self.rate}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send. Times in seconds; token ranges are inclusive and drawn evenly."""

    targets: tuple[Target, ...]
    prompt_tokens: tuple[int, int] = (50, 400)
    output_tokens: tuple[int, int] = (20, 60)
    poisson: bool = True
    chat: bool = False
    model: str | None = None
    api_key: str | None = None
    connect_timeout: float = 2.0
    total_timeout: float = 120.0
    max_in_flight: int = 500
    """Above it a departure is skipped and counted, so a hung fleet does not exhaust the sender."""
    bytes_per_token: int = 4
    seed: int = 0


@dataclass(slots=True)
class Record:
    """One request. Times are seconds since the epoch; `error` empty means it went well."""

    id: str
    target: str
    started: float
    expected: int
    first_token: float | None = None
    ended: float | None = None
    status: int | None = None
    error: str = ""
    got: int = 0
    """Tokens received: by the usage frame, else events."""
    chunks: int = 0
    """Events with text; under load one may hold several tokens."""
    finish_reason: str | None = None


@dataclass(slots=True)
class Summary:
    """Counts so far. `unfinished` were still running when the time to wait for them was over."""

    requests: int = 0
    succeeded: int = 0
    failed: int = 0
    in_flight: int = 0
    unfinished: int = 0
    skipped: int = 0
    failed_by_target: dict[str, int] = field(default_factory=dict)

    def count(self, record: Record) -> None:
        self.in_flight -= 1
        if record.error:
            self.failed += 1
            self.failed_by_target[record.target] = self.failed_by_target.get(record.target, 0) + 1
        else:
            self.succeeded += 1


class Traffic:
    """Sends a plan's requests. `summary` may be read while it runs; `stop` ends the sending."""

    def __init__(self, plan: Plan, on_record: Callable[[Record], None] = lambda record: None) -> None:
        if not plan.targets:
            raise ValueError("traffic needs at least one target")
        self.summary = Summary()
        self._plan = plan
        self._on_record = on_record
        self._random = random.Random(plan.seed)
        self._run_id = uuid.uuid4().hex[:8]
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Send nothing more; `run` then waits for what is under way."""
        self._stopped.set()

    async def run(self, duration: float, grace: float = 30.0) -> Summary:
        """Send for `duration` seconds or until `stop`, wait at most `grace` for what is under way."""
        timeout = aiohttp.ClientTimeout(
            total=self._plan.total_timeout, sock_connect=self._plan.connect_timeout
        )
        connector = aiohttp.TCPConnector(force_close=True, limit=0, use_dns_cache=False)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            until = asyncio.get_running_loop().time() + duration
            async with asyncio.TaskGroup() as group:
                for target in self._plan.targets:
                    group.create_task(self._depart(session, target, until))
            if self._tasks:
                await asyncio.wait(set(self._tasks), timeout=grace)
            late = set(self._tasks)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        return self.summary

    async def _depart(self, session: aiohttp.ClientSession, target: Target, until: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        number = 0
        while not self._stopped.is_set():
            due += self._random.expovariate(target.rate) if self._plan.poisson else 1.0 / target.rate
            due = min(until, due)
            if (wait := due - loop.time()) > _GRAIN:
                try:
                    async with asyncio.timeout(wait):
                        await self._stopped.wait()
                    return
                except TimeoutError:
                    pass
            if due >= until:
                return
            number += 1
            if self.summary.in_flight >= self._plan.max_in_flight:
                self.summary.skipped += 1
                continue
            self.summary.requests += 1
            self.summary.in_flight += 1
            task = asyncio.create_task(self._send(session, target, f"{target.name}-{self._run_id}-{number}"))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # -- one request -----------------------------------------------------------------------------------------

    async def _send(self, session: aiohttp.ClientSession, target: Target, request_id: str) -> None:
        expected = self._random.randint(*self._plan.output_tokens)
        record = Record(request_id, target.name, time.time(), expected)
        path, body = self._body(request_id, expected)
        headers = {"X-Request-Id": request_id}
        if self._plan.api_key:
            headers["Authorization"] = f"Bearer {self._plan.api_key}"
        try:
            async with session.post(target.url + path, json=body, headers=headers) as response:
                record.status = response.status
                if response.status == 200:
                    record.error = await self._read(response, record)
                else:
                    record.error = f"HTTP {response.status}: {(await response.text())[:200]}"
        except TimeoutError as error:
            record.error = f"timeout: {error or 'total'}"
        except (aiohttp.ClientError, OSError) as error:
            record.error = f"{type(error).__name__}: {error}"
        except asyncio.CancelledError:
            record.ended = time.time()
            record.error = "unfinished"
            self.summary.in_flight -= 1
            self.summary.unfinished += 1
            self._on_record(record)
            raise
        record.ended = time.time()
        self.summary.count(record)
        self._on_record(record)

    def _body(self, request_id: str, expected: int) -> tuple[str, dict[str, Any]]:
        tokens = self._random.randint(*self._plan.prompt_tokens)
        # The id leads, so no two prompts share a prefix by chance.
        text = (request_id + " mend the bowl with gold" * tokens)[: tokens * self._plan.bytes_per_token]
        body: dict[str, Any] = {
            "max_tokens": expected,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._plan.model:
            body["model"] = self._plan.model
        if self._plan.chat:
            return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": text}]}
        return "/v1/completions", {**body, "prompt": text}

    async def _read(self, response: aiohttp.ClientResponse, record: Record) -> str:
        """Follow the stream to its end; what was wrong with it, or the empty string."""
        done = False
        async for line in response.content:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                done = True
                break
            try:
                frame = json.loads(data)
            except ValueError:
                return f"unreadable frame: {data[:100]!r}"
            if "error" in frame:
                return f"error frame: {json.dumps(frame['error'])[:200]}"
            if usage := frame.get("usage"):
                record.got = usage["completion_tokens"]
            for choice in frame.get("choices", ()):
                if choice.get("text") or choice.get("delta", {}).get("content"):
                    record.first_token = record.first_token or time.time()
                    record.chunks += 1
                record.finish_reason = choice.get("finish_reason") or record.finish_reason
        record.got = record.got or record.chunks
        if record.finish_reason is None:
            return f"truncated stream after {record.chunks} events"
        if not done:
            return "stream without [DONE]"
        if record.finish_reason not in ("length", "stop"):
            return f"ended by {record.finish_reason}"
        if record.finish_reason == "length" and record.got < record.expected:
            return f"{record.got} tokens of {record.expected}"
        return ""


async def generate(
    plan: Plan, duration: float, *, grace: float = 30.0, on_record: Callable[[Record], None] = lambda r: None
) -> Summary:
    """Send a plan for `duration` seconds in this event loop; what became of it."""
    return await Traffic(plan, on_record).run(duration, grace)


if __name__ == "__main__":
    from kintsugi.testing.trafficcommand import traffic

    traffic()
