"""The revision of a pool: a hash of what the user wrote that changes an engine, and of nothing else."""

import hashlib
import json

from kintsugi.api.spec import DeploymentSpec, PoolSpec

REVISION_LENGTH = 10
"""Hex digits; with name and pool of at most 45 characters a pod's name stays within 63."""


def revision_of(spec: DeploymentSpec, pool: PoolSpec | None) -> str:
    """The revision of `pool` (None: the only pool of a deployment that names none).

    Only fields that were written count, never a default of the operator's version, so an upgrade of the operator
    moves no pod. Replicas, healing, routing, rollout and monitoring change no engine and do not count.
    """
    written = {
        "model": spec.model.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "engine": _written(spec, "engine"),
        "hardware": _written(spec, "hardware"),
        "podTemplate": spec.pod_template,
        "pool": {}
        if pool is None
        else pool.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"name", "replicas"}),
    }
    text = json.dumps(written, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:REVISION_LENGTH]


def _written(spec: DeploymentSpec, name: str) -> object:
    part = getattr(spec, name)
    return None if part is None else part.model_dump(mode="json", by_alias=True, exclude_unset=True)
