"""Whether the operator runs a spec: the rules' errors, each with its field and cure, and what this version can't do."""

from functools import lru_cache

from kintsugi.api.effective import pools_of
from kintsugi.api.objects import DeepSeekV4Deployment, ObjectMeta, Problem
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.preflight.check import check_spec
from kintsugi.core.preflight.finding import Finding

REMEMBERED: int = 512
"""Specs whose findings are kept: a pass asks every few seconds, and a check takes milliseconds."""


def refusals(deployment: DeepSeekV4Deployment) -> tuple[str, ...]:
    """What stops a deployment from being run, as sentences with the field and the cure; empty where nothing does."""
    errors = [finding for finding in _findings(deployment) if finding.severity == "Error"]
    return (*map(str, errors), *map(str, _not_built(deployment.spec)))


def warnings(deployment: DeepSeekV4Deployment) -> tuple[str, ...]:
    """What runs, and should be known."""
    return tuple(str(finding) for finding in _findings(deployment) if finding.severity == "Warning")


def problems_of_spec(spec: DeploymentSpec) -> tuple[Problem, ...]:
    """The refusals of a spec, each with its path."""
    errors = [f for f in _findings(DeepSeekV4Deployment(spec=spec)) if f.severity == "Error"]
    found = [Problem(f.path, f"{f.message}: {f.cure}") for f in errors]
    return (*found, *_not_built(spec))


def _not_built(spec: DeploymentSpec) -> list[Problem]:
    """What rules let pass, since it is rendered, and this version must not make half of."""
    found = []
    for index, pool in enumerate(pools_of(spec)):
        if (pool.hardware.nodes_per_instance or 1) > 1:
            own = spec.pools[index].hardware if spec.pools else None
            at = f"spec.pools[{index}]" if own and own.nodes_per_instance else "spec"
            text = "must be 1 in this version: one instance is one pod"
            found.append(Problem(f"{at}.hardware.nodesPerInstance", text))
    return list(dict.fromkeys(found))


def _findings(deployment: DeepSeekV4Deployment) -> tuple[Finding, ...]:
    return _of_text(
        deployment.metadata.name, deployment.spec.model_dump_json(by_alias=True, exclude_unset=True)
    )


@lru_cache(maxsize=REMEMBERED)
def _of_text(name: str, spec: str) -> tuple[Finding, ...]:
    """By the spec's text, since a spec holds raw objects and so is no key."""
    deployment = DeepSeekV4Deployment(
        metadata=ObjectMeta(name=name), spec=DeploymentSpec.model_validate_json(spec)
    )
    return check_spec(deployment)
