"""`observe`: pods, engines and time, read once per pass, as one Snapshot."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kintsugi.adapters.kube import parse, room
from kintsugi.api.fields import unknown_fields
from kintsugi.api.objects import DeepSeekV4Deployment, Remediation, parse_remediation
from kintsugi.core.catalog.load import in_force
from kintsugi.core.command.render import served_names
from kintsugi.core.names import ENGINE_PORT, PAUSE_ANNOTATION_PREFIX
from kintsugi.core.pod.known import gpu_resource
from kintsugi.core.snapshot import (
    CanaryResult,
    Failed,
    Failure,
    Fleet,
    Instance,
    Key,
    NodeRoom,
    Scrape,
    Snapshot,
)
from kintsugi.core.times import Times
from kintsugi.ports.clock import Clock
from kintsugi.ports.cluster import ClusterPort, Json
from kintsugi.ports.engines import Address, EnginePort
from kintsugi.ports.errors import Forbidden
from kintsugi.runtime.compaction import Compactions
from kintsugi.runtime.listing import Listings
from kintsugi.runtime.measuring import Measuring, Seen
from kintsugi.runtime.memory_room import MemoryRoom
from kintsugi.runtime.pods import Pods
from kintsugi.runtime.trouble import Troubles

CHILDREN_SECONDS: Final = 60.0
"""Services and disruption budgets are compared this often, and whenever the spec changed."""
SCRAPE_TIMEOUT_SECONDS: Final = 4.0
"""A page takes milliseconds; a saturated engine took 1.8 s (S16)."""

MIN_WAIT_SECONDS: Final = 0.1
CLOCK_STEP_SECONDS: Final = 2.0
CLOCK_DRIFT: Final = 0.05
"""By how much the epoch clock must move between two passes, beside the time that passed, to have been set: so many seconds, and
this share of that time, since our own clock slews (by a fiftieth) where it is astray."""


@dataclass(slots=True)
class Sight:
    """What this process remembers of one deployment between passes. Losing it delays healing, never hastens it."""

    observed_since: float
    clock_read: tuple[float, float] | None = None
    """Epoch and monotonic seconds of the last pass."""
    clock_set_at: float | None = None
    """Epoch seconds at which the wall clock was last found to have been set; None where it never was."""
    children_read: float = float("-inf")
    generation: int | None = None
    needs_nodes: bool = False
    answers: dict[str, bool] = field(default_factory=dict)
    results: list[CanaryResult] = field(default_factory=list)
    addresses: dict[str, Address] = field(default_factory=dict)
    """By pod UID, of the last pass."""
    scrapes: dict[str, asyncio.Task[list[Scrape]]] = field(default_factory=dict)
    """Readings under way, by pod UID: a slow engine delays its own reading and nobody else's."""
    asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """Verifying requests under way, by pod UID."""
    unknown: tuple[str, tuple[str, ...]] | None = None
    """Fields of the object that nobody knows, with the resourceVersion at which they were looked for."""
    pods: Pods = field(default_factory=Pods)
    """As they were last listed."""
    troubles: Troubles = field(default_factory=Troubles)
    """What is known of pods that do not start."""
    listings: Listings = field(default_factory=Listings)
    """Which adapters the engines list."""
    compactions: Compactions = field(default_factory=Compactions)
    """Which engines can give cached memory back, and which did."""
    api_key: str | None = None
    api_key_read: float = float("-inf")

    def see_clock(self, now: float, mono: float) -> None:
        """Note whether the wall clock was set since the last pass: what began before it says nothing of how long ago that was."""
        if self.clock_read is not None:
            passed = mono - self.clock_read[1]
            if abs(now - self.clock_read[0] - passed) > CLOCK_STEP_SECONDS + CLOCK_DRIFT * passed:
                self.clock_set_at = now
        self.clock_read = now, mono


