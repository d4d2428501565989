"""Keeps the newest word of Prometheus servers at hand. A pass takes what is there and waits for nothing.

A server that is slow, down or wrong is the absence of its values, never a reason for an action, and is said in DataFresh.
"""

import asyncio
import logging
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.detect.growing import MEASURED_AGE
from kintsugi.core.snapshot import Instance, Key, Measured
from kintsugi.ports.clock import Clock
from kintsugi.ports.errors import PortError
from kintsugi.ports.measurements import MeasurementPort, Source

log = logging.getLogger("kintsugi.measuring")

EVERY_SECONDS: Final = 60.0
"""Real seconds between two questions about one deployment: cadvisor and dcgm-exporter are scraped about that often."""


@dataclass(slots=True)
class _Asked:
    due: float
    """Monotonic seconds."""
    task: asyncio.Task[Mapping[str, Measured]] | None = None
    url: str = ""
    found: Mapping[str, Measured] = field(default_factory=dict)
    """By pod name."""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is at hand for one pass: by pod name, and why nothing is where nothing is ('' where all is well)."""

    measured: Mapping[str, Measured] = field(default_factory=dict)
    trouble: str = ""


class Measuring:
    """One value per process; `own` is the operator's own server, for deployments that name none."""

    def __init__(self, port: MeasurementPort, clock: Clock, own: str = "", token_file: str = "") -> None:
        self._port = port
        self._clock = clock
        self._own = own.rstrip("/")
        self._token_file = token_file
        self._asked: dict[Key, _Asked] = {}

    def look(self, key: Key, spec: DeploymentSpec, instances: Sequence[Instance]) -> Seen:
        """What is known, without waiting; asks anew in the background where it is time to."""
        said = spec.monitoring.prometheus
        url = said.url.rstrip("/") or self._own
        if not url:
            self.forget(key)
            return Seen()
        mono = self._clock.mono()
        asked = self._asked.get(key)
        if asked is None or asked.url != url:
            self.forget(key)
            asked = self._asked[key] = _Asked(due=mono + _place(key), url=url)
        if asked.task is not None and asked.task.done():
            self._take(key, asked, asked.task)
        pods = {i.name for i in instances if not i.deleting}
        if asked.task is None and mono >= asked.due and pods:
            asked.due = mono + EVERY_SECONDS
            source = Source(url, self._token() if url == self._own else "", said.metric_prefix)
            asked.task = asyncio.ensure_future(self._port.measure(source, key.namespace, key.name, pods))
        young = {name: each for name, each in asked.found.items() if mono - each.mono <= MEASURED_AGE}
        return Seen(young, asked.trouble)

    def forget(self, key: Key) -> None:
        """The deployment is gone, or asks nobody any more."""
        asked = self._asked.pop(key, None)
        if asked is not None and asked.task is not None:
            asked.task.cancel()

    async def close(self) -> None:
        """Give up everything."""
        for key in list(self._asked):
            self.forget(key)
        await self._port.close()

    def _take(self, key: Key, asked: _Asked, task: asyncio.Task[Mapping[str, Measured]]) -> None:
        asked.task = None
        try:
            asked.found = task.result()
        except PortError as error:
            trouble = f"the Prometheus server {asked.url[:200]} {error}"
        except Exception as error:  # a fault of ours here holds up no pass, and is told like any other
            log.exception("prometheus", extra={"fleet": str(key)})
            trouble = f"what the Prometheus server {asked.url[:200]} said could not be read ({type(error).__name__})"
        else:
            trouble = ""
        if trouble != asked.trouble:
            log.warning("prometheus", extra={"fleet": str(key), "why": trouble or "answers again"})
        asked.trouble = trouble

    def _token(self) -> str:
        """Read anew each time, since Kubernetes changes projected tokens; no token where the file can't be read."""
        if not self._token_file:
            return ""
        try:
            return Path(self._token_file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            log.warning("token not read", extra={"file": self._token_file, "why": type(error).__name__})
            return ""


def _place(key: Key) -> float:
    """Each deployment has a place of its own in the first seconds, so that not all ask at once."""
    return zlib.crc32(str(key).encode()) % 1000 / 1000 * EVERY_SECONDS / 6
