"""The revision of a pool: a hash of what the user wrote that changes an engine, and of nothing else."""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from kintsugi.api.model import Model
from kintsugi.api.spec import DeploymentSpec, PoolSpec

REVISION_LENGTH = 10
"""Hex digits; with name and pool of at most 45 characters a pod's name stays within 63."""


def revision_of(spec: DeploymentSpec, pool: PoolSpec | None) -> str:
    """The revision of `pool` (None: the only pool of a deployment that names none).

    Only fields that were written count, never a default of the operator's version, so an upgrade of the operator
    moves no pod. Replicas, healing, routing, rollout and monitoring change no engine and do not count, and neither
    does a field that was written and left empty: `engine: {}` asks for nothing.
    """
    written: dict[str, Any] = {
        "model": _written(spec.model),
        "engine": _written(spec.engine),
        "hardware": _written(spec.hardware),
        "podTemplate": spec.pod_template,
        "pool": _written(pool, without={"name", "replicas"}),
    }
    # Only where written: a key that is always there would move every pod of before.
    for key, template in (("leader", spec.leader_pod_template), ("worker", spec.worker_pod_template)):
        if template:
            written[key] = template
    text = json.dumps(written, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:REVISION_LENGTH]


def _written(part: Model | None, without: Collection[str] = ()) -> dict[str, Any]:
    if part is None:
        return {}
    return _filled(
        part, part.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=set(without))
    )


def _filled(model: Model, dumped: Mapping[str, Any]) -> dict[str, Any]:
    """`dumped` without the fields of models that say nothing. What is inside a raw object stays: `emptyDir: {}` speaks."""
    out: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        key = field.alias or name
        value, said = getattr(model, name), dumped.get(key)
        if isinstance(value, Model) and said is not None:
            said = _filled(value, said)
        elif isinstance(value, tuple) and said is not None:
            pairs = zip(value, said, strict=True)
            said = [_filled(item, raw) if isinstance(item, Model) else raw for item, raw in pairs]
        if said is not None and said not in ({}, []):
            out[key] = said
    return out
