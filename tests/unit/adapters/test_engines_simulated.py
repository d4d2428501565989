"""The adapter against the engine simulator: the same page, the same canary, the same silence as from a real one."""

import asyncio
import time

from kintsugi.adapters.engines import HttpEngines
from kintsugi.core.page import PageReader
from kintsugi.core.reading import Unreadable
from kintsugi.core.sample import read_sample
from kintsugi.core.snapshot import Canary, CanaryOutcome, CanaryResult, Page, ProcessKey
from kintsugi.ports.engines import Address
from kintsugi.testing.engine import serve_engine
from kintsugi.testing.engine.faults import Hang


def address_of(url: str) -> Address:
    host, port = url.removeprefix("http://").split(":")
    return Address(host, int(port))


async def steps(engines: HttpEngines, address: Address) -> float:
    (scrape,) = await engines.scrape([address], 4.0)
    assert isinstance(scrape, Page), scrape
    sample = read_sample(PageReader(), scrape)
    assert not isinstance(sample, Unreadable)
    return sample.total("steps") or 0.0


async def result_of(engines: HttpEngines) -> CanaryResult:
    for _ in range(500):
        found = engines.canary_results()
        if found:
            return found[0]
        await asyncio.sleep(0.01)
    raise AssertionError("the canary did not end")


async def test_a_canary_makes_one_step_and_a_hung_engine_makes_none(engines: HttpEngines) -> None:
    async with serve_engine(seed=1) as server:
        address = address_of(server.url)
        before = await steps(engines, address)
        canary = Canary("kintsugi-canary-0-1", ProcessKey("u", 1.0), "0", time.monotonic())
        engines.send_canary(address, canary, 5.0)
        assert (await result_of(engines)).outcome is CanaryOutcome.ANSWERED
        after = await steps(engines, address)
        assert after == before + 1
        assert await engines.ask(address, 5.0)

        server.inject(Hang())
        engines.send_canary(address, canary, 0.5)
        assert (await result_of(engines)).outcome is CanaryOutcome.ABANDONED
        assert await steps(engines, address) == after + 1
        assert not await engines.ask(address, 0.5)
