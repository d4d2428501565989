"""Remediations are kept by count and age; none is dropped that is in flight or that a budget still counts."""

from typing import Final

from kintsugi.api.status import DeploymentStatus
from kintsugi.core.names import API_VERSION, REMEDIATION_KIND
from kintsugi.core.snapshot import Key
from kintsugi.ports.cluster import ClusterPort

KEPT_RECORDS: Final = 100
"""Per deployment; the newest stay."""


async def retire_old_records(cluster: ClusterPort, key: Key, status: DeploymentStatus) -> None:
    """Delete the oldest Remediations of one deployment beyond the number kept."""
    found = sorted(await cluster.list_remediation_names(key), key=lambda entry: (entry[1], entry[0]))
    needed = {a.name for a in status.remediations.active}
    needed |= {f"{key.name}-{r.id.split('-')[0]}-{r.attempt}" for r in status.remediations.recent}
    for name, _ in found[: max(0, len(found) - KEPT_RECORDS)]:
        raw = None if name in needed else await cluster.get_remediation(key.namespace, name)
        if raw is not None:
            await cluster.delete(API_VERSION, REMEDIATION_KIND, key.namespace, name, raw["metadata"]["uid"])
