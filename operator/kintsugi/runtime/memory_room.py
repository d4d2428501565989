"""Keeps at hand what nodes leave to engines without a memory limit. A pass takes what is there and waits for nothing."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kintsugi.adapters.kube.memory_room import NodeMemory, node_memory
from kintsugi.core.snapshot import Instance
from kintsugi.ports.clock import Clock
from kintsugi.ports.cluster import ClusterPort
from kintsugi.ports.errors import PortError

log = logging.getLogger("kintsugi.memory")

EVERY_SECONDS: Final = 1800.0
"""Real seconds between two looks at nodes: allocatable memory does not change, and neighbours seldom do."""


class MemoryRoom:
    """One value per process, since nodes are everybody's."""

    def __init__(self, cluster: ClusterPort, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._due = float("-inf")
        self._task: asyncio.Task[Mapping[str, NodeMemory]] | None = None
        self._nodes: Mapping[str, NodeMemory] = {}

    def limited(self, instances: Sequence[Instance]) -> tuple[Instance, ...]:
        """The same instances; those without a limit get what their node leaves them, where that is known."""
        if all(i.memory_limit is not None or i.started_at is None for i in instances):
            return tuple(instances)
        self._look()
        return tuple(
            replace(i, memory_limit=self._nodes[i.node].without(i.uid))
            if i.memory_limit is None and i.node in self._nodes
            else i
            for i in instances
        )

    def _look(self) -> None:
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            try:
                self._nodes = task.result()
            except PortError as error:
                log.warning("nodes' memory not read", extra={"why": str(error)})
        if self._task is None and self._clock.mono() >= self._due:
            self._due = self._clock.mono() + EVERY_SECONDS
            self._task = asyncio.ensure_future(self._read())

    async def _read(self) -> Mapping[str, NodeMemory]:
        nodes, pods = await asyncio.gather(self._cluster.list_nodes(), self._cluster.list_gpu_pods())
        return node_memory(nodes, pods)
