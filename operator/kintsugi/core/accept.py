"""Whether a spec can be run by this version: each problem names the field and the cure."""

from kintsugi.api.effective import pools_of
from kintsugi.api.objects import Problem
from kintsugi.api.spec import DeploymentSpec, PoolSpec
from kintsugi.core.pod.owned import template_problems
from kintsugi.core.render import gpus_of


def problems_of_spec(spec: DeploymentSpec) -> tuple[Problem, ...]:
    """What stops this spec from being run; empty where nothing does."""
    found: list[Problem] = []
    for at, template in _templates(spec):
        found += [Problem(f"{at}.{fault.path}", fault.message) for fault in template_problems(template)]
    for index, pool in enumerate(pools_of(spec)):
        at = f"spec.pools[{index}]" if spec.pools else "spec"
        if (pool.hardware.nodes_per_instance or 1) > 1:
            found.append(
                Problem(
                    f"{_where(spec, index)}.nodesPerInstance",
                    "must be 1 in this version: one instance is one pod",
                )
            )
        if gpus_of(spec, pool) is None:
            found.append(
                Problem(
                    "spec.hardware.gpusPerInstance",
                    f"must be set: no recipe is known for model {spec.model.id!r}",
                )
            )
        if pool.engine.runtime == "Native" and pool.engine.image is None:
            found.append(
                Problem(f"{at}.engine.image", "must be set with runtime Native: there is no default image")
            )
    return tuple(dict.fromkeys(found))


def _where(spec: DeploymentSpec, index: int) -> str:
    own = spec.pools[index].hardware if spec.pools else None
    return f"spec.pools[{index}].hardware" if own and own.nodes_per_instance else "spec.hardware"


def _templates(spec: DeploymentSpec) -> list[tuple[str, dict[str, object]]]:
    owners: list[tuple[str, DeploymentSpec | PoolSpec]] = [("spec", spec)]
    owners += [(f"spec.pools[{index}]", pool) for index, pool in enumerate(spec.pools)]
    return [
        (f"{at}.{field}", template)
        for at, owner in owners
        for field, template in (
            ("podTemplate", owner.pod_template),
            ("leaderPodTemplate", owner.leader_pod_template),
            ("workerPodTemplate", owner.worker_pod_template),
        )
        if template
    ]
