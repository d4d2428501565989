"""What the tests of the simulated engine share."""

from collections.abc import AsyncIterator

import aiohttp
import pytest


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
