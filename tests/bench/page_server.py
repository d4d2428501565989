"""A thousand engines in one process: a `/metrics` page of 60 KB and a one-token answer, on a loopback address each.

`python -m tests.bench.page_server COUNT` prints its port once it listens, and ends when its standard input closes.
"""

import asyncio
import json
import resource
import sys
import time
from functools import partial

from kintsugi.testing.enginepage import Counters, page

PAGE_BYTES = 60_000
"""A page of a real engine of vLLM 0.32."""
STEPS_PER_SECOND = 25.0
ANSWER = json.dumps(
    {
        "id": "cmpl-1",
        "object": "text_completion",
        "choices": [{"index": 0, "text": "a", "finish_reason": "length"}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5},
    }
).encode()


def address(number: int) -> str:
    """The loopback address of engine `number` (0 to 9,999)."""
    return f"127.1.{number // 100}.{number % 100 + 1}"


class Engine:
    """One engine: its counters follow from the time. Loads differ, so that pools have something to compare."""

    def __init__(self, number: int, padding: str) -> None:
        self._running = float(1 + number % 7)
        self._rate = STEPS_PER_SECOND * (1 + number % 5 / 50)
        self._padding = padding
        self._counters = Counters()
        self._at = self._started = time.time() - 7_200
        self._advance()

    def _advance(self) -> None:
        now = time.time()
        seconds, self._at = now - self._at, now
        self._counters.process_cpu += 0.3 * seconds
        self._counters.run(seconds * self._rate, self._running, seconds, True)

    def page(self) -> bytes:
        """The page now."""
        self._advance()
        usage = 0.2 + 0.01 * self._running
        text = page(
            self._counters,
            self._started,
            0.06,
            0.0,
            running=self._running,
            waiting=0.0,
            kv_usage=usage,
        )
        return (text + self._padding).encode()


class Connection(asyncio.Protocol):
    """One request a connection, as `adapters.engines` makes them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer once the headers are whole."""
        self._heard += data
        if b"\r\n\r\n" not in self._heard:
            return
        asks = self._heard.startswith(b"GET /metrics")
        body = self._engine.page() if asks else ANSWER
        kind = "text/plain" if asks else "application/json"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._transport.write(head.encode() + body)
        self._transport.close()


async def serve(count: int) -> None:
    """Serve until standard input closes."""
    line = 'vllm:another_histogram_bucket{{engine="0",le="{}",model_name="deepseek-v4"}} 17.0\n'
    padding = "".join(line.format(n) for n in range(PAGE_BYTES // len(line)))
    engines = [Engine(number, padding) for number in range(count)]
    loop = asyncio.get_running_loop()
    first = await loop.create_server(partial(Connection, engines[0]), address(0), 0)
    port = first.sockets[0].getsockname()[1]
    for number in range(1, count):
        await loop.create_server(partial(Connection, engines[number]), address(number), port)
    print(port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Serve the number of engines that is asked for."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
