"""The one way a synchronous client is called from the loop."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def run_blocking(call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `call` on a worker thread and wait for it without blocking the loop."""
    return await asyncio.to_thread(call, *args, **kwargs)
