"""A comparison as a table for people."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kintsugi.core.bench import Compared


def show(names: tuple[str, str], found: Sequence[Compared], pairs: int) -> None:
    """Print every figure; green and red only where the interval says that the difference is one."""
    table = Table("", escape(names[0]), escape(names[1]), "change", "95 % confidence")
    for one in found:
        unit = one.figure.unit
        table.add_row(
            one.figure.name,
            f"{one.first:.4g} {unit}",
            f"{one.second:.4g} {unit}",
            _coloured(one),
            f"{one.interval[0]:+.1f} … {one.interval[1]:+.1f} %" if one.interval else "too few pairs",
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(f"Medians of {pairs} runs each; changes are medians over pairs of runs beside each other.")


def _coloured(one: Compared) -> str:
    text = f"{one.percent:+.1f} %"
    if one.interval is None or one.interval[0] <= 0 <= one.interval[1]:
        return text
    better = (one.percent > 0) == one.figure.more_is_better
    return f"[green]{text}[/]" if better else f"[red]{text}[/]"
