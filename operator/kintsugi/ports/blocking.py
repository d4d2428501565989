"""The one way a synchronous client is called from the loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def run_blocking(call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `call` on a worker thread and wait for it without blocking the loop."""
    return await asyncio.to_thread(call, *args, **kwargs)


async def run_blocking_on(
    executor: Executor, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """As `run_blocking`, on threads of the caller's own: the loop's shared pool has only a few."""
    return await asyncio.get_running_loop().run_in_executor(executor, partial(call, *args, **kwargs))
