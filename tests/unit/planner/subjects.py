"""Deployments for the planner's tests."""

from typing import Any

from kintsugi.api.objects import parse_deployment
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.planner.options import Options
from kintsugi.core.planner.plan import plan
from kintsugi.core.planner.result import PoolPlan

FLASH = "deepseek-ai/DeepSeek-V4-Flash-0731"
PRO = "deepseek-ai/DeepSeek-V4-Pro"


def spec_of(model: str = FLASH, **rest: Any) -> DeploymentSpec:
    """A spec for `model` with these further fields, in the manifest's own spelling."""
    raw = {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"name": "chat", "namespace": "llm"},
        "spec": {"model": {"id": model}, **rest},
    }
    return parse_deployment(raw).spec


def planned(
    model: str = FLASH,
    gpu: str | None = None,
    gpus: int | None = None,
    nodes: int | None = None,
    options: Options | None = None,
    engine: dict[str, Any] | None = None,
    **args: Any,
) -> PoolPlan:
    """The plan of one pool; `args` are typed engine arguments."""
    hardware = {"gpu": gpu, "gpusPerInstance": gpus, "nodesPerInstance": nodes}
    spec = spec_of(
        model,
        hardware={name: value for name, value in hardware.items() if value is not None},
        engine={**(engine or {}), "args": args},
    )
    return plan(spec, options=options)[0]


def rules(made: PoolPlan, *severities: str) -> set[str]:
    """Names of the plan's findings, of these severities where any are given."""
    return {f.rule for f in made.findings if not severities or f.severity in severities}


def message(made: PoolPlan, rule: str) -> str:
    """The message of one finding, with its cure."""
    return next(f"{f.message} {f.cure}" for f in made.findings if f.rule == rule)


def held(made: PoolPlan, tokens: int) -> int:
    """Requests of that length that one instance's KV cache holds."""
    assert made.kv is not None
    return int(dict(made.kv.concurrency)[tokens].value)
