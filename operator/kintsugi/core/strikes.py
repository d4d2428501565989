"""The memory of nodes and GPUs on which instances did not do well, in the deployment's status alone.

A strike is made when an instance is moved away for good reason (RecreateElsewhere), and each time that a node refuses a
pod which the scheduler gave it (S24). It expires by the clock; a person may have all of them forgotten before.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kintsugi.api.objects import DeepSeekV4Deployment
from kintsugi.api.status import StrikeStatus
from kintsugi.core.detect.device import UNHEALTHY
from kintsugi.core.finding import Detector, InstanceVerdict
from kintsugi.core.moment import epoch, moment
from kintsugi.core.names import RESET_LADDERS_ANNOTATION
from kintsugi.core.snapshot import Instance, NodeRoom
from kintsugi.core.times import Times

REFUSALS_NEEDED: Final = 2
"""A node that refused so many pods is avoided (S24: k8s-device-plugin#231); one may be chance."""
REFUSED_REASON: Final = "NodeRefused"
"""The finding on a pod that its node did not take, and that never ran."""
KEPT_PODS: Final = 16
MOST: Final = 256
"""What the API keeps (`status.remediations.strikes`); the oldest go first."""


@dataclass(frozen=True, slots=True)
class Blow:
    """One reason to strike a node: an instance that is moved away from it, or a pod that it refused."""

    instance: Instance
    reason: str
    at_once: bool
    """Whether the first one counts already."""
    devices: tuple[str, ...] = ()
    """GPUs of the node that are to blame."""


def moved_away(instance: Instance, trigger: str) -> Blow:
    """The strike of an instance that is recreated elsewhere because of `trigger`."""
    sick = tuple(d.id for d in instance.devices or () if d.health == UNHEALTHY)
    return Blow(instance, trigger[:1].upper() + trigger[1:], True, sick)


def refused(verdict: InstanceVerdict | None) -> bool:
    """Whether the node refused this pod, which never ran."""
    findings = verdict.findings if verdict else ()
    return any(f.detector is Detector.DEAD and f.reason == REFUSED_REASON for f in findings)


def strikes_after(
    before: tuple[StrikeStatus, ...],
    blows: Iterable[Blow],
    nodes: tuple[NodeRoom, ...] | None,
    now: float,
    reset: datetime | None,
    times: Times,
) -> tuple[StrikeStatus, ...]:
    """The strikes after a pass in which `blows` were dealt. `reset`: what was dealt before it is forgotten."""
    found = {
        (entry.node, entry.device): entry
        for entry in before
        if entry.last_at is not None
        and now - epoch(entry.last_at) <= times.strike_memory
        and (reset is None or entry.last_at > reset)
    }
    # What stands on a node has to be taken off before its strike may be forgotten.
    found |= {
        (e.node, e.device): _lifted(e, now) for e in before if e.action and (e.node, e.device) not in found
    }
    hosts = {node.name: node.host for node in nodes or ()}
    for blow in blows:
        node = blow.instance.node
        if not node:
            continue
        for device in ("", *blow.devices):
            key = node, device[:128]
            found[key] = _struck(found.get(key), key, hosts.get(node, node), blow, now, times)
    if len(found) > MOST:
        newest = sorted(found, key=lambda key: epoch(found[key].last_at or moment(0.0)))[-MOST:]
        found = {key: found[key] for key in newest}
    return tuple(found[key] for key in sorted(found))


def _lifted(entry: StrikeStatus, now: float) -> StrikeStatus:
    over = entry.expires_at is None or epoch(entry.expires_at) <= now
    return entry if over else entry.model_copy(update={"expires_at": moment(now)})


def _struck(
    before: StrikeStatus | None, key: tuple[str, str], host: str, blow: Blow, now: float, times: Times
) -> StrikeStatus:
    uid, pool = blow.instance.uid, blow.instance.pool
    if before is not None and uid in before.pods:
        return before
    count = 1 + (before.count if before else 0)
    expires = before.expires_at if before else None
    standing = expires is not None and epoch(expires) > now
    if blow.at_once or (count >= REFUSALS_NEEDED and not standing):
        lasts = times.strike_first if expires is None else times.strike_again
        until = max(now + lasts, epoch(expires) if expires else 0.0)
        expires = moment(until)
    written: dict[str, Any] = {
        "node": key[0],
        "device": key[1],
        "host": host,
        "action": before.action if before else "",
        "reason": blow.reason,
        "count": count,
        "last_at": moment(now),
        "expires_at": expires,
        "pools": tuple(sorted({*(before.pools if before else ()), pool})),
        "pods": (*(before.pods if before else ()), uid)[-KEPT_PODS:],
    }
    return StrikeStatus.model_validate(written)


def in_force(strikes: Iterable[StrikeStatus], pool: str, now: float) -> dict[str, str]:
    """Nodes that new pods of `pool` avoid, with the host name by which they do."""
    return {
        entry.node: entry.host or entry.node
        for entry in strikes
        if not entry.device and entry.expires_at and epoch(entry.expires_at) > now and pool in entry.pools
    }


def reset_at(deployment: DeepSeekV4Deployment, now: float) -> datetime | None:
    """When a person last had ladders and strikes forgotten; a time to come, and what is no time, do nothing."""
    text = deployment.metadata.annotations.get(RESET_LADDERS_ANNOTATION)
    try:
        when = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return when if when is not None and when.tzinfo and epoch(when) <= now else None
