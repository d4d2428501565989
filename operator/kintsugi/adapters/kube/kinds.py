"""The kinds that the operator creates, applies or deletes, and where their API is."""

from collections.abc import Mapping
from typing import Final

from kintsugi.core import names
from kintsugi.ports.errors import Invalid

PLURALS: Final[Mapping[tuple[str, str], str]] = {
    ("v1", "Service"): "services",
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Pod"): "pods",
    ("policy/v1", "PodDisruptionBudget"): "poddisruptionbudgets",
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("coordination.k8s.io/v1", "Lease"): "leases",
    (names.API_VERSION, names.DEPLOYMENT_KIND): names.DEPLOYMENT_PLURAL,
    (names.API_VERSION, names.REMEDIATION_KIND): names.REMEDIATION_PLURAL,
}


def plural_of(api_version: str, kind: str) -> str:
    """The resource name of a kind; Invalid for one that the operator has no business with."""
    found = PLURALS.get((api_version, kind))
    if found is None:
        raise Invalid(f"{api_version} {kind} is not a kind that the operator writes")
    return found
