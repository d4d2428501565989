"""Watches the traffic of live fleets for a while, through the API server, without changing anything."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kintsugi.adapters.kube import parse
from kintsugi.core.advisor.look import traffic_reader
from kintsugi.core.advisor.traffic import Glance, PoolTraffic, glance, pool_traffic
from kintsugi.core.reading import Unreadable
from kintsugi.core.snapshot import Failed, Failure, Instance, Key, Page
from kintsugi.ports.clock import Clock
from kintsugi.ports.cluster import ClusterPort, Json
from kintsugi.ports.errors import Forbidden, PortError

Keep = Callable[[str, str, float, str], None]
"""Called with (pool, instance, epoch seconds, text) of every page that was read."""


class Pages(Protocol):
    """Where pages of engines come from."""

    async def read(self, namespace: str, pod: str) -> str:
        """One page; raises PortError."""
        ...


@dataclass(slots=True)
class Watched:
    """One deployment under watch."""

    key: Key
    raw: Json
    instances: tuple[Instance, ...]
    left_out: dict[str, list[str]]
    glances: dict[str, list[Glance]] = field(default_factory=dict)

    def traffic(self) -> dict[str, PoolTraffic]:
        """What was seen, by pool."""
        found = {}
        for pool in sorted({*self.glances, *self.left_out}):
            seen = pool_traffic(pool, self.glances.get(pool, ()))
            found[pool] = replace(seen, left_out=(*seen.left_out, *self.left_out.get(pool, ())))
        return found


async def watch_traffic(
    cluster: ClusterPort,
    pages: Pages,
    clock: Clock,
    wanted: Callable[[Key], bool],
    window: float,
    every: float,
    keep: Keep | None = None,
) -> list[Watched]:
    """Read every serving engine of the wanted deployments each `every` seconds, for `window` seconds.

    Raises PortError where the API server cannot be asked, Forbidden where it lets nobody through to the pods.
    """
    watched = [
        await _watched(cluster, key, raw)
        for raw in await cluster.list_deployments()
        if wanted(key := _key(raw))
    ]
    if not any(each.instances for each in watched):
        return watched
    reader, begin = traffic_reader(), clock.mono()
    while True:
        due = clock.mono() + every
        spots = [(each, instance) for each in watched for instance in each.instances]
        read = await asyncio.gather(*(_read(pages, each.key, one) for each, one in spots))
        for (each, instance), text in zip(spots, read, strict=True):
            if isinstance(text, str):
                seen = glance(reader, instance.name, Page(text, clock.mono()))
                if keep is not None:
                    keep(instance.pool, instance.name, clock.now(), text)
            else:
                seen = Glance(instance.name, clock.mono(), text)
            each.glances.setdefault(instance.pool, []).append(seen)
        if clock.mono() - begin >= window:
            return watched
        await clock.sleep(max(0.0, min(due, begin + window) - clock.mono()))


async def _watched(cluster: ClusterPort, key: Key, raw: Json) -> Watched:
    nothing = Failed(Failure.PENDING, "not read yet", 0.0)
    pods = [parse.instance(pod, nothing) for pod in await cluster.list_pods(key)]
    left_out: dict[str, list[str]] = {}
    serving = []
    usual = _usual_revisions([pod for pod in pods if not _why_not(pod)])
    for pod in sorted(pods, key=lambda p: p.name):
        why = _why_not(pod)
        if not why and pod.revision != usual[pod.pool]:
            why = "of another revision than most of the pool: a rollout is under way"
        if why:
            left_out.setdefault(pod.pool, []).append(f"{pod.name}: {why}")
        else:
            serving.append(pod)
    return Watched(key, raw, tuple(serving), left_out)


def _why_not(pod: Instance) -> str:
    if pod.deleting or not pod.ready:
        return "not Ready"
    return "" if pod.in_rotation else "withdrawn from traffic"


def _usual_revisions(pods: Sequence[Instance]) -> dict[str, str]:
    """By pool, the revision of most pods; of a tie the one that comes first in the alphabet."""
    counted: dict[str, Counter[str]] = {}
    for pod in sorted(pods, key=lambda p: p.revision):
        counted.setdefault(pod.pool, Counter())[pod.revision] += 1
    return {pool: revisions.most_common(1)[0][0] for pool, revisions in counted.items()}


async def _read(pages: Pages, key: Key, instance: Instance) -> str | Unreadable:
    try:
        return await pages.read(key.namespace, instance.name)
    except Forbidden:
        raise
    except PortError as error:
        return Unreadable(str(error))


def _key(raw: Json) -> Key:
    meta: dict[str, Any] = raw.get("metadata") or {}
    return Key(str(meta.get("namespace", "")), str(meta.get("name", "")))
