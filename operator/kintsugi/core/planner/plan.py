"""The plan of a deployment, pool by pool."""

from dataclasses import replace

from kintsugi.api.effective import pools_of
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.load import in_force
from kintsugi.core.planner.advice import demand_findings
from kintsugi.core.planner.options import Options
from kintsugi.core.planner.pool import plan_pool
from kintsugi.core.planner.prices import Prices, builtin_prices
from kintsugi.core.planner.result import PoolPlan
from kintsugi.core.planner.subject import subject_of


def plan(
    spec: DeploymentSpec,
    catalog: Catalog | None = None,
    prices: Prices | None = None,
    options: Options | None = None,
) -> tuple[PoolPlan, ...]:
    """What each pool holds and costs, in the spec's order; None stands for what the package ships.

    Never raises for a spec that could be parsed: what can't be planned is a finding.
    """
    catalog, prices = catalog or in_force(), prices or builtin_prices()
    options = options or Options()
    plans = tuple(
        plan_pool(subject_of(spec, pool, catalog), catalog, prices, options) for pool in pools_of(spec)
    )
    told = demand_findings(plans, options)
    return tuple(replace(p, findings=(*p.findings, *told.get(p.name, ()))) for p in plans)
