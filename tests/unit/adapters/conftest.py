"""The adapter that all tests of direct contact with engines ask."""

import time
from collections.abc import AsyncIterator

import pytest

from kintsugi.adapters.engines import HttpEngines


@pytest.fixture
async def engines() -> AsyncIterator[HttpEngines]:
    made = HttpEngines(time.monotonic)
    yield made
    await made.close()
