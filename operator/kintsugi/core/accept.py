"""Whether a spec can be run by this version: each problem names the field and the cure."""

from kintsugi.api.effective import pools_of
from kintsugi.api.objects import Problem
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.pod.owned import problems_in_templates
from kintsugi.core.render import gpus_of


def problems_of_spec(spec: DeploymentSpec) -> tuple[Problem, ...]:
    """What stops this spec from being run; empty where nothing does."""
    found = [*problems_in_templates(spec)]
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
