"""Fills the black box of an instance right before it is removed: bounded in time, and never a reason not to remove it."""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from kintsugi.api.objects import Remediation
from kintsugi.api.remediation import MAX_PAGES, BlackBox
from kintsugi.core.blackbox import (
    bounded,
    event_lines,
    named_series,
    plain_statuses,
    record_lines,
    telling_lines,
)
from kintsugi.core.moment import moment
from kintsugi.core.plan import Evict, Plan, Release
from kintsugi.core.snapshot import Instance, Page, Snapshot
from kintsugi.ports.cluster import ClusterPort
from kintsugi.ports.engines import Address, EnginePort
from kintsugi.ports.errors import PortError, Unavailable

log = logging.getLogger("kintsugi.blackbox")

TAKE_SECONDS: Final = 5.0
"""A removal waits for its black boxes this long at most, all of them together, in real seconds."""
LOG_LINES: Final = 400
"""Read, so that 100 are left without the lines of probes and scrapes."""
KEEP_EVERY_SECONDS: Final = 60.0
"""Of an instance that is well a page is kept this often: the last one of an engine that dies without a warning."""


@dataclass(slots=True)
class Flight:
    """The last pages of each instance of one deployment, as named series, by pod UID."""

    pages: dict[str, deque[str]] = field(default_factory=dict)
    kept_at: dict[str, float] = field(default_factory=dict)
    taken: dict[str, BlackBox] = field(default_factory=dict)
    """By attempt id: taken, and not yet seen in its object."""

    def note(self, snapshot: Snapshot, ailing: Iterable[str]) -> None:
        """Keep what was read in this pass: of the `ailing` (pod UIDs) each page, of others one a minute."""
        here = {i.uid: i for i in snapshot.instances}
        for uid in set(self.pages) - set(here):
            self.pages.pop(uid, None)
            self.kept_at.pop(uid, None)
        often = set(ailing)
        for uid, instance in here.items():
            last = self.kept_at.get(uid, float("-inf"))
            due = snapshot.mono - last >= KEEP_EVERY_SECONDS or uid in often
            if (
                due
                and isinstance(instance.scrape, Page)
                and instance.scrape.mono > last
                and instance.scrape.text
            ):
                self.kept_at[uid] = instance.scrape.mono
                self.pages.setdefault(uid, deque(maxlen=MAX_PAGES)).append(named_series(instance.scrape.text))


class BlackBoxes:
    """Takes black boxes through the cluster's port, and what the engine itself recorded from the engine."""

    def __init__(self, cluster: ClusterPort, engines: EnginePort, take_seconds: float = TAKE_SECONDS) -> None:
        self._cluster = cluster
        self._engines = engines
        self._take_seconds = take_seconds

    async def filled(
        self,
        snapshot: Snapshot,
        plan: Plan,
        flight: Flight,
        secrets: Iterable[str] = (),
        addresses: Mapping[str, Address] = MappingProxyType({}),
    ) -> Plan:
        """`plan` with a black box in the record of each attempt that is about to let its victim go. Never raises.

        `addresses`: where the engines answer, by pod UID."""
        known = tuple(secret for secret in secrets if secret)
        removed = {a.attempt for a in plan.actions if isinstance(a, Evict | Release)}
        attempts = {r.spec.attempt_id for r in plan.remediations}
        flight.taken = {attempt: box for attempt, box in flight.taken.items() if attempt in attempts}
        due = [r for r in plan.remediations if r.spec.attempt_id in removed and r.status.black_box is None]
        missing = [r for r in due if r.spec.attempt_id not in flight.taken]
        if missing:
            boxes = await asyncio.gather(
                *(
                    self._take(snapshot, each, flight, known, addresses.get(each.spec.instance.uid))
                    for each in missing
                )
            )
            flight.taken |= {r.spec.attempt_id: box for r, box in zip(missing, boxes, strict=True)}
        if not flight.taken:
            return plan
        return replace(plan, remediations=tuple(_with_box(each, flight) for each in plan.remediations))

    async def _take(
        self,
        snapshot: Snapshot,
        remediation: Remediation,
        flight: Flight,
        secrets: tuple[str, ...],
        address: Address | None,
    ) -> BlackBox:
        namespace, victim = snapshot.key.namespace, remediation.spec.instance
        instance = next((i for i in snapshot.instances if i.uid == victim.uid), None)
        missing: list[str] = []

        async def part(name: str, reading: Coroutine[Any, Any, Sequence[Any]]) -> tuple[Any, ...]:
            try:
                return tuple(await asyncio.wait_for(reading, self._take_seconds))
            except TimeoutError:
                missing.append(f"{name}: no answer within {self._take_seconds:g} s")
            except PortError as error:
                missing.append(f"{name}: {error}"[:200])
            return ()

        restarted = instance is not None and instance.restarts > 0
        lines, before, pods, events, ranks = await asyncio.gather(
            part("logs", self._cluster.pod_log_tail(namespace, victim.name, LOG_LINES)),
            part(
                "logs of the run before",
                self._cluster.pod_log_tail(namespace, victim.name, LOG_LINES, previous=True),
            )
            if restarted
            else asyncio.sleep(0, ()),
            part("container statuses", self._cluster.list_pods(snapshot.key)),
            part("events", self._cluster.list_pod_events(namespace, victim.name, victim.uid)),
            part("the engine's own record", self._record(address)),
        )
        pod: Mapping[str, Any] = next(
            (each for each in pods if each["metadata"].get("uid") == victim.uid), {}
        )
        pages = tuple(flight.pages.get(victim.uid, ()))
        if not pages:
            missing.append("pages: none was read since this operator started")
        box = BlackBox.clipped(
            pages=pages,
            record=record_lines(ranks),
            logs=telling_lines((*before, *lines), secrets),
            container_statuses=plain_statuses(pod, secrets),
            events=event_lines(events, secrets),
            devices=_devices(instance),
            missing=tuple(missing),
        ).model_copy(update={"taken_at": moment(snapshot.now)})
        return bounded(box)

    async def _record(self, address: Address | None) -> Sequence[Mapping[str, Any]]:
        """What the ranks measured last. Raises Unavailable where the engine does not say."""
        said = None if address is None else await self._engines.record(address, self._take_seconds)
        if said is None:
            raise Unavailable("the engine does not answer")
        return said


def _with_box(remediation: Remediation, flight: Flight) -> Remediation:
    box = flight.taken.get(remediation.spec.attempt_id)
    if box is None or remediation.status.black_box is not None:
        return remediation
    status = remediation.status.model_copy(update={"black_box": box})
    return remediation.model_copy(update={"status": status})


def _devices(instance: Instance | None) -> tuple[str, ...]:
    found = instance.devices if instance is not None and instance.devices else ()
    return tuple(f"{device.resource} {device.id}: {device.health}" for device in found)
