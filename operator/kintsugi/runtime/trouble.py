"""What is read of pods that do not start, beside the passes: Events about them, and the end of their last run's log.

Healthy pods cost nothing. A pod is asked about when its state changes, and its Events again from time to time; a few at
once, and never so that a pass would wait for it.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kintsugi.adapters.kube import parse
from kintsugi.core.classify import Told
from kintsugi.core.classify.lines import telling
from kintsugi.core.classify.pod import CREATING
from kintsugi.core.snapshot import Instance
from kintsugi.ports.cluster import ClusterPort
from kintsugi.ports.errors import PortError

log = logging.getLogger("kintsugi.trouble")

EVENTS_SECONDS: Final = 30.0
"""Between two looks at a pod's Events; back-offs of the kubelet are of this order."""
CREATING_SECONDS: Final = 20.0
"""A pod that is still being created after this long may lack a volume; the kubelet says so after its first try."""
LOG_LINES: Final = 300
"""vLLM's traceback of one failure over eight workers has about 200."""
AT_ONCE: Final = 4
"""Pods of one deployment that are asked about at the same time: a whole pool that fails, fails for one reason."""


@dataclass(slots=True)
class Trouble:
    """What is known of one pod, and what is being read."""

    told: tuple[Told, ...] = ()
    log_tail: tuple[str, ...] = ()
    state: tuple[object, ...] = ()
    asked_at: float = float("-inf")
    reading: asyncio.Task[None] | None = None


class Troubles:
    """The troubles of one deployment's pods, by UID."""

    def __init__(self) -> None:
        self._known: dict[str, Trouble] = {}

    def of(self, uid: str) -> Trouble:
        """What is known of that pod."""
        return self._known.get(uid) or Trouble()

    def look(
        self, cluster: ClusterPort, namespace: str, instances: Sequence[Instance], now: float, mono: float
    ) -> None:
        """Begin to read what is due. `now` in epoch seconds, `mono` monotonic; answers are there in later passes."""
        ailing = [i for i in instances if _ails(i, now)]
        for uid in set(self._known) - {i.uid for i in ailing}:
            gone = self._known.pop(uid)
            if gone.reading is not None:
                gone.reading.cancel()
        under_way = sum(1 for one in self._known.values() if one.reading is not None)
        for instance in sorted(ailing, key=lambda i: self.of(i.uid).asked_at):
            trouble = self._known.setdefault(instance.uid, Trouble())
            state = _state(instance)
            due = trouble.state != state or mono - trouble.asked_at >= EVENTS_SECONDS
            if trouble.reading is not None or not due or under_way >= AT_ONCE:
                continue
            fresh_run = trouble.state != state
            trouble.state, trouble.asked_at = state, mono
            under_way += 1
            reading = _read(cluster, namespace, instance, trouble, fresh_run)
            trouble.reading = asyncio.create_task(reading, name=f"trouble {instance.name}")


def _ails(instance: Instance, now: float) -> bool:
    if instance.ready or instance.deleting or not instance.node:
        return False
    if instance.last_termination is not None or instance.waiting_reason not in CREATING:
        return True
    return instance.started_at is None and now - instance.start_began_at >= CREATING_SECONDS


def _state(instance: Instance) -> tuple[object, ...]:
    ended = instance.last_termination
    return instance.restarts, ended.finished_at if ended else None, instance.waiting_reason in CREATING


async def _read(
    cluster: ClusterPort, namespace: str, instance: Instance, trouble: Trouble, fresh_run: bool
) -> None:
    try:
        events = await cluster.list_pod_events(namespace, instance.name, instance.uid)
        told = sorted(
            events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or "")
        )
        trouble.told = tuple(parse.told(event) for event in told)
        if fresh_run and instance.last_termination is not None:
            trouble.log_tail = await _log(cluster, namespace, instance) or trouble.log_tail
    except PortError as error:
        log.info("not read", extra={"pod": f"{namespace}/{instance.name}", "why": str(error)})
    finally:
        trouble.reading = None


async def _log(cluster: ClusterPort, namespace: str, instance: Instance) -> tuple[str, ...]:
    """What tells of the log of the run that ended: the one before, or the newest while nothing runs."""
    lines = await cluster.pod_log_tail(namespace, instance.name, LOG_LINES, previous=True)
    if not lines and instance.started_at is None:
        lines = await cluster.pod_log_tail(namespace, instance.name, LOG_LINES)
    return telling(lines)
