"""What was learned of one deployment's engines, kept over restarts of the operator in one ConfigMap.

Without it a restart delays verdicts and hastens none, so no failure here fails a pass.
"""

import json
import logging
from dataclasses import dataclass, field
from typing import Final

from kintsugi.core import names
from kintsugi.core.evidence import Memory
from kintsugi.core.learned import from_learned, learned, worth_writing
from kintsugi.core.render import owner_reference
from kintsugi.core.snapshot import Key, Snapshot
from kintsugi.core.times import Times
from kintsugi.ports.cluster import ClusterPort, Json
from kintsugi.ports.errors import Forbidden, PortError

log = logging.getLogger("kintsugi.keeping")

DATA_KEY: Final = "learned.json"
SIZE_LIMIT: Final = 900_000
"""Characters; a ConfigMap holds 1 MiB at most. 1,000 instances take about 600 KB."""


@dataclass(slots=True)
class Shelf:
    """Where one deployment's learned state stands. Monotonic seconds."""

    stored: Memory = field(default_factory=Memory)
    """As it was last read or written."""
    looked_at: float = float("-inf")
    noticed_at: float | None = None
    """When something worth a write was first seen."""
    written_at: float = float("-inf")
    ours: bool = True
    """False where an object of that name belongs to somebody else: it is never touched."""


def shelf_name(key: Key) -> str:
    """Name of the deployment's ConfigMap: no longer than 56 characters."""
    return f"{key.name}-kintsugi-learned"


async def take_down(
    cluster: ClusterPort, key: Key, uid: str | None, mono: float, now: float, times: Times
) -> tuple[Memory, Shelf]:
    """The memory to start with, and the shelf. Raises PortError where the API server gives no answer: ask again.

    What an earlier deployment of the same name left (`uid` is this one's) counts for nothing, and is written over.
    """
    try:
        found = await cluster.get_config_map(key.namespace, shelf_name(key))
    except Forbidden as error:
        log.warning(
            "what was learned can't be read: it is learned anew", extra={"fleet": str(key), "why": str(error)}
        )
        return Memory(), Shelf(ours=False)
    if found is None:
        return Memory(), Shelf()
    if (found["metadata"].get("labels") or {}).get(names.DEPLOYMENT_LABEL) != key.name:
        log.warning(
            "a ConfigMap of somebody else has our name",
            extra={"fleet": str(key), "configMap": shelf_name(key)},
        )
        return Memory(), Shelf(ours=False)
    owners = found["metadata"].get("ownerReferences") or ()
    if all(owner.get("uid") != uid for owner in owners):
        return Memory(), Shelf()
    value = _read(found)
    saved_at = value.get("savedAt")
    age = now - saved_at if isinstance(saved_at, int | float) else times.learned_write
    shelf = Shelf(stored=from_learned(value), written_at=mono - min(max(age, 0.0), times.learned_write))
    return from_learned(value), shelf


async def put_away(
    cluster: ClusterPort, shelf: Shelf, snapshot: Snapshot, memory: Memory, times: Times
) -> None:
    """Write what was learned, where that is worth it and not too soon after the last time."""
    mono = snapshot.mono
    if not shelf.ours or mono - shelf.looked_at < times.slow_minute:
        return
    shelf.looked_at = mono
    if not worth_writing(shelf.stored, memory, times):
        shelf.noticed_at = None
        return
    if shelf.noticed_at is None:
        shelf.noticed_at = mono
    if mono - shelf.noticed_at < times.learned_settle or mono - shelf.written_at < times.learned_write:
        return
    value = learned(memory)
    text = json.dumps(value | {"savedAt": round(snapshot.now)}, separators=(",", ":"))
    if len(text) > SIZE_LIMIT:
        shelf.written_at = mono
        log.error(
            "what was learned is too large to keep", extra={"fleet": str(snapshot.key), "size": len(text)}
        )
        return
    try:
        await cluster.apply(_manifest(snapshot, text))
    except PortError as error:
        log.warning("what was learned is not kept", extra={"fleet": str(snapshot.key), "why": str(error)})
        shelf.noticed_at = mono
        return
    shelf.written_at, shelf.noticed_at = mono, None
    shelf.stored = from_learned(value)


def _read(config_map: Json) -> Json:
    try:
        value = json.loads((config_map.get("data") or {}).get(DATA_KEY, ""))
    except (ValueError, TypeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _manifest(snapshot: Snapshot, text: str) -> Json:
    key = snapshot.key
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": shelf_name(key),
            "namespace": key.namespace,
            "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.DEPLOYMENT_LABEL: key.name},
            "ownerReferences": [owner_reference(key.name, snapshot.uid)],
        },
        "data": {DATA_KEY: text},
    }
