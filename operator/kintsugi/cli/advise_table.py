"""Advice for people: one line on each pool's traffic, a table of suggestions, and what could not be judged."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from rich import box
from rich.console import Console
from rich.table import Table

PIPED_WIDTH: Final = 110
"""Columns where nobody says how many there are."""


def show(reports: Sequence[Mapping[str, Any]]) -> None:
    """Print every report."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    for index, report in enumerate(reports):
        if index:
            click.echo()
        if report["deployment"]:
            click.echo(f"{report['deployment']}")
        for pool, seen in report["pools"].items():
            click.echo(_seen(pool, seen))
        suggestions = report["suggestions"]
        if suggestions:
            console.print(_table(suggestions), markup=False)
        else:
            click.echo("No suggestion.")
        for number, each in enumerate(suggestions, 1):
            console.print(f"{number}. {each['why']}", markup=False)
        for each in report["missing"]:
            click.echo(f"not judged: {each['path']}: {each['why']}")
    click.echo("Nothing was changed.")


def _seen(pool: str, seen: Mapping[str, Any]) -> str:
    usage = "unknown" if seen["kvUsagePercent"] is None else f"{seen['kvUsagePercent']:g} %"
    return (
        f"pool {pool or '(not named)'}: {seen['instances']} of its instances, {seen['windowSeconds']:g} s "
        f"({seen['samples']} pages), {seen['requests']} requests ended, running {_number(seen['running'])}, waiting "
        f"{_number(seen['waiting'])}, KV {usage}"
    )


def _table(suggestions: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("", "field", "now", "suggested", "confidence"):
        table.add_column(name, overflow="fold", no_wrap=name != "field")
    for number, each in enumerate(suggestions, 1):
        table.add_row(
            f"{number}.",
            each["path"],
            _number(each["current"]),
            _number(each["suggested"]),
            each["confidence"],
        )
    return table


def _number(number: float | None) -> str:
    return "unknown" if number is None else f"{number:g}"