class Observer:
    """Reads one deployment's world through the ports."""

    def __init__(
        self,
        cluster: ClusterPort,
        engines: EnginePort,
        clock: Clock,
        measuring: Measuring | None = None,
        image: str = "",
    ) -> None:
        """`image`: the operator's own, '' where it is not known."""
        self._cluster = cluster
        self._engines = engines
        self._clock = clock
        self._measuring = measuring
        self._image = image
        self._memory_room = MemoryRoom(cluster, clock)

    async def snapshot(
        self,
        key: Key,
        raw: Json,
        deployment: DeepSeekV4Deployment,
        sight: Sight,
        times: Times,
        fleet: Fleet,
        late_by: float,
    ) -> Snapshot:
        """Everything one pass knows; `deployment` is `raw` as parsed. Raises PortError where Kubernetes can't be read."""
        pods, sets, remediations, nodes, children, limits = await asyncio.gather(
            self._cluster.list_pods(key),
            self._cluster.list_replica_sets(key),
            self._remediations(key, deployment),
            self._nodes(deployment, sight),
            self._children(key, deployment, sight),
            self._limits(key, deployment, sight),
        )
        budgets, found_quotas = limits
        await self._refresh_api_key(key, deployment, sight)
        instances = self._memory_room.limited(await self._instances(key, deployment, pods, sight, times))
        seen = self._measuring.look(key, deployment.spec, instances) if self._measuring else Seen()
        if seen.measured:
            instances = tuple(replace(i, measured=seen.measured.get(i.name)) for i in instances)
        metadata = raw["metadata"]
        now, mono = self._clock.now(), self._clock.mono()
        sight.see_clock(now, mono)
        return Snapshot(
            key=key,
            now=now,
            mono=mono,
            late_by=late_by,
            observed_since=sight.observed_since,
            clock_set_at=sight.clock_set_at,
            deployment=deployment,
            resource_version=str(metadata["resourceVersion"]),
            uid=str(metadata["uid"]),
            instances=instances,
            replica_sets=tuple(parse.replica_set(each) for each in sets),
            remediations=remediations,
            nodes=nodes,
            fleet=fleet,
            children=children,
            answers=dict(sight.answers),
            compacted=dict(sight.compactions.answers),
            paused=pause_reasons(deployment),
            unknown_fields=self._unknown(raw, sight),
            covers=room.covers(budgets, pods),
            quotas=room.quotas(found_quotas, pods),
            unmeasured=seen.trouble,
            operator_image=self._image,
        )

    def _unknown(self, raw: Json, sight: Sight) -> tuple[str, ...]:
        version = str(raw["metadata"]["resourceVersion"])
        if sight.unknown is None or sight.unknown[0] != version:
            sight.unknown = version, tuple(unknown_fields(raw))
        return sight.unknown[1]

    async def _remediations(self, key: Key, deployment: DeepSeekV4Deployment) -> Mapping[str, Remediation]:
        active = deployment.status.remediations.active
        found = await asyncio.gather(*(self._cluster.get_remediation(key.namespace, a.name) for a in active))
        return {a.id: parse_remediation(raw) for a, raw in zip(active, found, strict=True) if raw is not None}

    async def _nodes(self, deployment: DeepSeekV4Deployment, sight: Sight) -> tuple[NodeRoom, ...] | None:
        if not sight.needs_nodes and not deployment.status.remediations.active:
            return None
        try:
            nodes, pods = await asyncio.gather(self._cluster.list_nodes(), self._cluster.list_gpu_pods())
        except Forbidden:
            return ()  # without the right to look, no room is known: delete-first
        hardware = deployment.spec.hardware
        gpu = in_force().gpu(hardware.gpu) if hardware and hardware.gpu else None
        return parse.node_rooms(nodes, pods, gpu_resource(hardware, gpu))

    async def _limits(
        self, key: Key, deployment: DeepSeekV4Deployment, sight: Sight
    ) -> tuple[list[Json], list[Json]]:
        """Disruption budgets and quotas of the namespace, where something may be removed; none that may not be read."""
        if not sight.needs_nodes and not deployment.status.remediations.active:
            return [], []
        return await asyncio.gather(
            _allowed(self._cluster.list_disruption_budgets(key.namespace)),
            _allowed(self._cluster.list_quotas(key.namespace)),
        )

    async def _children(
        self, key: Key, deployment: DeepSeekV4Deployment, sight: Sight
    ) -> tuple[Mapping[str, Any], ...] | None:
        generation = deployment.metadata.generation
        due = self._clock.mono() - sight.children_read >= CHILDREN_SECONDS
        if not due and sight.generation == generation:
            return None
        found = await self._cluster.list_children(key)
        sight.children_read, sight.generation = self._clock.mono(), generation
        return tuple(found)

    async def _refresh_api_key(self, key: Key, deployment: DeepSeekV4Deployment, sight: Sight) -> None:
        engine = deployment.spec.engine
        ref = engine.api_key_secret_ref if engine else None
        if ref is None:
            sight.api_key = None
        elif self._clock.mono() - sight.api_key_read >= CHILDREN_SECONDS:
            sight.api_key = await self._cluster.get_secret_value(key.namespace, ref.name, ref.key)
            sight.api_key_read = self._clock.mono()

    async def _instances(
        self,
        key: Key,
        deployment: DeepSeekV4Deployment,
        pods: Sequence[Json],
        sight: Sight,
        times: Times,
    ) -> tuple[Instance, ...]:
        model = served_names(deployment.spec)[0]
        now = self._clock.mono()
        parsed = sight.pods.parsed(pods)
        bare = [each.instance for each in parsed]
        sight.troubles.look(self._cluster, key.namespace, bare, self._clock.now(), now)
        asked = [i for i in bare if i.pod_ip and i.started_at is not None]
        named = {each.instance.uid: each.model or model for each in parsed}
        sight.addresses = {i.uid: Address(i.pod_ip, ENGINE_PORT, sight.api_key, named[i.uid]) for i in asked}
        adapters = [adapter.name for adapter in deployment.spec.model.lora_adapters]
        ready = {(i.uid, i.started_at): sight.addresses[i.uid] for i in asked if i.ready}
        sight.listings.look(self._engines, ready, adapters, now)
        sight.compactions.look(self._engines, ready, "Compact" in deployment.spec.healing.ladder, now)
        sight.compactions.forget([a.id for a in deployment.status.remediations.active])
        scrapes = await self._scrape(sight, times)
        sight.answers = {uid: said for uid, said in sight.answers.items() if uid in sight.addresses}
        results, sight.results = sight.results, []
        nothing = Failed(Failure.NO_ADDRESS, "no running container", now)
        return tuple(
            replace(
                i,
                scrape=scrapes.get(i.uid, nothing),
                canaries=tuple(r for r in results if r.canary.process.uid == i.uid),
                told=sight.troubles.of(i.uid).told,
                log_tail=sight.troubles.of(i.uid).log_tail,
                listed=sight.listings.of(i.uid, i.started_at),
                compactable=sight.compactions.can(i.uid, i.started_at),
            )
            for i in bare
        )

    async def _scrape(self, sight: Sight, times: Times) -> dict[str, Scrape]:
        """One page of each engine, all side by side, waited for no longer than the pass may take."""
        for uid in set(sight.scrapes) - set(sight.addresses):
            sight.scrapes.pop(uid).cancel()
        for uid, address in sight.addresses.items():
            if uid not in sight.scrapes:
                call = self._engines.scrape([address], SCRAPE_TIMEOUT_SECONDS)
                sight.scrapes[uid] = asyncio.ensure_future(call)
        if sight.scrapes:
            await asyncio.wait(
                sight.scrapes.values(), timeout=max(MIN_WAIT_SECONDS, 0.9 * times.scrape_interval)
            )
        found: dict[str, Scrape] = {}
        for uid, task in list(sight.scrapes.items()):
            if task.done():
                found[uid] = sight.scrapes.pop(uid).result()[0]
            else:
                found[uid] = Failed(
                    Failure.PENDING, "its last reading is not answered yet", self._clock.mono()
                )
        return found


async def _allowed(reading: Coroutine[Any, Any, list[Json]]) -> list[Json]:
    """What was read; nothing where we may not look: then Kubernetes says no, and that is reported."""
    try:
        return await reading
    except Forbidden:
        return []


def pause_reasons(deployment: DeepSeekV4Deployment) -> tuple[str, ...]:
    """Every reason to pause: named in the spec, or as an annotation that GitOps leaves alone."""
    annotated = [
        name.removeprefix(PAUSE_ANNOTATION_PREFIX)
        for name in deployment.metadata.annotations
        if name.startswith(PAUSE_ANNOTATION_PREFIX)
    ]
    return tuple(sorted({*deployment.spec.healing.pause_requests, *annotated}))
