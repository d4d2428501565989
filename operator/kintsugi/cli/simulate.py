"""`kintsugi simulate`: weeks of a simulated fleet under the real judge, gates and remedies, with healing on and off."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from kintsugi.api.spec import MOST_POOLS
from kintsugi.cli.planfile import Unreadable, from_file
from kintsugi.cli.ranges import FiniteRange
from kintsugi.testing.simulation.fleetlife import FleetLife, Outcome, Plan
from kintsugi.testing.simulation.healing import forced
from kintsugi.testing.simulation.rates import PERSON_MINUTES, SOFTWARE_FAULT_DAYS

ROWS = (
    ("requests answered", "availabilityPercent", "%"),
    ("requests lost", "requestsLost", ""),
    ("requests", "requests", ""),
    ("instances serving", "instancesServingPercent", "%"),
    ("replaced by Kintsugi", "removals", ""),
    ("of these healthy", "falseRemovals", ""),
    ("removed by a person", "removedByPerson", ""),
)


@click.command("simulate")
@click.option("--weeks", type=FiniteRange(0.01, 520), default=1.0, show_default=True)
@click.option("--pools", type=click.IntRange(1, MOST_POOLS), default=2, show_default=True)
@click.option(
    "--replicas", type=click.IntRange(1, 50), default=4, show_default=True, help="Instances of a pool."
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    help="A DeepSeekV4Deployment whose model and healing are taken; its pools are not.",
)
@click.option(
    "--fault-days",
    type=FiniteRange(0.05, 3650),
    default=SOFTWARE_FAULT_DAYS,
    show_default=True,
    help="Days between two faults of one engine's software; nobody publishes a figure.",
)
@click.option(
    "--person-minutes",
    type=FiniteRange(0, 10_080),
    default=PERSON_MINUTES,
    show_default=True,
    help="Where Kintsugi only observes: until a person removes a sick instance; 0 = nobody does.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def simulate(
    weeks: float,
    pools: int,
    replicas: int,
    seed: int,
    policy: Path | None,
    fault_days: float,
    person_minutes: float,
    output: str,
) -> None:
    """Simulate a fleet for weeks, with healing on and with a person in its place.

    Judge, gates and remedies are the operator's own; cluster, engines and time are simulated. The same seed gives the
    same story. Under a policy that only observes, healing acts all the same, to show its worth. What is assumed stands in docs/simulation.md.
    """
    spec = {} if policy is None else _spec_of(policy)
    notes = forced(spec.get("healing", {}))
    plan = Plan(weeks, pools, replicas, seed, spec, fault_days, person_minutes)
    found = [_run(plan, healing) for healing in (True, False)]
    if output == "json":
        told = {"seed": seed, "weeks": weeks, "pools": pools, "replicas": replicas}
        click.echo(json.dumps({**told, "notes": notes, "runs": [one.report() for one in found]}, indent=2))
        return
    Console().print(_table(found))
    for note in notes:
        click.echo(f"note: {note}")


def _run(plan: Plan, healing: bool) -> Outcome:
    name = "healing" if healing else "observing"
    life = FleetLife(plan, healing)
    if not sys.stderr.isatty():
        return asyncio.run(life.run())
    with click.progressbar(length=1000, label=name, file=sys.stderr) as bar:
        done = 0

        def told(share: float) -> None:
            nonlocal done
            now = min(1000, int(1000 * share))
            bar.update(now - done)
            done = now

        return asyncio.run(life.run(told))


def _spec_of(path: Path) -> dict[str, Any]:
    """Model, engine and healing of the one deployment in a file."""
    wanted = from_file(path)
    if len(wanted) != 1:
        raise Unreadable(f"{path}: holds {len(wanted)} DeepSeekV4Deployments; give a file with one")
    for problem in wanted[0].unknown:
        click.echo(f"Warning: {path}: {problem}", err=True)
    spec = wanted[0].spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {name: spec[name] for name in ("model", "healing") if name in spec}


def _table(found: list[Outcome]) -> Table:
    reports = [one.report() for one in found]
    table = Table("", *("healing" if one.healing else "a person" for one in found))
    for label, key, unit in ROWS:
        table.add_row(label, *(f"{report[key]:,}{unit and ' ' + unit}" for report in reports))
    kinds = sorted({kind for one in found for kind in one.faults})
    for kind in kinds:
        table.add_row(f"fault: {kind}", *(str(one.faults[kind]) for one in found))
    return table
