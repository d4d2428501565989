"""What is in force for one pool: the deployment's settings with the pool's own laid over them."""

from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kintsugi.api.model import Model
from kintsugi.api.spec import DeploymentSpec, EngineSpec, HardwareSpec, ModelSpec, PoolSpec, Profile

DEFAULT_POOL: Final = "main"
"""Name of the only pool of a deployment that names none."""
DEFAULT_OUTPUT_TOKENS: Final = 1024
"""Length assumed of an answer whose request does not limit it."""

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool with every setting resolved that needs no knowledge of the model."""

    name: str
    model: ModelSpec
    replicas: int
    profile: Profile
    max_tokens: int | None
    """Longest request in tokens; None: the model's whole context."""
    default_output_tokens: int
    engine: EngineSpec
    hardware: HardwareSpec
    pod_templates: tuple[dict[str, Any], ...]
    """To be merged in this order: the deployment's, then the pool's."""
    leader_templates: tuple[dict[str, Any], ...] = ()
    worker_templates: tuple[dict[str, Any], ...] = ()
    """After those above, into the leader and the workers of an instance of several nodes."""


def pools_of(spec: DeploymentSpec) -> tuple[Pool, ...]:
    """The pools in the order written, at least one; `spec.replicas` already laid over `scalePool`'s."""
    written = spec.pools or (PoolSpec(name=DEFAULT_POOL),)
    scaled = scaled_pool(spec)
    return tuple(_pool(spec, pool, pool.name == scaled) for pool in written)


def pool_of(spec: DeploymentSpec, name: str) -> Pool | None:
    """The pool of that name; None where the spec names none such."""
    written = spec.pools or (PoolSpec(name=DEFAULT_POOL),)
    return next(
        (_pool(spec, pool, pool.name == scaled_pool(spec)) for pool in written if pool.name == name), None
    )


def scaled_pool(spec: DeploymentSpec) -> str | None:
    """The pool that `/scale` is about: `scalePool`, or the only pool; None where several pools leave it open."""
    if spec.scale_pool is not None:
        return spec.scale_pool
    if len(spec.pools) > 1:
        return None
    return spec.pools[0].name if spec.pools else DEFAULT_POOL


def _pool(spec: DeploymentSpec, pool: PoolSpec, scaled: bool) -> Pool:
    limit = pool.context.max_tokens if pool.context else None
    output = pool.context.default_output_tokens if pool.context else None
    fallback = DEFAULT_OUTPUT_TOKENS if limit is None else max(1, min(DEFAULT_OUTPUT_TOKENS, limit // 4))
    return Pool(
        name=pool.name,
        model=spec.model,
        replicas=spec.replicas if scaled and spec.replicas is not None else pool.replicas,
        profile=pool.profile or "Balanced",
        max_tokens=limit,
        default_output_tokens=output or fallback,
        engine=_engine(spec.engine or EngineSpec(), pool.engine or EngineSpec()),
        hardware=overlay(spec.hardware or HardwareSpec(), pool.hardware or HardwareSpec()),
        pod_templates=tuple(t for t in (spec.pod_template, pool.pod_template) if t),
        leader_templates=tuple(t for t in (spec.leader_pod_template, pool.leader_pod_template) if t),
        worker_templates=tuple(t for t in (spec.worker_pod_template, pool.worker_pod_template) if t),
    )


def _engine(base: EngineSpec, over: EngineSpec) -> EngineSpec:
    """`over` laid over `base`; `env` is joined by name, base first, order kept."""
    merged = overlay(base, over)
    env = {variable.name: variable for variable in (*base.env, *over.env)}
    return merged.model_copy(update={"env": tuple(env.values())})


def overlay(base: M, over: M) -> M:
    """`base` with every field that `over` sets, part by part; lists and maps are replaced whole."""
    update: dict[str, Any] = {}
    for name in over.model_fields_set:
        new, old = getattr(over, name), getattr(base, name)
        if new is None:
            continue
        update[name] = overlay(old, new) if isinstance(new, Model) and isinstance(old, Model) else new
    return base.model_copy(update=update)
