"""Records a live fleet: every pod's facts and page, look after look, through the API server. It changes nothing."""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kintsugi.adapters.kube import parse
from kintsugi.core.advisor.saved import saved_head, without_heads
from kintsugi.core.backtest.observation import GONE, facts_of
from kintsugi.core.snapshot import Failed, Failure, Instance, Key, Page, Scrape
from kintsugi.ports.clock import Clock
from kintsugi.ports.cluster import ClusterPort
from kintsugi.ports.errors import Forbidden, PortError
from kintsugi.runtime.traffic import Pages

AT_ONCE: Final = 16
"""Pages that are read at the same time: the API server has others to serve."""


@dataclass(slots=True)
class Sweep:
    """One look at everything. `at` in epoch seconds."""

    at: float
    pods: int = 0
    pages: int = 0
    trouble: str = ""
    """Why the pods could not be listed; '' where they could."""
    failure: str = ""
    """Why one of the pods gave no page, or that there is none; '' where each gave one."""


class Recording:
    """One recording of one deployment. `write` is given text that is whole: pages are never cut between two calls."""

    def __init__(
        self, cluster: ClusterPort, pages: Pages, clock: Clock, key: Key, write: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._pages = pages
        self._clock = clock
        self._key = key
        self._write = write
        self._known: Mapping[str, Instance] = {}

    async def run(self, seconds: float, every: float, told: Callable[[Sweep], None]) -> int:
        """Look each `every` seconds for `seconds`; the number of pages. Raises Forbidden where nobody may look.

        An API server in trouble ends nothing: such a moment is missing from the record.
        """
        begin, pages, number = self._clock.mono(), 0, 0
        while True:
            sweep = await self.sweep()
            pages += sweep.pages
            told(sweep)
            gone = self._clock.mono() - begin
            number = max(
                number + 1, math.ceil(gone / every)
            )  # a look that took long delays none but its next
            if number * every > seconds:
                return pages
            await self._clock.sleep(max(0.0, number * every - gone))

    async def sweep(self) -> Sweep:
        """One look."""
        at = self._clock.now()
        nothing = Failed(Failure.NO_ADDRESS, "no running container", at)
        try:
            raw = await self._cluster.list_pods(self._key)
        except Forbidden:
            raise
        except PortError as error:
            return Sweep(at, trouble=str(error))
        pods = [parse.instance(pod, nothing) for pod in raw]
        gate = asyncio.Semaphore(AT_ONCE)
        seen = await asyncio.gather(*(self._look(pod, gate) for pod in pods))
        here = {pod.uid for pod in pods}
        for uid in sorted(set(self._known) - here):
            self._write_one(self._known[uid], at, {"failed": GONE})
        for instance in seen:
            self._write_one(instance, instance.scrape.mono)
        self._known = {pod.uid: pod for pod in pods}
        failed = [f"{each.name}: {each.scrape.why}" for each in seen if isinstance(each.scrape, Failed)]
        failure = failed[0] if failed else "" if seen else "the deployment has no pods"
        return Sweep(at, len(pods), len(seen) - len(failed), failure=failure)

    async def _look(self, pod: Instance, gate: asyncio.Semaphore) -> Instance:
        if pod.started_at is None or not pod.pod_ip:
            return pod
        async with gate:
            scrape: Scrape
            try:
                text = await self._pages.read(self._key.namespace, pod.name)
                scrape = Page(text, self._clock.now())
            except Forbidden:
                raise
            except PortError as error:
                scrape = Failed(_failure(str(error)), str(error), self._clock.now())
        return replace(pod, scrape=scrape)

    def _write_one(self, instance: Instance, at: float, more: Mapping[str, str] | None = None) -> None:
        facts = {**facts_of(instance), **(more or {})}
        text = instance.scrape.text if isinstance(instance.scrape, Page) and not more else ""
        whole = text[: text.rfind("\n") + 1]  # a line without its end may hold half a number
        self._write(saved_head(instance.pool, instance.name, at, facts) + without_heads(whole))


def _failure(said: str) -> Failure:
    """What a page that did not come proves. Through a proxy nobody can tell silence from a lost connection."""
    return Failure.REFUSED if "connection refused" in said else Failure.PENDING
