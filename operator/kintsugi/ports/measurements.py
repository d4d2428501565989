"""What is measured beside the engines' own pages, as the operator needs it: one bounded question now and then."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from kintsugi.core.snapshot import Measured


@dataclass(frozen=True, slots=True)
class Source:
    """A Prometheus server. `token` is sent as a bearer token where it is not ''; it goes to no other address."""

    url: str
    token: str = ""
    prefix: str = ""
    """What relabelling put before the metric names."""


class MeasurementPort(Protocol):
    """A source of measurements that nothing waits for."""

    async def measure(
        self, source: Source, namespace: str, deployment: str, pods: Collection[str]
    ) -> Mapping[str, Measured]:
        """By pod name, what is known now; within seconds. Raises PortError, whose text holds nothing that was read."""
        ...

    async def close(self) -> None:
        """Give up what is under way."""
        ...
