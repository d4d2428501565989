"""Asking an engine over HTTP, and waiting for what follows."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp

from kintsugi.testing.engine import EngineServer, StepCost

FAST = StepCost(base=0.002, per_sequence=0.0, noise_sigma=0.0)
PATHS = ("/v1/completions", "/v1/chat/completions")


def body(path: str, **fields: Any) -> dict[str, Any]:
    prompt: dict[str, Any] = {"prompt": "mend this bowl"}
    if "chat" in path:
        prompt = {"messages": [{"role": "user", "content": "mend this bowl"}]}
    return {"model": "deepseek-v4", "max_tokens": 8, **prompt, **fields}


async def frames(response: aiohttp.ClientResponse) -> list[Any]:
    """The data of each server-sent event; `[DONE]` as it is."""
    found = []
    async for line in response.content:
        if line.startswith(b"data: "):
            data = line[6:].strip().decode()
            found.append(data if data == "[DONE]" else json.loads(data))
    return found


async def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something holds; TimeoutError when it does not in time."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - what is waited for is outside and raises no event
            await asyncio.sleep(0.01)


async def until(server: EngineServer, event: str, count: int = 1) -> list[dict[str, object]]:
    """The journal's entries of an event, once there are enough."""
    await eventually(lambda: len(server.journal.of(event)) >= count)
    return server.journal.of(event)
