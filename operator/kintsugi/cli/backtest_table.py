"""A backtest for people: incidents with their numbers, what would have been done, what held it back, what is unknown."""

from collections.abc import Iterable, Mapping
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

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
    console = Console(highlight=False)
    if found["from"] is None:
        click.echo(f"{found['source']}: nothing to replay.")
        return
    click.echo(
        f"{found['deployment']}: {len(found['instances'])} pod{'' if len(found['instances']) == 1 else 's'} from {_day(found['from'])} to {_day(found['to'])}, "
        f"{found['pages']} pages, a look every {found['everySeconds']:g} s"
    )
    for each in found["refused"]:
        click.echo(f"The operator would not run this spec, so it would do nothing: {each}")
    _incidents(console, found["incidents"])
    _table(
        console,
        "Would have been done",
        ("time", "instance", "action", "for", "remedy"),
        (
            (_day(a["time"]), a["instance"], ACTIONS[a["action"]], a["trigger"], a["remedy"])
            for a in found["actions"]
        ),
    )
    _table(
        console,
        "Held back",
        ("from", "to", "instance", "gate", "why"),
        (
            (_day(h["from"]), _time(h["to"]), h["instance"], h["gate"], h["message"])
            for h in found["withheld"]
        ),
    )
    for kind, title in (
        ("suspicions", "Suspicions that came to nothing, or that only canaries could decide"),
        ("advice", "Advice: a replacement would not help"),
    ):
        rows = (
            (_day(s["from"]), _time(s["to"]), s["instance"], f"{s['detector']}/{s['reason']}", s["message"])
            for s in found[kind]
        )
        _table(console, title, ("from", "to", "instance", "finding", "message"), rows)
    _table(
        console,
        "Of whole pools",
        ("from", "to", "pool", "finding"),
        ((_day(p["from"]), _time(p["to"]), p["pool"], p["finding"]) for p in found["pools"]),
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
            f"{_day(each['from'])} to {_time(each['to'])}" if each["to"] else f"from {_day(each['from'])} on"
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
    made = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for name in columns:
        made.add_column(name, overflow="fold", no_wrap=name in ("from", "to", "time", "gate"))
    for row in rows:
        made.add_row(*row)
    if made.row_count:
        console.print(made, markup=False)


def _day(stamp: str) -> str:
    """2026-11-29 12:00:05, of an RFC 3339 time in UTC."""
    return stamp[:19].replace("T", " ")


def _time(stamp: str) -> str:
    return stamp[11:19]
