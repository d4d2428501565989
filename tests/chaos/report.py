"""What the chaos came to: a table for people, and `build/chaos.json`."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chaos.stage import Tally


def write(tallies: Sequence[Tally], path: Path) -> None:
    """`{"cases": [{"name": …, "victims": n, "allowed": n, "doubleActions": n, "converged": true}]}`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"cases": [tally.document() for tally in tallies]}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def table(tallies: Sequence[Tally]) -> Table:
    """A row for each case; what is not as it must be is red."""
    made = Table(title="Chaos", title_justify="left")
    made.add_column("case")
    for column in ("victims", "allowed", "double actions", "seconds"):
        made.add_column(column, justify="right")
    made.add_column("end state")
    made.add_column("remark")
    for tally in tallies:
        made.add_row(
            tally.name,
            _marked(str(tally.victims), tally.victims <= tally.allowed),
            str(tally.allowed),
            _marked(str(tally.double_actions), tally.double_actions == 0),
            f"{tally.seconds:.0f}",
            _marked("as it was" if tally.converged else "NOT as it was", tally.converged),
            tally.remark.splitlines()[0] if tally.remark else "",
        )
    return made


def show(tallies: Sequence[Tally]) -> None:
    """Print the table, as wide as it needs to be where no terminal says otherwise."""
    console = Console()
    Console(width=max(console.width, 150)).print(table(tallies))


def _marked(text: str, good: bool) -> str:
    return text if good else f"[bold red]{text}[/]"
