"""A backtest for people: incidents with their numbers, what would have been done, what held it back, what is unknown."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

PIPED_WIDTH: Final = 10_000
"""Columns where no terminal says how many there are: every row is one line, for programs that look for words."""
PROSE: Final = frozenset({"message", "why"})
"""Columns whose text may go on in further lines."""
LEAST_PROSE: Final = 30
"""Fewer columns than this make no line of prose."""
ENDED = {
    "recovered": "got well by itself",
    "restarted": "its process was restarted",
    "gone": "its pod went away",
    "stillSick": "still so at the end",
}
ACTIONS = {
    "withdraw": "withdraw from traffic",
    "putBack": "put back in traffic",
    "release": "let go, so that a replacement starts",
    "evict": "evict",
}


def show(found: Mapping[str, Any]) -> None:
    """Print the report."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    if found["from"] is None:
        click.echo(f"{found['source']}: nothing to replay.")
        return
    click.echo(
        f"{found['deployment']}: {len(found['instances'])} pod{'' if len(found['instances']) == 1 else 's'} from {_day(found['from'])} to {_day(found['to'])} UTC, "
        f"{found['pages']} pages, a look every {found['everySeconds']:g} s"
    )
    for each in found["refused"]:
        click.echo(f"The operator would not run this spec, so it would do nothing: {each}")
    _incidents(console, found["incidents"])
    _table(
        console,
        "Would have been done",
        ("time (UTC)", "instance", "action", "for", "remedy"),
        (
            (_day(a["time"]), a["instance"], ACTIONS[a["action"]], a["trigger"], a["remedy"])
            for a in found["actions"]
        ),
    )
    _table(
        console,
        "Held back",
        ("from (UTC)", "to", "instance", "gate", "why"),
        (
            (_day(h["from"]), _until(h["from"], h["to"]), h["instance"], h["gate"], h["message"])
            for h in found["withheld"]
        ),
    )
    for kind, title in (
        ("suspicions", "Suspicions that came to nothing, or that only canaries could decide"),
        ("advice", "Advice: a replacement would not help"),
    ):
        rows = (
            (
                _day(s["from"]),
                _until(s["from"], s["to"]),
                s["instance"],
                f"{s['detector']}/{s['reason']}",
                s["message"],
            )
            for s in found[kind]
        )
        _table(console, title, ("from (UTC)", "to", "instance", "finding", "message"), rows)
    _table(
        console,
        "Of whole pools",
        ("from (UTC)", "to", "pool", "finding"),
        ((_day(p["from"]), _until(p["from"], p["to"]), p["pool"], p["finding"]) for p in found["pools"]),
    )
    candidates = found["falsePositiveCandidates"]
    for each in candidates:
        click.echo(
            f"false positive? {each['instance']} ({each['reason']}, {_day(each['from'])}) got well by itself, without "
            "a restart: look at what happened then before you let healing act"
        )
    if not candidates:
        click.echo("No candidate for a false positive: nothing that was called sick got well by itself.")
    if found["missing"]:
        click.echo(f"missing: {found['missing']}")
    for kind, title in (("notReplayed", "not replayed"), ("assumed", "assumed"), ("notes", "note")):
        for each in found.get(kind, ()):
            click.echo(f"{title}: {each}")


def _incidents(console: Console, incidents: Iterable[Mapping[str, Any]]) -> None:
    incidents = list(incidents)
    if not incidents:
        click.echo("Nobody was sick.")
        return
    for each in incidents:
        end = (
            f"{_day(each['from'])} to {_until(each['from'], each['to'])}"
            if each["to"]
            else f"from {_day(each['from'])} on"
        )
        console.print(
            f"\n{each['instance']} ({each['pool']}, {each['node'] or 'node unknown'}): {', '.join(each['reasons'])}, "
            f"{end}; {ENDED[each['ended']]}",
            markup=False,
            soft_wrap=True,
        )
        console.print(f"  {each['message']}", markup=False, soft_wrap=True)
        numbers = ", ".join(
            f"{e['signal']} {e['value']:g} {e['unit']} ({e['samples']} samples)" for e in each["evidence"]
        )
        if numbers:
            console.print(f"  evidence: {numbers}", markup=False, soft_wrap=True)
        if each["restsOnUnsentCanaries"]:
            console.print(
                "  would have asked by canary: none was sent, but the pages show no step that could have answered one",
                markup=False,
                soft_wrap=True,
            )


def _table(console: Console, title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """A table whose names and times stay whole; a list where the terminal is too narrow for it."""
    rows = list(rows)
    if not rows:
        return
    whole = [name not in PROSE for name in columns]
    if _least_width(columns, whole, rows) > console.width:
        _list(title, columns, whole, rows)
        return
    made = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for name, kept in zip(columns, whole, strict=True):
        made.add_column(name, overflow="fold", no_wrap=kept)
    for row in rows:
        made.add_row(*row)
    console.print(made, markup=False)


def _least_width(columns: Sequence[str], whole: Sequence[bool], rows: Sequence[Sequence[str]]) -> int:
    """Terminal columns that the table needs: its names in full, its prose in short lines."""
    widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
    return sum(
        (width if kept else min(width, LEAST_PROSE)) + 3 for width, kept in zip(widths, whole, strict=True)
    )


def _list(title: str, columns: Sequence[str], whole: Sequence[bool], rows: Sequence[Sequence[str]]) -> None:
    """The same rows, each with its prose on lines of its own."""
    click.echo(f"\n{title} ({', '.join(name for name, kept in zip(columns, whole, strict=True) if kept)})")
    for row in rows:
        click.echo("  ".join(cell for cell, kept in zip(row, whole, strict=True) if kept))
        for name, cell, kept in zip(columns, row, whole, strict=True):
            if not kept:
                click.echo(f"    {name}: {cell}")


def _day(stamp: str) -> str:
    """2026-11-29 12:00:05, of an RFC 3339 time in UTC."""
    return stamp[:19].replace("T", " ")


def _until(since: str, stamp: str) -> str:
    """The end of a span: its time, after its date where that is not the day of `since`."""
    return stamp[11:19] if stamp[:10] == since[:10] else _day(stamp)
